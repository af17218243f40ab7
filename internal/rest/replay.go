package rest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/refusal"
)

// Idempotency documents the header on the creating operations that replay
// serves.
type Idempotency struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"The same key with the same body answers as the first time, without its secret; with another body it is 409 conflict."`
}

// replayed are the creating POSTs whose answer is kept. POST /v1/todos has the
// queue's own deduplication, the twin has messageId.
var replayed = map[string]bool{"/v1/agents": true, "/v1/queues": true, "/v1/personas": true, "/v1/endpoints": true, "/v1/api-tokens": true}

// secretMembers are shown once and therefore never kept.
var secretMembers = []string{"credential", "token"}

// takeOver is after what time a key whose request never ended (its process
// died) may be used by the next request.
const takeOver = time.Minute

const maxBody = 1 << 20

// replay answers a repeated creating POST as the first time. The row that
// claims the key is committed before the work, so two requests with one key
// never both create.
func (a *api) replay(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if key == "" || r.Method != http.MethodPost || !replayed[r.URL.Path] {
			next.ServeHTTP(w, r)
			return
		}
		who, err := allow(r.Context(), writing)
		if err != nil { // the operation itself says what is wrong
			next.ServeHTTP(w, r)
			return
		}
		if len(key) > 255 {
			writeProblem(w, r, refusal.Invalid("Idempotency-Key", "the header Idempotency-Key has at most 255 characters"))
			return
		}
		content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			writeProblem(w, r, refusal.New(refusal.PayloadTooLarge, "the body is too large"))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(content))
		digest := sha256.Sum256(content)
		hash := sha256.Sum256([]byte(r.URL.Path + "\x00" + key))
		kept, err := a.begin(r.Context(), who.ID, hash[:], digest[:])
		switch {
		case err != nil:
			writeProblem(w, r, err)
			return
		case kept != nil:
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Idempotency-Replayed", "true")
			if kept.etag != "" {
				w.Header().Set("ETag", kept.etag)
			}
			w.WriteHeader(kept.status)
			_, _ = w.Write(kept.body)
			return
		}
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(rec, r)
		// The answer is on its way: what is kept of it must not depend on the caller's patience.
		a.finish(context.WithoutCancel(r.Context()), who.ID, hash[:], rec)
	})
}

type keptAnswer struct {
	status int
	body   []byte
	etag   string
}

// begin claims the key. It answers the kept answer of an earlier request with
// the same body, or refusal.Conflict.
func (a *api) begin(ctx context.Context, owner uuid.UUID, key, digest []byte) (*keptAnswer, error) {
	for {
		var mine bool
		err := a.Pool.QueryRow(ctx, `
			INSERT INTO rest_replay (owner, key, digest) VALUES ($1, $2, $3)
			ON CONFLICT (owner, key) DO UPDATE SET digest = excluded.digest, begun_at = clock_timestamp()
				WHERE rest_replay.status IS NULL AND rest_replay.begun_at < clock_timestamp() - $4::interval
			RETURNING true`, owner, key, digest, takeOver).Scan(&mine)
		if err == nil {
			return nil, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
		var had []byte
		var status *int
		var kept keptAnswer
		err = a.Pool.QueryRow(ctx, `
			SELECT digest, status, body, coalesce(etag, '') FROM rest_replay WHERE owner = $1 AND key = $2`, owner, key).
			Scan(&had, &status, &kept.body, &kept.etag)
		switch {
		case errors.Is(err, pgx.ErrNoRows): // ended without an answer in between
			continue
		case err != nil:
			return nil, err
		case !bytes.Equal(had, digest):
			return nil, refusal.New(refusal.Conflict, "this Idempotency-Key was used with another body")
		case status == nil:
			return nil, refusal.New(refusal.Conflict, "a request with this Idempotency-Key is still under way").After(time.Second)
		}
		kept.status = *status
		return &kept, nil
	}
}

// finish keeps a success without its secrets and forgets a failure, so that a
// corrected request may use the key again.
func (a *api) finish(ctx context.Context, owner uuid.UUID, key []byte, rec *recorder) {
	var err error
	var answer map[string]any
	if rec.status < 300 && json.Unmarshal(rec.content.Bytes(), &answer) == nil {
		for _, m := range secretMembers {
			delete(answer, m)
		}
		kept, _ := json.Marshal(answer)
		_, err = a.Pool.Exec(ctx, `UPDATE rest_replay SET status = $3, body = $4, etag = $5 WHERE owner = $1 AND key = $2`,
			owner, key, rec.status, kept, rec.Header().Get("ETag"))
	} else {
		_, err = a.Pool.Exec(ctx, `DELETE FROM rest_replay WHERE owner = $1 AND key = $2 AND status IS NULL`, owner, key)
	}
	if err != nil {
		a.Log.ErrorContext(ctx, "keep the answer to an Idempotency-Key", "error", err)
	}
}

// ForgetReplays drops answers older than 30 days; the server calls it now and
// then on any replica.
func ForgetReplays(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `DELETE FROM rest_replay WHERE begun_at < clock_timestamp() - interval '30 days'`)
	return err
}

type recorder struct {
	http.ResponseWriter
	status  int
	content bytes.Buffer
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.content.Write(b)
	return r.ResponseWriter.Write(b)
}
