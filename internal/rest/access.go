package rest

import (
	"context"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/uuid"

	"switchboard/internal/human"
	"switchboard/internal/refusal"
)

// access is who may call an operation.
type access int

const (
	anyone   access = iota // the requester's twin authorises itself
	reading                // session or API token
	limiting               // session or API token: narrow, pause, revoke, decline
	writing                // session only
	owning                 // session of a resident only
	fresh                  // session signed in lately: approve, vend, resume, unblock, make tokens
)

// principal is who a request speaks for.
type principal struct {
	human   human.Human
	session *human.Session // nil for an API token
	err     error          // why there is none
}

type principalKey struct{}

// identify puts request id and principal into the context. A bearer decides
// alone: a wrong one is not rescued by a cookie.
func (a *api) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := uuid.Must(uuid.NewV7()).String()
		w.Header().Set("X-Request-Id", id)
		ctx := context.WithValue(r.Context(), requestIDKey{}, id)
		ctx = context.WithValue(ctx, requestKey{}, r)
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			w.Header().Set("Cache-Control", "no-store")
			ctx = context.WithValue(ctx, principalKey{}, a.principal(r.WithContext(ctx)))
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

type requestKey struct{}

func request(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	return r
}

func unauthenticated() error {
	return refusal.New(refusal.Unauthenticated, "sign in at /login, or send an API token as bearer")
}

func (a *api) principal(r *http.Request) *principal {
	if h := r.Header.Get("Authorization"); h != "" {
		scheme, token, _ := strings.Cut(h, " ")
		if !strings.EqualFold(scheme, "Bearer") || !strings.HasPrefix(token, "sba_") {
			return &principal{err: unauthenticated()}
		}
		who, err := a.Humans.AuthenticateAPIToken(r.Context(), token)
		if err != nil {
			return &principal{err: err}
		}
		return &principal{human: who}
	}
	token := a.SessionToken(r)
	if token == "" {
		return &principal{err: unauthenticated()}
	}
	if human.Foreign(r, a.PublicURL) {
		return &principal{err: refusal.New(refusal.Forbidden, "this request comes from another site")}
	}
	s, err := a.Humans.Authenticate(r.Context(), token)
	if err != nil {
		return &principal{err: err}
	}
	return &principal{human: s.Human, session: &s}
}

// allow answers the human that the request speaks for, or the refusal.
func allow(ctx context.Context, need access) (human.Human, error) {
	p, _ := ctx.Value(principalKey{}).(*principal)
	if p == nil {
		return human.Human{}, unauthenticated()
	}
	if p.err != nil {
		return human.Human{}, p.err
	}
	if p.session == nil && need > limiting {
		return human.Human{}, refusal.New(refusal.Forbidden, "an API token may read, narrow, pause, revoke and decline; this needs a session")
	}
	if need >= owning && !p.human.Resident {
		return human.Human{}, refusal.New(refusal.Forbidden, "this account sees its own requests and grants only")
	}
	if need == fresh && !p.session.Fresh {
		return human.Human{}, refusal.New(refusal.Forbidden, "sign in again: this needs a sign-in within the last 12 hours")
	}
	return p.human, nil
}

// described is one route and who may take it.
type described struct {
	huma.Operation
	need access
}

// operation describes one route.
func operation(id, method, path, summary, tag string, need access, status int) described {
	op := described{need: need, Operation: huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, Tags: []string{tag}, DefaultStatus: status,
		Errors: refusals(method, path),
	}}
	switch {
	case need == anyone:
	case need <= limiting:
		op.Security = []map[string][]string{{"session": {}}, {"token": {}}}
	default:
		op.Security = []map[string][]string{{"session": {}}}
	}
	return op
}

// route registers a guarded operation whose handler is given the human. The
// guard runs before the body is validated, so that nobody learns from a 422
// what only a session may know.
func route[I, O any](a *api, op described, handle func(context.Context, human.Human, *I) (*O, error)) {
	need := op.need
	op.Middlewares = append(op.Middlewares, func(ctx huma.Context, next func(huma.Context)) {
		if need != anyone {
			if _, err := allow(ctx.Context(), need); err != nil {
				r, w := humago.Unwrap(ctx)
				writeProblem(w, r, err)
				return
			}
			if err := legible(ctx); err != nil {
				r, w := humago.Unwrap(ctx)
				writeProblem(w, r, err)
				return
			}
		}
		next(ctx)
	})
	huma.Register(a.huma, op.Operation, func(ctx context.Context, in *I) (*O, error) {
		var who human.Human
		if need != anyone {
			var err error
			if who, err = allow(ctx, need); err != nil {
				return nil, problemOf(ctx, a.Log, err)
			}
		}
		out, err := handle(ctx, who, in)
		if err != nil {
			return nil, problemOf(ctx, a.Log, err)
		}
		return out, nil
	})
}

// legible refuses what the database could not even compare: text with a NUL or
// that is no UTF-8. A path with it leads nowhere.
func legible(ctx huma.Context) error {
	for _, p := range ctx.Operation().Parameters {
		switch {
		case p.In == "path" && !storable(ctx.Param(p.Name)):
			return notFound()
		case p.In == "query" && !storable(ctx.Query(p.Name)):
			return refusal.Invalid(p.Name, "%s must be UTF-8 text without NUL", p.Name)
		}
	}
	return nil
}

func storable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }
