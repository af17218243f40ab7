-- +goose Up
-- Keys that sign agent cards. The private half is sealed under the operator's
-- key; a retired key stays in jwks.json for its overlap, so that cached cards
-- still verify.
CREATE TABLE card_key (
    kid        text PRIMARY KEY, -- RFC 7638 thumbprint
    public     jsonb NOT NULL,
    sealed     bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    retired_at timestamptz
);

-- +goose Down
DROP TABLE card_key;
