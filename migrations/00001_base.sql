-- +goose Up
COMMENT ON SCHEMA public IS 'Switchboard. Tables belong to the domain package that their migration names; nobody else reads or writes them.';

-- +goose Down
COMMENT ON SCHEMA public IS 'standard public schema';
