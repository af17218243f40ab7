package notify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"switchboard/internal/human"
	"switchboard/internal/refusal"
)

// deliverArgs is the job that takes one notification to one human over one
// channel.
type deliverArgs struct {
	Human        uuid.UUID `json:"human"`
	Notification uuid.UUID `json:"notification"`
	Channel      channel   `json:"channel"`
}

// Kind names the job to River.
func (deliverArgs) Kind() string { return "notification_deliver" }

// InsertOpts are River's.
func (deliverArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: queue, MaxAttempts: len(retries) + 1}
}

type deliverWorker struct {
	river.WorkerDefaults[deliverArgs]
	s *Store
}

// NextRetry grows, so that a receiver that is down for a night misses nothing.
func (w *deliverWorker) NextRetry(job *river.Job[deliverArgs]) time.Time {
	return time.Now().Add(w.s.o.Retry(job.Attempt)) // River's own clock decides over its jobs
}

// refused is why a channel did not take a message, in words that hold no
// address, no secret and nothing that the other side said.
type refused struct {
	why   string
	final bool // it will not be taken later either
	gone  bool // the receiver asks never to be called again
}

func (r *refused) Error() string { return r.why }

// Work sends, and then writes down that it has been sent, together with the end
// of the job. A crash between the two sends again, under the same id.
func (w *deliverWorker) Work(ctx context.Context, job *river.Job[deliverArgs]) error {
	s, a := w.s, job.Args
	n, outcome, err := s.delivery(ctx, a)
	if err != nil {
		return err
	}
	if outcome != "waiting" {
		return nil
	}
	done := func(outcome string) error {
		return s.settle(ctx, a.Human, a.Channel, []uuid.UUID{n.ID}, outcome, func(ctx context.Context, tx pgx.Tx) error {
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
			return err
		})
	}
	h, err := s.o.Humans.Get(ctx, a.Human)
	if errors.Is(err, refusal.New(refusal.NotFound, "")) {
		return done("dropped")
	}
	if err != nil {
		return fmt.Errorf("find the recipient: %w", err)
	}
	address := s.address(h, a.Channel)
	if address == "" {
		return done("dropped") // turned off meanwhile
	}
	m, ok, err := s.compose(ctx, n, h)
	if err != nil {
		return err
	}
	if !ok {
		return done("dropped") // no longer true
	}
	err = s.send(ctx, h, a.Channel, address, m)
	var no *refused
	switch {
	case err == nil:
		return done("sent")
	case !errors.As(err, &no):
		return err
	}
	last := no.final || job.Attempt >= job.MaxAttempts
	if err := s.failed(ctx, h.ID, a.Channel, address, no, n.Kind == kindTest, last, n.ID); err != nil {
		return err
	}
	if no.final {
		return river.JobCancel(no)
	}
	return no
}

// delivery reads the notification and how its delivery stands.
func (s *Store) delivery(ctx context.Context, a deliverArgs) (n notification, outcome string, err error) {
	err = s.pool.QueryRow(ctx, `
		SELECT d.outcome, `+notificationColumns+`
		FROM notification_delivery d JOIN notification n ON n.owner = d.owner AND n.id = d.notification
		WHERE d.human = $1 AND d.notification = $2 AND d.channel = $3`,
		a.Human, a.Notification, a.Channel).Scan(append([]any{&outcome}, n.columns()...)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return n, "dropped", nil // erased
	}
	if err != nil {
		return n, "", fmt.Errorf("read the delivery: %w", err)
	}
	return n, outcome, nil
}

// send takes a message to a channel; a *refused when the channel did not take
// it.
func (s *Store) send(ctx context.Context, h human.Human, c channel, address string, m message) error {
	if c.account() == email {
		return s.mail.send(ctx, s.envelope(m, h.ID, address))
	}
	return s.post(ctx, h.ID, address, m)
}

// settleTimeout bounds writing down an outcome, for which the end of the process
// waits.
const settleTimeout = 5 * time.Second

// settle ends deliveries, and with them whatever also does.
func (s *Store) settle(ctx context.Context, to uuid.UUID, c channel, ids []uuid.UUID, outcome string, also func(context.Context, pgx.Tx) error) error {
	// What has been sent is written down even when the process is ending.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `
			UPDATE notification_delivery SET outcome = $4, ended_at = clock_timestamp()
			WHERE human = $1 AND channel = $2 AND notification = ANY ($3) AND outcome = 'waiting'`, to, c, ids, outcome); err != nil {
			return err
		}
		if outcome == "sent" {
			if err := succeeded(ctx, tx, to, c.account()); err != nil {
				return err
			}
		}
		return also(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("write down the outcome: %w", err)
	}
	s.metrics.count(c, outcome, len(ids))
	return nil
}
