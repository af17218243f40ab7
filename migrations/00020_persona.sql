-- Tables of package persona. Rows of a human carry the owner first; persona_slug
-- is the routing table that finds a persona from outside.
-- +goose Up
CREATE TABLE agent (
    owner       uuid        NOT NULL,
    id          uuid        NOT NULL,
    name        text        NOT NULL,
    description text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    version     bigint      NOT NULL DEFAULT 1,
    PRIMARY KEY (owner, id)
);

CREATE TABLE persona (
    owner         uuid        NOT NULL,
    id            uuid        NOT NULL,
    agent_id      uuid        NOT NULL,
    slug          text        NOT NULL,
    name          text        NOT NULL,
    description   text        NOT NULL,
    prompt        text        NOT NULL,
    queues        text[]      NOT NULL,
    offers        jsonb       NOT NULL,
    offer_version bigint      NOT NULL DEFAULT 1,
    visibility    text        NOT NULL CHECK (visibility IN ('listed', 'unlisted', 'off')),
    who_may_ask   jsonb       NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    version       bigint      NOT NULL DEFAULT 1,
    PRIMARY KEY (owner, id),
    FOREIGN KEY (owner, agent_id) REFERENCES agent (owner, id)
);
CREATE INDEX persona_agent ON persona (owner, agent_id);

-- A slug outlives its persona: people and agents remember it, so only the human
-- who had it may give it a new persona. persona_id is null in between.
CREATE TABLE persona_slug (
    slug       text COLLATE "C" PRIMARY KEY,
    owner      uuid NOT NULL,
    persona_id uuid,
    listed     boolean NOT NULL
);
CREATE INDEX persona_slug_listed ON persona_slug (slug) WHERE listed;

-- +goose Down
DROP TABLE persona_slug, persona, agent;
