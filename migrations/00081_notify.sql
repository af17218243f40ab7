-- +goose Up
-- Package notify: what people are to hear of, on which channel it went out, and how their channels fare.

-- The outbox proper. Written in the transaction of the act; holds ids, and nothing that anybody wrote.
CREATE TABLE notification (
    owner      uuid        NOT NULL, -- whose request, grant or settings it is about
    id         uuid        NOT NULL, -- follows from kind, object and recipient
    kind       text        NOT NULL,
    side       text        NOT NULL CHECK (side IN ('owner', 'requester')), -- who is to hear of it
    identity   bytea,                -- the requester's
    persona    text        NOT NULL DEFAULT '',
    request_id uuid,
    grant_id   uuid,
    state      text        NOT NULL DEFAULT '', -- of the request or grant, after
    event      text        NOT NULL DEFAULT '', -- what happened to a grant
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner, id)
);
CREATE INDEX notification_created ON notification (created_at);

-- One row a notification, human and channel: what makes a repeat send nothing.
CREATE TABLE notification_delivery (
    human        uuid        NOT NULL,
    notification uuid        NOT NULL,
    channel      text        NOT NULL CHECK (channel IN ('email', 'digest', 'webhook')),
    owner        uuid        NOT NULL, -- of the notification
    outcome      text        NOT NULL DEFAULT 'waiting' CHECK (outcome IN ('waiting', 'sent', 'dropped', 'failed')),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at     timestamptz,
    PRIMARY KEY (human, notification, channel),
    CHECK ((outcome = 'waiting') = (ended_at IS NULL))
);
CREATE INDEX notification_delivery_digest ON notification_delivery (human, created_at) WHERE channel = 'digest' AND outcome = 'waiting';
CREATE INDEX notification_delivery_created ON notification_delivery (created_at);

-- How a human's e-mail and webhook fare, and the webhook's secret.
CREATE TABLE notification_channel (
    human               uuid        NOT NULL,
    channel             text        NOT NULL CHECK (channel IN ('email', 'webhook')),
    address             bytea,                       -- SHA-256 of the address that the rest is about
    secret              bytea,                       -- sealed
    secret_before       bytea,                       -- sealed; signs too until the moment beside it
    secret_before_until timestamptz,
    failures            integer     NOT NULL DEFAULT 0, -- in a row
    failing_since       timestamptz,
    last_success        timestamptz,
    last_failure        timestamptz,
    last_error          text        NOT NULL DEFAULT '',
    disabled_at         timestamptz,
    PRIMARY KEY (human, channel)
);

-- +goose Down
DROP TABLE notification_channel, notification_delivery, notification;
