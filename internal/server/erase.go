package server

import (
	"context"
	"encoding/hex"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/notify"
	"switchboard/internal/persona"
	"switchboard/internal/rest"
	"switchboard/internal/todo"
)

// erasers are what removes an account, in the order that keeps it whole: personas
// first, so that no request comes in any more; notifications before friends, who
// write those that tell others; endpoints before the todos that they could write;
// and the record's personal data last, with that of the erasure itself.
func erasers(personas *persona.Store, notices *notify.Store, friends *friend.Store, endpoints *endpoint.Store, todos *todo.Store) []human.Eraser {
	only := func(erase func(context.Context, pgx.Tx, uuid.UUID) error) human.Eraser {
		return func(ctx context.Context, tx pgx.Tx, h human.Human) (func(), error) { return nil, erase(ctx, tx, h.ID) }
	}
	return []human.Eraser{
		only(personas.Erase),
		only(notices.Erase),
		func(ctx context.Context, tx pgx.Tx, h human.Human) (func(), error) {
			return friends.Erase(ctx, tx, h.ID, h.Identity)
		},
		func(ctx context.Context, tx pgx.Tx, h human.Human) (func(), error) {
			return endpoints.Erase(ctx, tx, h.ID, h.Identity)
		},
		func(ctx context.Context, tx pgx.Tx, h human.Human) (func(), error) {
			return func() { todos.Woken(h.ID) }, todos.Erase(ctx, tx, h.ID)
		},
		only(rest.Erase),
		func(ctx context.Context, tx pgx.Tx, h human.Human) (func(), error) {
			return nil, activity.Erase(ctx, tx, h.ID, "human:"+h.ID.String(), "identity:"+hex.EncodeToString(h.Identity))
		},
	}
}
