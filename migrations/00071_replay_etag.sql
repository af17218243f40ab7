-- +goose Up
-- A repeated request is answered with the entity tag of the first answer. Rows
-- of a program that does not know the column have none.
ALTER TABLE rest_replay ADD COLUMN etag text;

-- +goose Down
ALTER TABLE rest_replay DROP COLUMN etag;
