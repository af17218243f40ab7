-- +goose Up
-- Package notify: a notification may be about a question that a worker asks on a todo.
ALTER TABLE notification ADD COLUMN todo_id uuid, ADD COLUMN question_id uuid;

-- +goose Down
ALTER TABLE notification DROP COLUMN todo_id, DROP COLUMN question_id;
