package todo

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// script is the statements of one transaction, in order.
type script struct {
	statements []*statement
}

// statement is one of them, with what reads its rows.
type statement struct {
	sql  string
	args []any
	read func(pgx.Rows) error
}

// add appends a statement.
func (s *script) add(sql string, args ...any) *statement {
	st := &statement{sql: sql, args: args}
	s.statements = append(s.statements, st)
	return st
}

// rows says what reads the statement's rows.
func (st *statement) rows(read func(pgx.Rows) error) { st.read = read }

// raw is an id as pgx encodes it without asking the type for its text first.
type raw = [16]byte

// into is where pgx reads an id without parsing its text.
func into(id *uuid.UUID) *raw { return (*raw)(id) }

// sender is a connection or a transaction.
type sender interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// run sends the statements to the server at once and reads what they return. On a
// connection they are one transaction, and run returns nil after its commit. A single
// statement is spared the machinery of a pipeline.
func (s *script) run(ctx context.Context, to sender) error {
	if len(s.statements) == 1 {
		st := s.statements[0]
		rows, err := to.Query(ctx, st.sql, st.args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		if st.read != nil {
			if err := st.read(rows); err != nil {
				return err
			}
		}
		rows.Close()
		return rows.Err()
	}
	b := &pgx.Batch{}
	for _, st := range s.statements {
		q := b.Queue(st.sql, st.args...)
		if st.read != nil {
			q.Query(st.read)
		}
	}
	return to.SendBatch(ctx, b).Close()
}
