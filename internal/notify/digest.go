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
	"github.com/riverqueue/river/rivertype"

	"switchboard/internal/refusal"
)

// digestHour is the hour of the day, in UTC, at which digests go out.
const digestHour = 7

// digestMost is how many parts a digest spells out.
const digestMost = 50

// digestArgs is the job that sends what a human's day has gathered.
type digestArgs struct {
	Human uuid.UUID `json:"human"`
	Day   string    `json:"day"` // on which it goes out
}

// Kind names the job to River.
func (digestArgs) Kind() string { return "notification_digest" }

// InsertOpts are River's: one job a human and day.
func (digestArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: queue, MaxAttempts: len(retries) + 1, UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

// scheduleDigest makes sure that the human's next digest goes out.
func (s *Store) scheduleDigest(ctx context.Context, tx pgx.Tx, to uuid.UUID) error {
	var at time.Time
	if err := tx.QueryRow(ctx, `
		SELECT d + make_interval(days => (d <= clock_timestamp())::int)
		FROM (SELECT date_trunc('day', clock_timestamp(), 'UTC') + make_interval(hours => $1) AS d) AS today`, digestHour).Scan(&at); err != nil {
		return fmt.Errorf("find the next digest's time: %w", err)
	}
	at = at.UTC()
	for range 2 {
		r, err := s.river.InsertTx(ctx, tx, digestArgs{Human: to, Day: at.Format(time.DateOnly)}, &river.InsertOpts{ScheduledAt: at})
		if err != nil {
			return fmt.Errorf("write the digest's job: %w", err)
		}
		if !r.UniqueSkippedAsDuplicate || !under(r.Job.State) {
			return nil
		}
		// That day's digest has begun already, this moment; the next one has it.
		at = at.AddDate(0, 0, 1)
	}
	return nil
}

// under reports whether a job is being done or has been.
func under(state rivertype.JobState) bool {
	switch state {
	case rivertype.JobStateScheduled, rivertype.JobStateAvailable, rivertype.JobStateRetryable, rivertype.JobStatePending:
		return false
	}
	return true
}

type digestWorker struct {
	river.WorkerDefaults[digestArgs]
	s *Store
}

// NextRetry is that of single messages.
func (w *digestWorker) NextRetry(job *river.Job[digestArgs]) time.Time {
	return time.Now().Add(w.s.o.Retry(job.Attempt)) // River's own clock decides over its jobs
}

// Work sends one e-mail with all that waits and is still worth saying.
func (w *digestWorker) Work(ctx context.Context, job *river.Job[digestArgs]) error {
	s, to := w.s, job.Args.Human
	waiting, ids, err := s.gathered(ctx, to)
	if err != nil || len(ids) == 0 {
		return err
	}
	done := func(outcome string) error {
		return s.settle(ctx, to, digest, ids, outcome, func(ctx context.Context, tx pgx.Tx) error {
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
			return err
		})
	}
	h, err := s.o.Humans.Get(ctx, to)
	if errors.Is(err, refusal.New(refusal.NotFound, "")) {
		return done("dropped")
	}
	if err != nil {
		return fmt.Errorf("find the recipient: %w", err)
	}
	address := s.address(h, digest)
	if address == "" {
		return done("dropped")
	}
	var parts []message
	for _, n := range waiting {
		m, ok, err := s.compose(ctx, n, h)
		if err != nil {
			return err
		}
		if ok {
			parts = append(parts, m)
		}
	}
	if len(parts) == 0 {
		return done("dropped")
	}
	err = s.mail.send(ctx, s.digest(job.Args, address, parts))
	var no *refused
	switch {
	case err == nil:
		return done("sent")
	case !errors.As(err, &no):
		return err
	}
	// What could not be sent waits for the next digest, unless it never can be.
	if err := s.failed(ctx, to, digest, address, no, false, no.final, ids...); err != nil {
		return err
	}
	if no.final {
		return river.JobCancel(no)
	}
	return no
}

// gathered is what waits for the human's digest, oldest first.
func (s *Store) gathered(ctx context.Context, to uuid.UUID) ([]notification, []uuid.UUID, error) {
	rows, _ := s.pool.Query(ctx, `
		SELECT `+notificationColumns+`
		FROM notification_delivery d JOIN notification n ON n.owner = d.owner AND n.id = d.notification
		WHERE d.human = $1 AND d.channel = 'digest' AND d.outcome = 'waiting'
		ORDER BY d.created_at, n.id LIMIT 500`, to) // ForEachRow has the error
	var out []notification
	var ids []uuid.UUID
	var n notification
	_, err := pgx.ForEachRow(rows, n.columns(), func() error {
		out, ids = append(out, n), append(ids, n.ID)
		n.Identity, n.RequestID, n.GrantID, n.ExpiresAt, n.TodoID, n.QuestionID = nil, nil, nil, nil, nil, nil // the next row's are its own
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read what waits for the digest: %w", err)
	}
	return out, ids, nil
}

// digest puts several messages into one e-mail, whose Message-ID is that of the
// human's day.
func (s *Store) digest(a digestArgs, to string, parts []message) envelope {
	heading := fmt.Sprintf("%d notifications from Switchboard", len(parts))
	if len(parts) == 1 {
		heading = "1 notification from Switchboard"
	}
	l := letter{Heading: heading + ", gathered for " + a.Day + ".", Parts: parts}
	if len(parts) > digestMost {
		l.Parts, l.More = parts[:digestMost], len(parts)-digestMost
	}
	return s.write(a.Human, envelope{To: to, ID: s.messageID(named("digest", a.Human, a.Day)), At: parts[len(parts)-1].At, Subject: heading}, l)
}
