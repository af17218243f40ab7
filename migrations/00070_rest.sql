-- +goose Up
-- Answers kept for Idempotency-Key on creating POSTs; secrets are taken out.
CREATE TABLE rest_replay (
    owner    uuid NOT NULL,
    key      bytea NOT NULL, -- SHA-256 of path and key
    digest   bytea NOT NULL, -- SHA-256 of the body
    status   int,            -- NULL while the first request is under way
    body     bytea,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner, key)
);
CREATE INDEX rest_replay_begun ON rest_replay (begun_at);

-- +goose Down
DROP TABLE rest_replay;
