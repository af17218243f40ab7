package todo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// Reply answers the open question of a todo. With QuestionID it answers that
// question or none.
type Reply struct {
	TodoID         uuid.UUID
	Text           string
	QuestionID     *uuid.UUID
	Payload        json.RawMessage
	IdempotencyKey string
}

// Answer answers a worker's question about a todo of the caller's line. A repeat with
// the same key, or of the last answer to the same question, returns the todo as it
// stands; the same key with other content, or another question, is a conflict.
func (s *Store) Answer(ctx context.Context, c endpoint.Caller, r Reply) (Changed, error) {
	limit := int64(homePayload)
	if c.Endpoint.Kind == endpoint.Peer {
		limit = c.Endpoint.Scope.Limits.MaxPayloadBytes
	}
	return s.answer(ctx, authorityOf(c), r, limit, func(k *locked) bool {
		return k.lineID == c.Endpoint.Line && c.May(scope.Answer, k.queue)
	})
}

// AnswerOwn answers a worker's question about any todo of the human's.
func (s *Store) AnswerOwn(ctx context.Context, owner uuid.UUID, r Reply) (Changed, error) {
	return s.answer(ctx, authority{owner: owner}, r, homePayload, func(*locked) bool { return true })
}

func (s *Store) answer(ctx context.Context, a authority, r Reply, limit int64, may func(*locked) bool) (Changed, error) {
	if r.Text == "" {
		return Changed{}, refusal.Invalid("text", "text must not be empty")
	}
	if err := long("text", r.Text, maxText); err != nil {
		return Changed{}, err
	}
	if err := short("idempotency_key", r.IdempotencyKey, maxKey); err != nil {
		return Changed{}, err
	}
	payload, err := document("payload", r.Payload, limit)
	if err != nil {
		return Changed{}, err
	}
	out := Changed{TodoID: r.TodoID}
	moves, err := s.change(ctx, a, r.TodoID, may, func(ctx context.Context, tx pgx.Tx, k *locked) ([]move, error) {
		out.State, out.Version = k.state, k.version
		repeated, err := answered(ctx, tx, a.owner, r, payload, k)
		if err != nil || repeated {
			return nil, err
		}
		if k.state != InputRequired || k.questionID == nil {
			return nil, refusal.New(refusal.Conflict, "no question of this todo is open")
		}
		if r.QuestionID != nil && *r.QuestionID != *k.questionID {
			return nil, refusal.New(refusal.Conflict, "question_id is not that of the open question")
		}
		m, err := writeAnswer(ctx, tx, a.owner, r, payload, *k.questionID)
		if err != nil {
			return nil, err
		}
		out.State, out.Version = m.state, m.version
		return []move{m}, nil
	})
	if err != nil {
		return Changed{}, err
	}
	s.announceMoves(moves)
	return out, nil
}

// answered reports whether this very answer was given before.
func answered(ctx context.Context, tx pgx.Tx, owner uuid.UUID, r Reply, payload *string, k *locked) (bool, error) {
	var id uuid.UUID
	var given string
	var givenPayload, key *string
	row := func(where string, args ...any) error {
		return tx.QueryRow(ctx, `
			SELECT e.id, e.answer, e.payload, e.answer_key FROM todo_exchange e
			WHERE e.owner = $1 AND e.todo = $2 AND e.answered_at IS NOT NULL AND `+where+` LIMIT 1`,
			append([]any{owner, r.TodoID}, args...)...).Scan(&id, &given, &givenPayload, &key)
	}
	var err error
	switch {
	case r.IdempotencyKey != "":
		err = row(`e.answer_key = $3`, r.IdempotencyKey)
	case r.QuestionID != nil:
		err = row(`e.id = $3`, *r.QuestionID)
	default:
		return false, nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for an earlier answer: %w", err)
	}
	same := given == r.Text && string(canonical(givenPayload)) == string(canonical(payload)) &&
		(r.QuestionID == nil || *r.QuestionID == id)
	switch {
	case same:
		return true, nil
	case r.IdempotencyKey != "":
		return false, refusal.New(refusal.Conflict, "this idempotency_key was used for another answer")
	default:
		return false, refusal.New(refusal.Conflict, "this question has been answered")
	}
}

func writeAnswer(ctx context.Context, tx pgx.Tx, owner uuid.UUID, r Reply, payload *string, question uuid.UUID) (move, error) {
	m := move{owner: owner, id: r.TodoID, state: Ready, claimable: true}
	_, err := tx.Exec(ctx, `
		UPDATE todo_exchange SET answer = $4, payload = $5, answered_at = clock_timestamp(), answer_key = $6
		WHERE owner = $1 AND todo = $2 AND id = $3`, owner, r.TodoID, question, r.Text, payload, optional(r.IdempotencyKey))
	if err != nil {
		return m, fmt.Errorf("write the answer: %w", err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM todo_timer WHERE owner = $1 AND todo = $2 AND what = 'question'`, owner, r.TodoID); err != nil {
		return m, fmt.Errorf("stop the question's time: %w", err)
	}
	err = tx.QueryRow(ctx, `
		UPDATE todo_live SET state = 'ready', version = version + 1, claimable = true, not_before = NULL,
			question_id = NULL, question = NULL, asked_at = NULL
		WHERE owner = $1 AND id = $2 AND state = 'input_required'
		RETURNING line, queue, version`, owner, r.TodoID).Scan(&m.line, &m.queue, &m.version)
	if err != nil {
		return m, fmt.Errorf("make todo %s ready: %w", r.TodoID, err)
	}
	return m, nil
}
