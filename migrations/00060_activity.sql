-- +goose Up

-- What happened, for ever. Rows are inserted in the acting transaction and
-- never change; the sealer chains them afterwards in tables of its own.
CREATE TABLE activity (
    owner      uuid        NOT NULL,
    id         uuid        NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind       text        NOT NULL,
    actor      text        NOT NULL,
    object     text        NOT NULL,
    object_id  uuid,
    grant_id   uuid,
    -- json, not jsonb: the hash covers these bytes, which must come back as they were.
    detail     json        NOT NULL,
    personal   json        NOT NULL, -- {"name": hex of SHA-256 over salt and value}
    PRIMARY KEY (owner, id)
);
CREATE INDEX activity_list   ON activity (owner, at DESC, id DESC);
CREATE INDEX activity_grant  ON activity (owner, grant_id, at DESC, id DESC) WHERE grant_id IS NOT NULL;
CREATE INDEX activity_object ON activity (owner, object_id, at DESC, id DESC) WHERE object_id IS NOT NULL;
CREATE INDEX activity_recent ON activity (at);
COMMENT ON TABLE activity IS 'append-only: the record of what happened';

-- Names, e-mails and people's words, so that an account can be erased while the
-- chain stays whole. The salt goes with the value: without it the hash in the
-- event tells nothing, even to who guesses the value.
CREATE TABLE activity_personal (
    owner    uuid  NOT NULL,
    event_id uuid  NOT NULL,
    name     text  NOT NULL,
    salt     bytea NOT NULL,
    value    text  NOT NULL,
    PRIMARY KEY (owner, event_id, name)
);

-- One pass of the sealer over all owners. The hash covers the seals made in it.
CREATE TABLE activity_checkpoint (
    seq       bigint      PRIMARY KEY,
    prev      bytea       NOT NULL,
    hash      bytea       NOT NULL,
    at        timestamptz NOT NULL,
    key_id    text        NOT NULL,
    signature bytea       NOT NULL
);
COMMENT ON TABLE activity_checkpoint IS 'append-only: the signed chain over all seals';

-- One batch of an owner's events, chained to the one before it.
CREATE TABLE activity_seal (
    owner      uuid   NOT NULL,
    seq        bigint NOT NULL,
    prev       bytea  NOT NULL,
    hash       bytea  NOT NULL,
    checkpoint bigint NOT NULL REFERENCES activity_checkpoint (seq),
    key_id     text   NOT NULL,
    signature  bytea  NOT NULL,
    PRIMARY KEY (owner, seq)
);
CREATE INDEX activity_seal_checkpoint ON activity_seal (checkpoint, owner);
COMMENT ON TABLE activity_seal IS 'append-only: the signed chain of one owner';

-- Which event stands where in which seal.
CREATE TABLE activity_link (
    owner    uuid   NOT NULL,
    event_id uuid   NOT NULL,
    seq      bigint NOT NULL,
    position int    NOT NULL,
    hash     bytea  NOT NULL,
    PRIMARY KEY (owner, event_id),
    UNIQUE (owner, seq, position)
);
COMMENT ON TABLE activity_link IS 'append-only: events in their seals';

-- Grants say the same for the serving role; this also stops the owner's slips.
-- +goose StatementBegin
CREATE FUNCTION activity_is_for_ever() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is forbidden: activity is for ever', TG_OP, TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER for_ever BEFORE UPDATE OR DELETE OR TRUNCATE ON activity            FOR EACH STATEMENT EXECUTE FUNCTION activity_is_for_ever();
CREATE TRIGGER for_ever BEFORE UPDATE OR DELETE OR TRUNCATE ON activity_checkpoint FOR EACH STATEMENT EXECUTE FUNCTION activity_is_for_ever();
CREATE TRIGGER for_ever BEFORE UPDATE OR DELETE OR TRUNCATE ON activity_seal       FOR EACH STATEMENT EXECUTE FUNCTION activity_is_for_ever();
CREATE TRIGGER for_ever BEFORE UPDATE OR DELETE OR TRUNCATE ON activity_link       FOR EACH STATEMENT EXECUTE FUNCTION activity_is_for_ever();
CREATE TRIGGER for_ever BEFORE UPDATE ON activity_personal FOR EACH STATEMENT EXECUTE FUNCTION activity_is_for_ever();

-- +goose Down
DROP TABLE activity_link, activity_seal, activity_checkpoint, activity_personal, activity;
DROP FUNCTION activity_is_for_ever();
