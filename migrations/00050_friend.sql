-- +goose Up
-- Package friend: requests, grants, blocks, and what bounds them.

CREATE TABLE friend_request (
    owner          uuid        NOT NULL, -- the target human
    id             uuid        NOT NULL,
    persona_id     uuid        NOT NULL,
    persona        text        NOT NULL, -- slug
    method         text        NOT NULL CHECK (method IN ('oidc-nonce', 'sign-in')),
    state          text        NOT NULL CHECK (state IN ('awaiting_sign_in', 'pending', 'approved', 'declined', 'withdrawn', 'expired')),
    identity       bytea,                -- NULL until a sign-in is redeemed
    issuer         text        NOT NULL DEFAULT '',
    issuer_entry   text        NOT NULL DEFAULT '', -- the operator's entry, whose tenants share one quota
    subject        text        NOT NULL DEFAULT '',
    email          text        NOT NULL DEFAULT '',
    name           text        NOT NULL DEFAULT '',
    key_thumbprint text        NOT NULL,
    from_name      text        NOT NULL,
    from_card      text        NOT NULL DEFAULT '',
    reason         text        NOT NULL,
    requested      jsonb       NOT NULL, -- completed from the offers
    supersedes     uuid,
    part           text        NOT NULL, -- exactly the bytes that were digested
    digest         text        NOT NULL,
    offered        jsonb       NOT NULL, -- as of arrival, then as of the decision
    offer_version  bigint      NOT NULL,
    note           text        NOT NULL DEFAULT '',
    may_ask_again  boolean     NOT NULL DEFAULT false,
    todo_id        uuid,                 -- the consent todo
    grant_id       uuid,
    artifact       jsonb,                -- as approved, for ever
    created_at     timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,
    decided_at     timestamptz,
    updated_at     timestamptz NOT NULL,
    PRIMARY KEY (owner, id),
    CHECK ((identity IS NULL) = (todo_id IS NULL)),
    CHECK (state IN ('awaiting_sign_in', 'withdrawn') OR identity IS NOT NULL),
    CHECK ((state = 'approved') = (artifact IS NOT NULL))
);

CREATE INDEX friend_request_id ON friend_request (id);
CREATE INDEX friend_request_identity ON friend_request (identity, created_at) WHERE identity IS NOT NULL;
CREATE INDEX friend_request_key ON friend_request (key_thumbprint, persona_id);
CREATE INDEX friend_request_pending ON friend_request (owner, persona_id, issuer_entry) WHERE state = 'pending';
CREATE INDEX friend_request_due ON friend_request (expires_at) WHERE state = 'pending';
CREATE INDEX friend_request_unproven ON friend_request (expires_at) WHERE todo_id IS NULL;

-- One pending request per identity and persona. The check under a lock answers
-- callers; this stands behind it.
CREATE UNIQUE INDEX friend_request_one_pending ON friend_request (owner, persona_id, identity) WHERE state = 'pending';

-- Evidence: what the issuer said, and the token itself under the operator's key.
CREATE TABLE friend_evidence (
    owner      uuid        NOT NULL,
    request_id uuid        NOT NULL,
    claims     json        NOT NULL,
    id_token   bytea       NOT NULL, -- sealed
    created_at timestamptz NOT NULL,
    PRIMARY KEY (owner, request_id)
);

-- Idempotency: SHA-256 of (identity, key, persona, messageId).
CREATE TABLE friend_message (
    hash       bytea       PRIMARY KEY,
    digest     text        NOT NULL,
    owner      uuid        NOT NULL,
    request_id uuid        NOT NULL
);
CREATE INDEX friend_message_request ON friend_message (request_id);

-- Nonces and (key, jti) that were accepted, kept until they could not be accepted anyway.
CREATE TABLE friend_replay (
    hash       bytea       PRIMARY KEY,
    keep_until timestamptz NOT NULL
);
CREATE INDEX friend_replay_until ON friend_replay (keep_until);

-- When an identity was first seen on this instance.
CREATE TABLE friend_identity (
    identity   bytea       PRIMARY KEY,
    first_seen timestamptz NOT NULL
);

-- When an issuer's first request was accepted, from which its quota grows.
CREATE TABLE friend_issuer (
    entry      text        PRIMARY KEY,
    first_seen timestamptz NOT NULL
);

CREATE TABLE friend_grant (
    owner          uuid        NOT NULL,
    id             uuid        NOT NULL,
    persona_id     uuid        NOT NULL,
    persona        text        NOT NULL,
    agent_id       uuid        NOT NULL,
    identity       bytea       NOT NULL,
    issuer         text        NOT NULL,
    subject        text        NOT NULL,
    email          text        NOT NULL DEFAULT '',
    name           text        NOT NULL DEFAULT '',
    key_thumbprint text        NOT NULL,
    from_name      text        NOT NULL,
    from_card      text        NOT NULL DEFAULT '',
    request_id     uuid        NOT NULL,
    endpoint_id    uuid        NOT NULL,
    line           uuid        NOT NULL,
    requested      jsonb       NOT NULL,
    approved       jsonb       NOT NULL,
    scope          jsonb       NOT NULL,
    state          text        NOT NULL CHECK (state IN ('active', 'paused', 'revoked', 'expired', 'ended')),
    approved_at    timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,
    ended_at       timestamptz,
    reminded_at    timestamptz,
    version        bigint      NOT NULL DEFAULT 1,
    PRIMARY KEY (owner, id),
    CHECK ((state IN ('active', 'paused')) = (ended_at IS NULL))
);

CREATE INDEX friend_grant_id ON friend_grant (id);
CREATE INDEX friend_grant_identity ON friend_grant (identity, id);
CREATE INDEX friend_grant_due ON friend_grant (expires_at) WHERE state IN ('active', 'paused');
CREATE UNIQUE INDEX friend_grant_request ON friend_grant (owner, request_id);
-- One live grant per key and persona.
CREATE UNIQUE INDEX friend_grant_live ON friend_grant (owner, persona_id, key_thumbprint) WHERE state IN ('active', 'paused');

CREATE TABLE friend_block (
    owner      uuid        NOT NULL,
    id         uuid        NOT NULL,
    identity   bytea       NOT NULL,
    issuer     text        NOT NULL,
    subject    text        NOT NULL,
    email      text        NOT NULL DEFAULT '',
    name       text        NOT NULL DEFAULT '',
    reason     text        NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL,
    PRIMARY KEY (owner, id),
    UNIQUE (owner, identity)
);

-- Method sign-in, until it is redeemed or ten minutes have passed.
CREATE TABLE friend_sign_in (
    request_id     uuid        PRIMARY KEY,
    owner          uuid        NOT NULL,
    persona_id     uuid        NOT NULL,
    part           bytea       NOT NULL, -- as received, with provenance
    nonce          text        NOT NULL,
    address        text        NOT NULL,
    expires_at     timestamptz NOT NULL,
    -- once the human has signed in:
    code_hash      bytea       UNIQUE,
    code_until     timestamptz,
    redirect_uri   text,
    code_challenge text,
    identity       bytea,
    issuer         text,
    issuer_entry   text,
    subject        text,
    email          text,
    name           text,
    claims         json,
    id_token       bytea,                -- sealed
    nonce_until    timestamptz
);
CREATE INDEX friend_sign_in_address ON friend_sign_in (address);
CREATE INDEX friend_sign_in_persona ON friend_sign_in (persona_id);
CREATE INDEX friend_sign_in_due ON friend_sign_in (expires_at);

-- +goose Down
DROP TABLE friend_sign_in, friend_block, friend_grant, friend_issuer, friend_identity, friend_replay, friend_message, friend_evidence, friend_request;
