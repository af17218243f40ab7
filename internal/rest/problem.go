package rest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"switchboard/internal/refusal"
)

// Problem is an RFC 9457 problem detail with our two members.
type Problem struct { //nolint:errname // RFC 9457 calls it a problem
	Type      string `json:"type" example:"about:blank" doc:"Always about:blank; switch on code."`
	Title     string `json:"title" example:"Conflict"`
	Status    int    `json:"status" example:"409"`
	Detail    string `json:"detail" example:"a queue of that name exists"`
	Code      string `json:"code" example:"conflict" doc:"A stable code."`
	Field     string `json:"field,omitempty" example:"name" doc:"The member that is wrong, where there is one."`
	RequestID string `json:"request_id" example:"0197a3c2-7d7e-7cc3-98c4-dc0c0c07398f" doc:"Names this answer in our log."`
	retry     int
}

// Error gives the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus gives the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType makes it application/problem+json.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders adds Retry-After where the caller should wait.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retry))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	h.Set("Cache-Control", "no-store")
	return h
}

type requestIDKey struct{}

func requestID(ctx context.Context) string {
	if id, ok := ctx.Value(requestIDKey{}).(string); ok {
		return id
	}
	return uuid.Must(uuid.NewV7()).String()
}

func problemOf(ctx context.Context, log *slog.Logger, err error) *Problem {
	var done *Problem
	if errors.As(err, &done) {
		return done
	}
	e := refusal.From(err)
	id := requestID(ctx)
	if e.Code == refusal.Internal && !errors.Is(err, context.Canceled) {
		log.ErrorContext(ctx, "rest", "request_id", id, "error", err)
	}
	return &Problem{
		Type: "about:blank", Title: http.StatusText(e.Code.HTTP()), Status: e.Code.HTTP(), Detail: e.Message,
		Code: string(e.Code), Field: e.Field, RequestID: id, retry: int(math.Ceil(e.RetryAfter.Seconds())),
	}
}

func notFound() error { return refusal.New(refusal.NotFound, "there is no such thing here") }

func writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(r.Context(), slog.Default(), err)
	for k, v := range p.GetHeaders() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

var problemsOnce sync.Once

// useProblems makes huma answer with problems of ours. It replaces huma's own
// making of errors because that echoes submitted values and leaks the text of
// inside errors into a 500.
func useProblems(log *slog.Logger) {
	problemsOnce.Do(func() {
		huma.ValidateStrictCasing = true  // "Name" is no member
		huma.DefaultArrayNullable = false // no list of ours is ever null
		fromHuma := func(ctx context.Context, status int, msg string, errs ...error) huma.StatusError {
			for _, err := range errs {
				var e *refusal.Error
				if errors.As(err, &e) {
					return problemOf(ctx, log, err)
				}
			}
			switch {
			case status == http.StatusRequestEntityTooLarge:
				return problemOf(ctx, log, refusal.New(refusal.PayloadTooLarge, "the body is too large"))
			case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity, status == http.StatusUnsupportedMediaType:
				where, what := "", "the body cannot be read as JSON"
				for _, err := range errs {
					var d *huma.ErrorDetail
					if errors.As(err, &d) && d != nil {
						if d.Location == "path.id" {
							return problemOf(ctx, log, notFound())
						}
						where = strings.TrimPrefix(strings.TrimPrefix(d.Location, "body."), "body")
						what = d.Message // huma's own words about the schema; values are left out
						break
					}
				}
				if strings.Contains(what, "unmarshal") || strings.Contains(what, "invalid character") {
					what = "the body cannot be read as JSON of the documented shape"
				}
				what, _, _ = strings.Cut(what, ": ") // a parser's own words after it may repeat the value
				return problemOf(ctx, log, refusal.Invalid(where, "%s", what))
			case status == http.StatusNotAcceptable:
				return problemOf(ctx, log, refusal.Invalid("", "only application/json can be had"))
			case status >= 500 || len(errs) > 0:
				return problemOf(ctx, log, errors.Join(append([]error{errors.New(msg)}, errs...)...))
			}
			return problemOf(ctx, log, refusal.Invalid("", "%s", msg))
		}
		huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
			if status == 0 { // huma asks for a sample, for the document
				return &Problem{}
			}
			return fromHuma(context.Background(), status, msg, errs...)
		}
		huma.NewErrorWithContext = func(hctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
			return fromHuma(hctx.Context(), status, msg, errs...)
		}
	})
}
