package notify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/human"
)

// A webhook is disabled when it has failed this often in a row and for this
// long: a short outage during which much happens is no reason.
const (
	disableAfterFailures = 8
	disableAfter         = "24 hours"
)

// succeeded forgets the failures of a channel, and that it was disabled.
func succeeded(ctx context.Context, tx pgx.Tx, to uuid.UUID, c channel) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO notification_channel AS c (human, channel, last_success) VALUES ($1, $2, clock_timestamp())
		ON CONFLICT (human, channel) DO UPDATE
		SET last_success = excluded.last_success, failures = 0, failing_since = NULL, last_error = '', disabled_at = NULL`, to, c)
	return err
}

// failed writes down why a channel did not take a message. A webhook that has
// failed for long enough, or asked to be left alone, is disabled, and the human
// is told by e-mail and in the activity. A test counts for nothing but the note.
func (s *Store) failed(ctx context.Context, to uuid.UUID, c channel, address string, no *refused, test, last bool, ids ...uuid.UUID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	counted := 1
	if test {
		counted = 0
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if last {
			if _, err := tx.Exec(ctx, `
				UPDATE notification_delivery SET outcome = 'failed', ended_at = clock_timestamp()
				WHERE human = $1 AND channel = $2 AND notification = ANY ($3) AND outcome = 'waiting'`, to, c, ids); err != nil {
				return err
			}
		}
		var disabled bool
		// Failures are those of one address: another one starts afresh.
		err := tx.QueryRow(ctx, `
			INSERT INTO notification_channel AS c (human, channel, address, failures, failing_since, last_failure, last_error)
			VALUES ($1, $2, $3, $4, CASE WHEN $4 > 0 THEN clock_timestamp() END, clock_timestamp(), $5)
			ON CONFLICT (human, channel) DO UPDATE
			SET failures      = $4 + CASE WHEN c.address = excluded.address THEN c.failures ELSE 0 END,
			    failing_since = CASE WHEN c.address = excluded.address THEN coalesce(c.failing_since, excluded.failing_since) ELSE excluded.failing_since END,
			    disabled_at   = CASE WHEN c.address = excluded.address THEN c.disabled_at END,
			    address = excluded.address, last_failure = excluded.last_failure, last_error = excluded.last_error
			RETURNING c.channel = 'webhook' AND c.disabled_at IS NULL
			      AND (c.failures >= $6 AND c.failing_since <= clock_timestamp() - $7::interval OR $8)`,
			to, c.account(), hashOf(address), counted, no.why, disableAfterFailures, disableAfter, no.gone).Scan(&disabled)
		if err != nil || !disabled {
			return err
		}
		return s.disable(ctx, tx, to)
	})
	if err != nil {
		return fmt.Errorf("write down the failure: %w", err)
	}
	if last {
		s.metrics.count(c, "failed", max(len(ids), 1))
	} else {
		s.metrics.count(c, "retried", 1)
	}
	return nil
}

func (s *Store) disable(ctx context.Context, tx pgx.Tx, to uuid.UUID) error {
	if _, err := tx.Exec(ctx, `
		UPDATE notification_channel SET disabled_at = clock_timestamp() WHERE human = $1 AND channel = 'webhook'`, to); err != nil {
		return err
	}
	if err := s.o.Record(ctx, tx, activity.Event{Owner: to, Kind: "webhook.disabled", Actor: "system", Object: "human", ObjectID: to}); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	return s.put(ctx, tx, notification{Owner: to, ID: id, Kind: kindDisabled, Side: owner})
}

// disabled reports whether the channel is, at this address.
func (s *Store) disabled(ctx context.Context, to uuid.UUID, c channel, address string) (bool, error) {
	var yes bool
	err := s.pool.QueryRow(ctx, `
		SELECT disabled_at IS NOT NULL FROM notification_channel WHERE human = $1 AND channel = $2 AND address = $3`,
		to, c, hashOf(address)).Scan(&yes)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, fmt.Errorf("read the channel: %w", err)
	}
	return yes, nil
}

// Status is how a human's channel fares, for the settings page. A zero time
// means never.
type Status struct {
	Channel     string // email, webhook
	On          bool   // something is sent there
	Why         string // when not on: the reason, and what to do
	LastSuccess time.Time
	LastFailure time.Time
	LastError   string    // of the last failure, when nothing has succeeded since
	Failures    int       // in a row
	DisabledAt  time.Time // when set, nothing is sent until a test succeeds or the URL changes
	HasSecret   bool      // webhook: a signing secret exists
}

// Status tells how the human's two channels fare, e-mail first.
func (s *Store) Status(ctx context.Context, id uuid.UUID) ([]Status, error) {
	h, err := s.o.Humans.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	out := make([]Status, 0, 2)
	for _, c := range []channel{email, webhook} {
		status, err := s.status(ctx, h, c)
		if err != nil {
			return nil, fmt.Errorf("read the channel %s: %w", c, err)
		}
		out = append(out, status)
	}
	return out, nil
}

func (s *Store) status(ctx context.Context, h human.Human, c channel) (Status, error) {
	address := s.address(h, c)
	status := Status{Channel: string(c), On: address != "", Why: s.whyNot(h, c)}
	var success, failure, disabled *time.Time
	var same bool
	err := s.pool.QueryRow(ctx, `
		SELECT last_success, last_failure, last_error, failures, disabled_at, secret IS NOT NULL, coalesce(address = $3, false)
		FROM notification_channel WHERE human = $1 AND channel = $2`, h.ID, c, hashOf(address)).
		Scan(&success, &failure, &status.LastError, &status.Failures, &disabled, &status.HasSecret, &same)
	if errors.Is(err, pgx.ErrNoRows) {
		return status, nil
	}
	if err != nil {
		return Status{}, err
	}
	for _, at := range []struct {
		to   *time.Time
		from *time.Time
	}{{&status.LastSuccess, success}, {&status.LastFailure, failure}, {&status.DisabledAt, disabled}} {
		if at.from != nil {
			*at.to = at.from.UTC()
		}
	}
	if !same { // the failures were another address's
		status.LastError, status.Failures, status.DisabledAt = "", 0, time.Time{}
	}
	if !status.DisabledAt.IsZero() {
		status.On = false
		status.Why = "the webhook kept failing and is switched off; mend it and send a test to switch it on again"
	}
	return status, nil
}

// whyNot says why nothing can be sent on a channel and what to do about it; ""
// when it can.
func (s *Store) whyNot(h human.Human, c channel) string {
	switch {
	case s.address(h, c) != "":
		return ""
	case c == webhook:
		return "no webhook is set"
	case s.mail == nil:
		return "this instance sends no e-mail; its operator would have to set smtp_url"
	case h.Email == "":
		return "your provider has not vouched for an e-mail address of yours"
	}
	return "e-mail is turned off"
}
