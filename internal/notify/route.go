package notify

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"switchboard/internal/human"
	"switchboard/internal/refusal"
)

// routeArgs is the job that finds out who a notification's recipient is and on
// which channels they want to hear of it.
type routeArgs struct {
	Owner        uuid.UUID `json:"owner"`
	Notification uuid.UUID `json:"notification"`
}

// Kind names the job to River.
func (routeArgs) Kind() string { return "notification_route" }

// InsertOpts are River's.
func (routeArgs) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: queue} }

type routeWorker struct {
	river.WorkerDefaults[routeArgs]
	s *Store
}

// Work writes one delivery for each channel, with its job, and ends its own job
// in the same transaction.
func (w *routeWorker) Work(ctx context.Context, job *river.Job[routeArgs]) error {
	s := w.s
	var n notification
	err := s.pool.QueryRow(ctx, `SELECT `+notificationColumns+` FROM notification n WHERE n.owner = $1 AND n.id = $2`,
		job.Args.Owner, job.Args.Notification).Scan(n.columns()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // erased
	}
	if err != nil {
		return fmt.Errorf("read the notification: %w", err)
	}
	h, ok, err := s.recipient(ctx, n)
	if err != nil || !ok {
		return err
	}
	channels, err := s.channels(ctx, n, h)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, c := range channels {
			if err := s.deliver(ctx, tx, n, h.ID, c); err != nil {
				return err
			}
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err != nil {
		return fmt.Errorf("write the deliveries: %w", err)
	}
	return nil
}

// recipient is the human who is to hear of it; ok is false when nobody here is.
func (s *Store) recipient(ctx context.Context, n notification) (h human.Human, ok bool, err error) {
	if n.Side == requester {
		h, err = s.o.Humans.ByIdentity(ctx, n.Identity)
	} else {
		h, err = s.o.Humans.Get(ctx, n.Owner)
	}
	if errors.Is(err, refusal.New(refusal.NotFound, "")) {
		return human.Human{}, false, nil
	}
	if err != nil {
		return human.Human{}, false, fmt.Errorf("find the recipient: %w", err)
	}
	return h, true, nil
}

// channel is a way to reach a human.
type channel string

const (
	email   channel = "email"
	digest  channel = "digest" // e-mail, gathered for a day
	webhook channel = "webhook"
)

// account is the channel whose fortunes c shares.
func (c channel) account() channel {
	if c == digest {
		return email
	}
	return c
}

// channels are those on which the human wants to hear of n.
func (s *Store) channels(ctx context.Context, n notification, h human.Human) ([]channel, error) {
	var out []channel
	if s.address(h, email) != "" {
		if h.Notifications.Digest == "daily" && n.Kind != kindTest {
			out = append(out, digest)
		} else {
			out = append(out, email)
		}
	}
	if hook := s.address(h, webhook); hook != "" && n.Kind != kindDisabled {
		disabled, err := s.disabled(ctx, h.ID, webhook, hook)
		if err != nil {
			return nil, err
		}
		// A test is how one finds out that it works again.
		if !disabled || n.Kind == kindTest {
			out = append(out, webhook)
		}
	}
	return out, nil
}

// address is where the human can be reached on a channel today; "" for nowhere.
func (s *Store) address(h human.Human, c channel) string {
	switch {
	case c == webhook:
		return h.Notifications.Webhook
	case s.mail == nil || !h.Notifications.Email:
		return ""
	}
	return h.Email // empty unless verified
}

// hashOf is by which a channel's row knows its address; webhooks' addresses are
// often secrets themselves.
func hashOf(address string) []byte {
	sum := sha256.Sum256([]byte(address))
	return sum[:]
}

// deliver writes one delivery and its job, once.
func (s *Store) deliver(ctx context.Context, tx pgx.Tx, n notification, to uuid.UUID, c channel) error {
	tag, err := tx.Exec(ctx, `
		INSERT INTO notification_delivery (human, notification, channel, owner) VALUES ($1, $2, $3, $4)
		ON CONFLICT DO NOTHING`, to, n.ID, c, n.Owner)
	if err != nil {
		return fmt.Errorf("write a delivery: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil
	}
	if c == digest {
		return s.scheduleDigest(ctx, tx, to)
	}
	opts := &river.InsertOpts{}
	if n.Kind == kindTest {
		opts.MaxAttempts = 1 // somebody is watching
	}
	if _, err := s.river.InsertTx(ctx, tx, deliverArgs{Human: to, Notification: n.ID, Channel: c}, opts); err != nil {
		return fmt.Errorf("write a delivery's job: %w", err)
	}
	return nil
}
