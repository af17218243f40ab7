package todo

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Asked is a question that a worker has asked and that nobody has answered.
type Asked struct {
	Owner, Todo, Question uuid.UUID
	GrantID               *uuid.UUID // of the friend whose todo it is; nil for the human's own
	AskedAt               time.Time
}

// AskedSince lists open questions of all humans asked after the moment, oldest
// first, limit at most. An open question is a row with the time at which waiting
// for it ends, so the newest are found by the timers' index however many wait. A
// question asked a moment ago may be committed later than a newer one: whoever
// goes on from the last one leaves some overlap.
func (s *Store) AskedSince(ctx context.Context, moment time.Time, limit int) ([]Asked, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT l.owner, l.id, l.question_id, t.grant_id, l.asked_at
		FROM (
			SELECT m.owner, m.todo, m.at FROM todo_timer m
			WHERE m.what = 'question' AND m.at > $1::timestamptz + `+answerTime+` ORDER BY m.at LIMIT $2
		) m
		JOIN todo_live l ON l.owner = m.owner AND l.id = m.todo AND l.state = 'input_required' AND l.question_id IS NOT NULL
		JOIN todo t ON t.owner = m.owner AND t.id = m.todo
		ORDER BY m.at`, moment, limit)
	if err != nil {
		return nil, unavailable(fmt.Errorf("look for open questions: %w", err))
	}
	asked, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Asked, err error) {
		err = row.Scan(&a.Owner, &a.Todo, &a.Question, &a.GrantID, &a.AskedAt)
		return a, err
	})
	if err != nil {
		return nil, unavailable(fmt.Errorf("look for open questions: %w", err))
	}
	return asked, nil
}
