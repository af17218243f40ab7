package requester

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// Ask is what a human asks a persona for.
type Ask struct {
	Card       *Card
	Name       string // what the agent calls itself
	FromCard   string // the agent's own card, "" when it has none
	Reason     string
	Scope      scope.Asked
	Supersedes string // the grant to renew, "" for a new line
	Method     string // "" takes oidc-nonce when the card offers it
	Issuer     Issuer // for oidc-nonce: one of the card's
}

// ErrUnsaid is an ask without what the human who decides must read.
var ErrUnsaid = errors.New("a friend request needs the agent's name (--name) and a reason that a human will read (--reason)")

// Prepare completes an ask from the card and checks it before anybody signs in:
// the method, the issuer, and that the scope lies inside the offers. Its queues
// and verbs may be left out where the card leaves no choice: the one queue
// that is offered, and every verb that is offered on all queues asked for.
func (a Ask) Prepare() (Ask, error) {
	var err error
	if a.Scope, err = a.scope(); err != nil {
		return a, err
	}
	if strings.TrimSpace(a.Name) == "" || strings.TrimSpace(a.Reason) == "" {
		return a, ErrUnsaid
	}
	if a.Method == "" {
		a.Method = provenance.MethodSignIn
		if slices.Contains(a.Card.Methods, provenance.MethodOIDCNonce) && len(a.Card.Issuers) > 0 {
			a.Method = provenance.MethodOIDCNonce
		}
	}
	if !slices.Contains(a.Card.Methods, a.Method) {
		return a, fmt.Errorf("the card does not offer method %q; it offers %s", a.Method, strings.Join(a.Card.Methods, ", "))
	}
	if a.Method == provenance.MethodSignIn {
		a.Issuer = Issuer{}
		return a, nil
	}
	var known []string
	for _, i := range a.Card.Issuers {
		if a.Issuer.Issuer == i.Issuer || a.Issuer.Issuer == "" && len(a.Card.Issuers) == 1 {
			a.Issuer = i
			return a, nil
		}
		known = append(known, i.Issuer)
	}
	return a, fmt.Errorf("choose where to sign in; this persona trusts:\n  %s", strings.Join(known, "\n  "))
}

// scope is the scope with what the card leaves no choice about.
func (a Ask) scope() (scope.Asked, error) {
	s := a.Scope
	offered := map[string][]scope.Verb{}
	for _, o := range a.Card.Offers {
		offered[o.Queue] = append(offered[o.Queue], o.Verbs...)
	}
	names := slices.Sorted(maps.Keys(offered))
	if len(names) == 0 {
		return s, errors.New("this persona offers nothing to ask for")
	}
	if len(s.Queues) == 0 {
		if len(names) > 1 {
			return s, fmt.Errorf("choose among the queues that are offered: %s", strings.Join(names, ", "))
		}
		s.Queues = names
	}
	for _, queue := range s.Queues {
		if offered[queue] == nil {
			return s, fmt.Errorf("queue %q is not offered; there are: %s", queue, strings.Join(names, ", "))
		}
	}
	if len(s.Verbs) == 0 {
		for _, v := range scope.Verbs() {
			if !slices.ContainsFunc(s.Queues, func(q string) bool { return !slices.Contains(offered[q], v) }) {
				s.Verbs = append(s.Verbs, v)
			}
		}
	}
	if _, err := scope.Resolve(s, a.Card.Offers); err != nil {
		return s, err
	}
	return s, nil
}

// Send signs the prepared ask with a new key and sends it. The key is in store
// before anything leaves, and every attempt carries the same message id, so
// that an answer lost on the way makes no second request.
func (q *Requester) Send(ctx context.Context, store *Store, a Ask, how SignIn) (*Request, error) {
	key, err := provenance.NewKey()
	if err != nil {
		return nil, err
	}
	pem, err := key.PEM()
	if err != nil {
		return nil, err
	}
	r := &Request{
		Key: string(pem), MessageID: uuid.Must(uuid.NewV7()).String(), Card: a.Card.URL, A2A: a.Card.A2A, Aud: a.Card.Aud, Persona: a.Card.Persona,
		Issuer: a.Issuer.Issuer, Supersedes: a.Supersedes, Name: a.Name, Reason: a.Reason, Scope: a.Scope, State: Unsent, CreatedAt: q.now().UTC(),
	}
	data, err := q.sign(ctx, key, a, how)
	if err != nil {
		return nil, err
	}
	if err := store.Save(r); err != nil {
		return nil, err
	}
	t, err := q.submit(ctx, r, data)
	if err != nil {
		if known := (*refusal.Error)(nil); errors.As(err, &known) && known.Code != refusal.Unavailable {
			_ = store.Remove(r) // refused: nothing was stored there, the key is of no use
		}
		return nil, err
	}
	if err := r.read(t); err != nil {
		return nil, err
	}
	if err := store.Save(r); err != nil {
		return nil, err
	}
	if r.State == SigningIn {
		return r, q.signInAtTarget(ctx, store, r, key, t, how)
	}
	return r, nil
}

func (q *Requester) sign(ctx context.Context, key *provenance.Key, a Ask, how SignIn) (json.RawMessage, error) {
	request := provenance.Request{From: provenance.From{Name: a.Name, Card: a.FromCard}, Reason: a.Reason, Scope: a.Scope, Supersedes: a.Supersedes}
	to := provenance.To{Aud: a.Card.Aud, Persona: a.Card.Persona}
	if a.Method == provenance.MethodSignIn {
		return provenance.BuildSignIn(key, request, to, q.now())
	}
	return provenance.Build(ctx, key, request, to, q.now, func(ctx context.Context, nonce string) (string, error) {
		return q.idToken(ctx, a.Issuer, nonce, how)
	})
}

// submit sends the message, again when the connection fails or the target is
// briefly away: the message id makes that one request.
func (q *Requester) submit(ctx context.Context, r *Request, data json.RawMessage) (task, error) {
	params := map[string]any{
		"message": map[string]any{
			"messageId": r.MessageID, "role": "ROLE_USER", "extensions": []string{Extension},
			"parts": []any{map[string]any{"data": data, "mediaType": "application/json"}},
		},
		"configuration": map[string]any{"returnImmediately": true},
	}
	var result struct{ Task task }
	err := q.patiently(ctx, func() error { return q.call(ctx, r.A2A, "", "SendMessage", params, &result) })
	if err != nil {
		return task{}, fmt.Errorf("send friend request to %s: %w", r.A2A, err)
	}
	return result.Task, nil
}

// Update asks the target how the request stands and keeps the answer. A request
// whose sending was cut off is looked for by its key.
func (q *Requester) Update(ctx context.Context, store *Store, r *Request) error {
	if r.ID == "" {
		listed, err := q.List(ctx, r)
		if err != nil || len(listed) == 0 {
			return fmt.Errorf("the request to %s never arrived, or cannot be found now (%w); ask again with: switchboard friend request", r.A2A, cmp.Or(err, ErrNeverSent))
		}
		r.ID = listed[0].ID
	}
	t, err := q.task(ctx, r, "GetTask")
	if err != nil {
		return fmt.Errorf("ask %s about request %s: %w", r.A2A, r.ID, err)
	}
	if err := r.read(t); err != nil {
		return err
	}
	if err := store.Save(r); err != nil {
		return err
	}
	return store.retire(r)
}

// Withdraw takes a pending request back.
func (q *Requester) Withdraw(ctx context.Context, store *Store, r *Request) error {
	t, err := q.task(ctx, r, "CancelTask")
	if err != nil {
		return fmt.Errorf("withdraw request %s: %w", r.ID, err)
	}
	if err := r.read(t); err != nil {
		return err
	}
	return store.Save(r)
}

// Wait returns when the request is decided, expired or withdrawn, or with the context's error.
func (q *Requester) Wait(ctx context.Context, store *Store, r *Request) error {
	for delay := 250 * time.Millisecond; r.State == Pending || r.State == SigningIn; delay = min(2*delay, 10*time.Second) {
		if err := pause(ctx, delay); err != nil {
			return fmt.Errorf("waiting for the decision: %w", err)
		}
		err := q.Update(ctx, store, r)
		refused := (*refusal.Error)(nil)
		switch {
		case err == nil:
		case errors.As(err, &refused) && refused.Code == refusal.RateLimited:
			delay = max(delay, refused.RetryAfter)
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for the decision: %w", ctx.Err())
		case errors.As(err, &refused) && refused.Code != refusal.Unavailable:
			return err
		} // else the target is away for a while
	}
	return nil
}

// ErrNeverSent says of a kept request that the target knows none by its key.
var ErrNeverSent = errors.New("the target knows no request by this key")

// Listed is a request as the target tells of it.
type Listed struct{ ID, State string }

// List returns the requests that the target knows of this request's key.
func (q *Requester) List(ctx context.Context, r *Request) ([]Listed, error) {
	bearer, err := q.a2aToken(ctx, r)
	if err != nil {
		return nil, err
	}
	var page struct{ Tasks []task }
	if err := q.call(ctx, r.A2A, bearer, "ListTasks", struct{}{}, &page); err != nil {
		return nil, fmt.Errorf("list requests at %s: %w", r.A2A, err)
	}
	var all []Listed
	for _, t := range page.Tasks {
		all = append(all, Listed{t.ID, stateOf[t.Status.State]})
	}
	return all, nil
}

func (q *Requester) a2aToken(ctx context.Context, r *Request) (string, error) {
	key, err := r.key()
	if err != nil {
		return "", err
	}
	got, err := q.token(ctx, key, r.Aud, url.Values{"grant_type": {"client_credentials"}, "resource": {r.A2A}}, false)
	return got.AccessToken, err
}

func (q *Requester) task(ctx context.Context, r *Request, method string) (task, error) {
	var t task
	if r.ID == "" {
		return t, ErrNeverSent
	}
	bearer, err := q.a2aToken(ctx, r)
	if err != nil {
		return t, err
	}
	return t, q.call(ctx, r.A2A, bearer, method, map[string]string{"id": r.ID}, &t)
}
