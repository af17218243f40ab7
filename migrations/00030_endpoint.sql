-- Tables of package endpoint. Rows of a human carry the owner first; the others
-- are routing tables, keyed by their own id or hash.
-- +goose Up
CREATE TABLE endpoint (
    owner          uuid        NOT NULL,
    id             uuid        NOT NULL,
    kind           text        NOT NULL CHECK (kind IN ('home', 'peer')),
    agent_id       uuid        NOT NULL,
    persona_id     uuid        NOT NULL,
    persona        text        NOT NULL,
    grant_id       uuid,
    line           uuid        NOT NULL,
    scope          jsonb       NOT NULL,
    tools          text[],
    identity       bytea,
    identity_text  text        NOT NULL DEFAULT '', -- as people read it
    calls_itself   text        NOT NULL DEFAULT '',
    key_thumbprint text        NOT NULL DEFAULT '',
    state          text        NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'revoked', 'expired', 'ended')),
    version        bigint      NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at     timestamptz NOT NULL,
    PRIMARY KEY (owner, id),
    CHECK ((kind = 'peer') = (grant_id IS NOT NULL)),
    CHECK ((kind = 'peer') = (identity IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX endpoint_alive ON endpoint (owner, agent_id, persona_id) WHERE state IN ('active', 'paused');

CREATE TABLE endpoint_route (
    id    uuid PRIMARY KEY,
    owner uuid NOT NULL
);

-- What other domains may read and lock: a caller that was resolved at a version
-- is right exactly while the row still has it.
CREATE VIEW endpoint_authority AS SELECT id, owner, version, line FROM endpoint;

-- An agent's public keys, and the personas at which each has a stored request.
CREATE TABLE endpoint_key (
    thumbprint text COLLATE "C" PRIMARY KEY,
    jwk        jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE endpoint_key_persona (
    thumbprint text COLLATE "C" NOT NULL REFERENCES endpoint_key,
    persona    text COLLATE "C" NOT NULL,
    identity   bytea            NOT NULL,
    created_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (thumbprint, persona, identity)
);
CREATE INDEX endpoint_key_persona_identity ON endpoint_key_persona (identity, persona);

-- What a human allowed a client by the code flow. Deleting it takes all its
-- tokens with it.
CREATE TABLE endpoint_authorization (
    id              uuid PRIMARY KEY,
    human           uuid        NOT NULL,
    identity        bytea       NOT NULL,
    client          text        NOT NULL,
    client_name     text        NOT NULL,
    owner           uuid,
    endpoint_id     uuid,
    persona         text,
    scope           text[],
    proof_key       text        NOT NULL DEFAULT '',
    code            bytea       NOT NULL UNIQUE, -- SHA-256
    challenge       text        NOT NULL,
    redirect_uri    text        NOT NULL,
    code_expires_at timestamptz NOT NULL,
    redeemed_at     timestamptz,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at      timestamptz NOT NULL,
    CHECK ((endpoint_id IS NULL) = (owner IS NULL)),
    CHECK ((endpoint_id IS NULL) <> (persona IS NULL))
);
CREATE INDEX endpoint_authorization_endpoint ON endpoint_authorization (owner, endpoint_id);
CREATE INDEX endpoint_authorization_expires ON endpoint_authorization (expires_at);

CREATE TABLE endpoint_refresh (
    id               bytea PRIMARY KEY, -- SHA-256
    authorization_id uuid        NOT NULL REFERENCES endpoint_authorization ON DELETE CASCADE,
    expires_at       timestamptz NOT NULL,
    used_at          timestamptz
);
CREATE INDEX endpoint_refresh_authorization ON endpoint_refresh (authorization_id);

CREATE TABLE endpoint_token (
    id               bytea PRIMARY KEY, -- SHA-256
    holder           uuid        NOT NULL,
    kind             text        NOT NULL CHECK (kind IN ('static', 'key', 'code')),
    owner            uuid,
    endpoint_id      uuid,
    persona          text,
    client           text        NOT NULL DEFAULT '',
    identity         bytea,
    scope            text[],
    proof_key        text        NOT NULL DEFAULT '',
    authorization_id uuid REFERENCES endpoint_authorization ON DELETE CASCADE,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at       timestamptz NOT NULL,
    used_at          timestamptz,
    CHECK ((endpoint_id IS NULL) = (owner IS NULL)),
    CHECK ((endpoint_id IS NULL) <> (persona IS NULL))
);
CREATE INDEX endpoint_token_endpoint ON endpoint_token (owner, endpoint_id);
CREATE INDEX endpoint_token_authorization ON endpoint_token (authorization_id);
CREATE INDEX endpoint_token_expires ON endpoint_token (expires_at);

-- Consent that was given, so that the page need not ask twice. The id is the
-- hash of human, client, redirect and resource.
CREATE TABLE endpoint_consent (
    id         bytea PRIMARY KEY,
    human      uuid        NOT NULL,
    client     text        NOT NULL,
    resource   text        NOT NULL,
    scope      text[],
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX endpoint_consent_human ON endpoint_consent (human);

-- Assertions and proofs that were accepted once.
CREATE TABLE endpoint_seen (
    id    bytea PRIMARY KEY,
    until timestamptz NOT NULL
);
CREATE INDEX endpoint_seen_until ON endpoint_seen (until);

-- +goose Down
DROP VIEW endpoint_authority;
DROP TABLE endpoint_seen, endpoint_consent, endpoint_token, endpoint_refresh, endpoint_authorization,
    endpoint_key_persona, endpoint_key, endpoint_route, endpoint;
