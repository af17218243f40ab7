package notify

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"switchboard/internal/activity"
	"switchboard/internal/provenance"
)

// body is what a webhook receives, in the form that the Standard Webhooks
// specification recommends (https://www.standardwebhooks.com).
type body struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the event
	Data      hookData  `json:"data"`
}

// post takes a message to a human's webhook. The id of the notification is the
// id of the webhook, whichever attempt it is, so that a receiver can tell a
// repeat.
func (s *Store) post(ctx context.Context, to uuid.UUID, address string, m message) error {
	payload, err := json.Marshal(body{Type: m.Kind, Timestamp: m.At, Data: m.Data})
	if err != nil {
		return fmt.Errorf("write the webhook's body: %w", err)
	}
	secrets, now, err := s.secrets(ctx, to)
	if err != nil {
		return err
	}
	signatures := ""
	for i, secret := range secrets {
		w, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return errors.New("the webhook's secret cannot be used")
		}
		signature, err := w.Sign(m.ID.String(), now, payload)
		if err != nil {
			return errors.New("the webhook's body cannot be signed")
		}
		if i > 0 {
			signatures += " "
		}
		signatures += signature
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(payload))
	if err != nil {
		return &refused{why: "the webhook's URL cannot be used", final: true} // err would repeat the URL
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Switchboard")
	request.Header.Set(standardwebhooks.HeaderWebhookID, m.ID.String())
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, signatures)
	answer, err := s.hooks.Do(request)
	if err != nil {
		return unreachable(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body) // bounded by the client; lets the connection be used again
	_ = answer.Body.Close()
	switch {
	case answer.StatusCode >= 200 && answer.StatusCode < 300:
		return nil
	case answer.StatusCode == http.StatusGone:
		return &refused{why: "the webhook answered 410: it asks to be left alone", final: true, gone: true}
	}
	return &refused{why: fmt.Sprintf("the webhook answered %d", answer.StatusCode)}
}

// unreachable puts a failure into words without the URL, which often is a secret
// itself, and without what the name resolved to.
func unreachable(err error) *refused {
	var certificate *tls.CertificateVerificationError
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, provenance.ErrAddress):
		return &refused{why: "the webhook's address is not a public one"}
	case errors.Is(err, provenance.ErrScheme):
		return &refused{why: "the webhook's URL is not https"}
	case errors.Is(err, provenance.ErrRedirect):
		return &refused{why: "the webhook answered with a redirect, which is not followed"}
	case errors.As(err, &certificate):
		return &refused{why: "the webhook's certificate is not trusted"}
	case errors.As(err, &dns):
		return &refused{why: "the webhook's name does not resolve"}
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return &refused{why: "the webhook did not answer within 5 seconds"}
	}
	return &refused{why: "the webhook cannot be reached"}
}

// secretOverlap is how long the secret before still signs beside the new one.
const secretOverlap = "24 hours"

// newSecret makes a signing secret as the specification writes it.
func newSecret() string {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails, see its documentation
	return "whsec_" + base64.StdEncoding.EncodeToString(random)
}

func secretContext(to uuid.UUID) string { return "webhook secret:" + to.String() }

// RotateSecret makes a new signing secret for the human's webhook and returns
// it, the only time that it is shown. The one before goes on signing beside it
// for a day.
func (s *Store) RotateSecret(ctx context.Context, to uuid.UUID) (string, error) {
	secret := newSecret()
	sealed, err := s.o.Sealer.Seal([]byte(secret), secretContext(to))
	if err != nil {
		return "", fmt.Errorf("seal the webhook's secret: %w", err)
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `
			INSERT INTO notification_channel AS c (human, channel, secret) VALUES ($1, 'webhook', $2)
			ON CONFLICT (human, channel) DO UPDATE
			SET secret = excluded.secret, secret_before = c.secret, secret_before_until = clock_timestamp() + $3::interval`,
			to, sealed, secretOverlap); err != nil {
			return err
		}
		return s.o.Record(ctx, tx, activity.Event{
			Owner: to, Kind: "webhook.secret_made", Actor: "human:" + to.String(), Object: "human", ObjectID: to,
		})
	})
	if err != nil {
		return "", fmt.Errorf("store the webhook's secret: %w", err)
	}
	return secret, nil
}

// secrets are those that sign now, the newest first, and the time. A human who
// has not asked for one yet gets one that nobody has seen, so that nothing ever
// goes out unsigned.
func (s *Store) secrets(ctx context.Context, to uuid.UUID) ([]string, time.Time, error) {
	fresh, err := s.o.Sealer.Seal([]byte(newSecret()), secretContext(to))
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("seal the webhook's secret: %w", err)
	}
	var current, before []byte
	var now time.Time
	err = s.pool.QueryRow(ctx, `
		INSERT INTO notification_channel AS c (human, channel, secret) VALUES ($1, 'webhook', $2)
		ON CONFLICT (human, channel) DO UPDATE SET secret = coalesce(c.secret, excluded.secret)
		RETURNING secret, CASE WHEN secret_before_until > clock_timestamp() THEN secret_before END, clock_timestamp()`,
		to, fresh).Scan(&current, &before, &now)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read the webhook's secret: %w", err)
	}
	var out []string
	for _, sealed := range [][]byte{current, before} {
		if sealed == nil {
			continue
		}
		secret, err := s.o.Sealer.Open(sealed, secretContext(to))
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("open the webhook's secret: %w", err)
		}
		out = append(out, string(secret))
	}
	return out, now, nil
}
