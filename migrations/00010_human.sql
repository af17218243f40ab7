-- +goose Up
-- Package human: who is accountable, and how they are signed in.

CREATE TABLE human (
    id            uuid PRIMARY KEY,
    name          text NOT NULL,
    named         boolean NOT NULL DEFAULT false, -- the human chose the name: sign-in no longer overwrites it
    email         text NOT NULL DEFAULT '',       -- only when verified and the issuer is authoritative for its domain
    issuer        text NOT NULL,                  -- canonical, never an alias
    subject       text NOT NULL,
    identity      bytea NOT NULL,                 -- the hash that provenance computes for the same person
    resident      boolean NOT NULL,
    arrived       boolean NOT NULL,               -- has been resident once, so inbox and the rest are there
    notifications jsonb NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    version       bigint NOT NULL DEFAULT 1
);

-- Routing: which human an identity is. Keyed by its own hash, so that it can live apart from the humans' rows.
CREATE TABLE human_identity (
    identity bytea PRIMARY KEY,
    human    uuid NOT NULL
);

CREATE TABLE session (
    human      uuid NOT NULL,
    id         uuid NOT NULL,
    auth_time  timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen  timestamptz NOT NULL DEFAULT clock_timestamp(),
    user_agent text NOT NULL,
    PRIMARY KEY (human, id)
);

CREATE TABLE session_token (
    hash    bytea PRIMARY KEY, -- SHA-256 of the cookie's token
    human   uuid NOT NULL,
    session uuid NOT NULL
);
CREATE INDEX session_token_session ON session_token (human, session);

CREATE TABLE api_token (
    human      uuid NOT NULL,
    id         uuid NOT NULL,
    name       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_used  timestamptz,
    PRIMARY KEY (human, id)
);

CREATE TABLE api_token_hash (
    hash  bytea PRIMARY KEY, -- SHA-256 of the sba_ token
    human uuid NOT NULL,
    token uuid NOT NULL
);
CREATE INDEX api_token_hash_token ON api_token_hash (human, token);

-- Forms that have been sent, for a day, so that one sent twice does nothing twice.
CREATE TABLE form_once (
    human uuid NOT NULL,
    key   uuid NOT NULL,
    at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (human, key)
);

-- +goose Down
DROP TABLE form_once, api_token_hash, api_token, session_token, session, human_identity, human;
