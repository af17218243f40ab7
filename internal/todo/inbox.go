package todo

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
)

// InboxItem is something that waits for the human.
type InboxItem struct {
	ID              uuid.UUID // the todo
	Kind            string    // friend_request, todo, question
	FriendRequestID *uuid.UUID
	Queue           string
	Title           string
	Question        *Question
	CreatedAt       time.Time
}

// Inbox lists what waits for the human: open consent todos first, then the other
// todos in inbox and the questions of workers about todos of the human's own lines,
// newest first.
func (s *Store) Inbox(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]InboxItem, string, error) {
	limit, err := pageSize(limit)
	if err != nil {
		return nil, "", err
	}
	bind := postgres.BindCursor("inbox", owner.String())
	rank, before := 0, uuid.Max
	if cursor != "" {
		key, err := postgres.DecodeCursor(bind, cursor, 2)
		if err != nil {
			return nil, "", err
		}
		rank, err = strconv.Atoi(key[0])
		if err == nil {
			before, err = uuid.Parse(key[1])
		}
		if err != nil {
			return nil, "", refusal.Invalid("cursor", "cursor is not one that this list returned").Because(err)
		}
	}
	rows, err := s.pool.Query(ctx, `
		SELECT i.place, t.id, i.kind, t.subject, t.queue, t.title, i.question_id, i.question, i.asked_at, t.created_at
		FROM (
			SELECT 0 AS place, 'friend_request' AS kind, l.*
			FROM todo_consent c JOIN todo_live l ON l.owner = c.owner AND l.id = c.todo WHERE c.owner = $1
			UNION ALL
			SELECT 1, 'todo', l.* FROM todo_live l WHERE l.owner = $1 AND l.queue = 'inbox' AND l.claimable
			UNION ALL
			SELECT 1, 'question', l.*
			FROM todo_timer m JOIN todo_live l ON l.owner = m.owner AND l.id = m.todo AND l.state = 'input_required'
			WHERE m.owner = $1 AND m.what = 'question'
		) i JOIN todo t ON t.owner = i.owner AND t.id = i.id
		WHERE t.grant_id IS NULL AND (i.place > $2 OR i.place = $2 AND i.id < $3)
		ORDER BY i.place, i.id DESC LIMIT $4`, owner, rank, before, limit+1)
	if err != nil {
		return nil, "", unavailable(fmt.Errorf("list inbox: %w", err))
	}
	var ranks []int
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (InboxItem, error) {
		var i InboxItem
		var rank int
		var asking *uuid.UUID
		var question *string
		var asked *time.Time
		err := row.Scan(&rank, &i.ID, &i.Kind, &i.FriendRequestID, &i.Queue, &i.Title, &asking, &question, &asked, &i.CreatedAt)
		if err == nil && asking != nil && asked != nil {
			i.Question = &Question{ID: *asking, Text: text(question), AskedAt: *asked}
		}
		ranks = append(ranks, rank)
		return i, err
	})
	if err != nil {
		return nil, "", unavailable(fmt.Errorf("list inbox: %w", err))
	}
	next := ""
	if len(items) > limit {
		items = items[:limit]
		next = postgres.EncodeCursor(bind, strconv.Itoa(ranks[limit-1]), items[limit-1].ID.String())
	}
	return items, next, nil
}
