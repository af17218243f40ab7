package human_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/devidp"
	"switchboard/internal/human"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const publicURL = "http://127.0.0.1:8080"

type arrivals struct {
	mu  sync.Mutex
	ids []uuid.UUID
}

func (a *arrivals) HumanCreated(_ context.Context, _ pgx.Tx, owner uuid.UUID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids = append(a.ids, owner)
	return nil
}

type requesters struct{ known [][]byte }

func (r *requesters) KnownRequester(_ context.Context, identity []byte) (bool, error) {
	for _, k := range r.known {
		if string(k) == string(identity) {
			return true, nil
		}
	}
	return false, nil
}

type testBundle struct {
	store      *human.Store
	pool       *pgxpool.Pool
	issuer     *provenance.Issuer
	arrivals   *arrivals
	requesters *requesters
	config     human.Config
}

func setup(t *testing.T, residents ...string) *testBundle {
	t.Helper()
	p, err := devidp.Start(t.Context(), "127.0.0.1:0", devidp.Options{Algorithm: jose.ES256})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	entry := provenance.Issuer{
		Issuer: p.Issuer(), Name: "Development", Discovery: p.Issuer() + "/.well-known/openid-configuration", Algs: []string{"ES256"},
		Login: &provenance.LoginClient{ClientID: devidp.LoginClient}, Identity: []string{"iss", "sub"},
		EmailAuthoritativeFor: []string{"example.com"},
	}
	client := provenance.GuardedClient(true)
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	sealer, err := provenance.NewSealer(key)
	require.NoError(t, err)
	list, err := human.NewResidents(residents, true)
	require.NoError(t, err)
	b := &testBundle{pool: pgtest.Pool(t), issuer: &entry, arrivals: &arrivals{}, requesters: &requesters{}}
	b.config = human.Config{
		PublicURL: publicURL, Issuers: []provenance.Issuer{entry}, IDTokens: provenance.NewKeys(client), Client: client,
		Sealer: sealer, Residents: list, Arrivals: b.arrivals, Requesters: b.requesters, Dev: true,
	}
	b.store, err = human.New(b.pool, b.config)
	require.NoError(t, err)
	return b
}

// visit goes to the issuer and returns what it sends back.
func visit(t *testing.T, redirect string) url.Values {
	t.Helper()
	direct := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := direct.Get(redirect)
	require.NoError(t, err)
	defer r.Body.Close()
	back, err := r.Location()
	require.NoError(t, err)
	require.Equal(t, publicURL+human.CallbackPath, back.Scheme+"://"+back.Host+back.Path)
	return back.Query()
}

func (b *testBundle) signIn(t *testing.T, person string, more ...string) (string, error) {
	t.Helper()
	forward := url.Values{"prompt": {"none"}, "login_hint": {person}}
	for i := 0; i < len(more); i += 2 {
		forward.Set(more[i], more[i+1])
	}
	redirect, state, err := b.store.Begin(t.Context(), "", forward, "/inbox?x=1")
	require.NoError(t, err)
	token, returnTo, err := b.store.Finish(t.Context(), state, visit(t, redirect), "Browser/1")
	if err == nil {
		require.Equal(t, "/inbox?x=1", returnTo)
	}
	return token, err
}

func (b *testBundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func TestSignIn_MakesResidentOnceWithInbox(t *testing.T) {
	t.Parallel()
	b := setup(t, "*")
	var wg sync.WaitGroup
	tokens := make([]string, 4)
	for i := range tokens { // the first sign-ins of one person at once make one human
		wg.Go(func() {
			var err error
			tokens[i], err = b.signIn(t, "alice")
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s, err := b.store.Authenticate(t.Context(), tokens[0])
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{s.Human.ID}, b.arrivals.ids)
	require.True(t, s.Human.Resident)
	require.True(t, s.Fresh)
	require.Equal(t, "Alice", s.Human.Name)
	require.Equal(t, "alice@example.com", s.Human.Email)
	require.Equal(t, b.issuer.Issuer, s.Human.Issuer)
	found, err := b.store.ByIdentity(t.Context(), s.Human.Identity)
	require.NoError(t, err)
	require.Equal(t, s.Human.ID, found.ID)
	all, err := b.store.Sessions(t.Context(), s.Human.ID)
	require.NoError(t, err)
	require.Len(t, all, 4)
	// The identity is what a friend request of hers would carry.
	alice, _ := devidp.PersonNamed("alice")
	p, err := b.issuer.Person([]byte(`{"iss":"` + b.issuer.Issuer + `","sub":"` + alice.Subject + `"}`))
	require.NoError(t, err)
	require.Equal(t, p.Identity, s.Human.Identity)
}

func TestSignIn_RefusesWhatDoesNotBelongTogether(t *testing.T) {
	t.Parallel()
	b := setup(t, "*")
	begin := func() (url.Values, string) {
		redirect, state, err := b.store.Begin(t.Context(), b.issuer.Issuer, url.Values{"prompt": {"none"}, "login_hint": {"alice"}}, "/")
		require.NoError(t, err)
		return visit(t, redirect), state
	}
	answer, state := begin()
	other, otherState := begin()
	with := func(v url.Values, name, value string) url.Values {
		c := url.Values{}
		for k := range v {
			c.Set(k, v.Get(k))
		}
		c.Set(name, value)
		return c
	}
	for name, c := range map[string]struct {
		state  string
		answer url.Values
	}{
		"no cookie":             {"", answer},
		"foreign cookie":        {"AAAA", answer},
		"another tab's answer":  {state, other},
		"injected code (nonce)": {state, with(answer, "code", other.Get("code"))},
		"another issuer":        {otherState, with(answer, "iss", "https://issuer.example")},
		"issuer's error":        {state, url.Values{"state": answer["state"], "error": {"login_required"}}},
		"no code":               {state, url.Values{"state": answer["state"]}},
	} {
		_, _, err := b.store.Finish(t.Context(), c.state, c.answer, "")
		require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err), "%s: %v", name, err)
	}
	_, err := b.signIn(t, "alice", "dev_id_token_lifetime", "-61")
	require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err))
	_, err = b.signIn(t, "alice", "dev_id_token_lifetime", "-30")
	require.NoError(t, err, "clocks may differ by a minute")
	_, _, err = b.store.Begin(t.Context(), "https://issuer.example", nil, "/")
	require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
}

func TestSignIn_WhoComesToLiveHereHearsByMailUntilTurnedOff(t *testing.T) {
	t.Parallel()
	b := setup(t, "alice@example.com", "bob@example.com")
	carol, _ := devidp.PersonNamed("carol")
	p, err := b.issuer.Person([]byte(`{"iss":"` + b.issuer.Issuer + `","sub":"` + carol.Subject + `"}`))
	require.NoError(t, err)
	b.requesters.known = [][]byte{p.Identity}
	mailTo := func(store *human.Store, token string) bool {
		s, err := store.Authenticate(t.Context(), token)
		require.NoError(t, err)
		return s.Human.Notifications.Email
	}
	token, err := b.signIn(t, "alice")
	require.NoError(t, err)
	require.True(t, mailTo(b.store, token))
	s, err := b.store.Authenticate(t.Context(), token)
	require.NoError(t, err)
	_, err = b.store.Update(t.Context(), s.Human.ID, nil, &human.Notifications{}, nil)
	require.NoError(t, err)
	token, err = b.signIn(t, "alice")
	require.NoError(t, err)
	require.False(t, mailTo(b.store, token), "what was turned off stays off")

	// A guest has no settings to turn it off in; who moves in then has.
	token, err = b.signIn(t, "carol")
	require.NoError(t, err)
	require.False(t, mailTo(b.store, token))
	b.config.Residents, err = human.NewResidents([]string{"carol@example.com"}, true)
	require.NoError(t, err)
	b.store, err = human.New(b.pool, b.config)
	require.NoError(t, err)
	token, err = b.signIn(t, "carol")
	require.NoError(t, err)
	require.True(t, mailTo(b.store, token))

	// Without an address that the issuer vouches for there is nothing to turn on.
	b.issuer.EmailAuthoritativeFor = nil
	b.config.Issuers[0].EmailAuthoritativeFor = nil
	b.config.Residents, err = human.NewResidents([]string{"*"}, true)
	require.NoError(t, err)
	b.store, err = human.New(b.pool, b.config)
	require.NoError(t, err)
	token, err = b.signIn(t, "bob")
	require.NoError(t, err)
	require.False(t, mailTo(b.store, token))
}

func TestSignIn_LetsInResidentsAndGuestsOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, "bob@example.com")
	_, err := b.signIn(t, "alice")
	require.Equal(t, refusal.Forbidden, refusal.CodeOf(err))
	stranger := refusal.From(err).Message

	token, err := b.signIn(t, "bob")
	require.NoError(t, err)
	s, err := b.store.Authenticate(t.Context(), token)
	require.NoError(t, err)
	require.True(t, s.Human.Resident)

	alice, _ := devidp.PersonNamed("alice")
	p, err := b.issuer.Person([]byte(`{"iss":"` + b.issuer.Issuer + `","sub":"` + alice.Subject + `"}`))
	require.NoError(t, err)
	b.requesters.known = [][]byte{p.Identity}
	token, err = b.signIn(t, "alice")
	require.NoError(t, err)
	s, err = b.store.Authenticate(t.Context(), token)
	require.NoError(t, err)
	require.False(t, s.Human.Resident, "a guest owns nothing")
	require.Len(t, b.arrivals.ids, 1, "a guest has no inbox")

	_, err = b.signIn(t, "carol")
	require.Equal(t, stranger, refusal.From(err).Message, "one answer for all strangers")
}

func TestResidents_WhoIsTakenOffTheListIsAGuestAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, "alice@example.com")
	token, err := b.signIn(t, "alice")
	require.NoError(t, err)
	s, err := b.store.Authenticate(t.Context(), token)
	require.NoError(t, err)
	_, api, err := b.store.CreateAPIToken(t.Context(), s.Human.ID, "script")
	require.NoError(t, err)

	b.config.Residents, err = human.NewResidents([]string{"bob@example.com"}, true)
	require.NoError(t, err)
	restarted, err := human.New(b.pool, b.config)
	require.NoError(t, err)
	s, err = restarted.Authenticate(t.Context(), token)
	require.NoError(t, err)
	require.False(t, s.Human.Resident)
	_, err = restarted.AuthenticateAPIToken(t.Context(), api)
	require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err))
	_, err = b.store.AuthenticateAPIToken(t.Context(), api)
	require.NoError(t, err, "the list decides, and nothing was written")
}

func TestSession_EndsByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	b := setup(t, "*")
	token, err := b.signIn(t, "alice")
	require.NoError(t, err)
	out := func(why string) {
		t.Helper()
		_, err := b.store.Authenticate(t.Context(), token)
		require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err), why)
	}
	b.exec(t, `UPDATE session SET last_seen = clock_timestamp() - interval '11 hours 59 minutes', auth_time = clock_timestamp() - interval '12 hours 1 second'`)
	s, err := b.store.Authenticate(t.Context(), token)
	require.NoError(t, err)
	require.False(t, s.Fresh, "authenticated more than 12 hours ago")
	b.exec(t, `UPDATE session SET last_seen = last_seen - interval '11 hours 59 minutes'`)
	_, err = b.store.Authenticate(t.Context(), token)
	require.NoError(t, err, "use slides the idle limit")
	b.exec(t, `UPDATE session SET last_seen = clock_timestamp() - interval '12 hours 1 second'`)
	out("12 hours idle")
	b.exec(t, `UPDATE session SET last_seen = clock_timestamp(), created_at = clock_timestamp() - interval '30 days 1 second'`)
	out("30 days old")
	require.NoError(t, b.store.Sweep(t.Context()))
	var left int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM session) + (SELECT count(*) FROM session_token)`).Scan(&left))
	require.Zero(t, left)

	token, err = b.signIn(t, "alice", "dev_auth_time_offset", "-50000")
	require.NoError(t, err)
	s, err = b.store.Authenticate(t.Context(), token)
	require.NoError(t, err)
	require.False(t, s.Fresh, "auth_time counts, not the moment of sign-in")
	require.NoError(t, b.store.SignOut(t.Context(), token))
	require.NoError(t, b.store.SignOut(t.Context(), token))
	out("signed out")
}

func TestSession_OfAnotherHumanIsNotFound(t *testing.T) {
	t.Parallel()
	b := setup(t, "*")
	a, err := b.signIn(t, "alice")
	require.NoError(t, err)
	alice, err := b.store.Authenticate(t.Context(), a)
	require.NoError(t, err)
	c, err := b.signIn(t, "bob")
	require.NoError(t, err)
	bob, err := b.store.Authenticate(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, refusal.NotFound, refusal.CodeOf(b.store.EndSession(t.Context(), bob.Human.ID, alice.ID)))
	_, err = b.store.Authenticate(t.Context(), a)
	require.NoError(t, err)

	apiToken, text, err := b.store.CreateAPIToken(t.Context(), alice.Human.ID, "laptop")
	require.NoError(t, err)
	require.Regexp(t, `^sba_[A-Za-z0-9_-]{43}$`, text)
	h, err := b.store.AuthenticateAPIToken(t.Context(), text)
	require.NoError(t, err)
	require.Equal(t, alice.Human.ID, h.ID)
	require.Equal(t, refusal.NotFound, refusal.CodeOf(b.store.DeleteAPIToken(t.Context(), bob.Human.ID, apiToken.ID)))
	list, err := b.store.APITokens(t.Context(), alice.Human.ID)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NotNil(t, list[0].LastUsed)
	require.NoError(t, b.store.DeleteAPIToken(t.Context(), alice.Human.ID, apiToken.ID))
	_, err = b.store.AuthenticateAPIToken(t.Context(), text)
	require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err))

	var texts int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM session_token t WHERE t::text LIKE '%' || $1 || '%'`, a).Scan(&texts))
	require.Zero(t, texts, "bearers are stored as hashes only")
}

func TestOnce_FormSentTwice(t *testing.T) {
	t.Parallel()
	b := setup(t, "*")
	token, err := b.signIn(t, "alice")
	require.NoError(t, err)
	s, err := b.store.Authenticate(t.Context(), token)
	require.NoError(t, err)
	key := uuid.NewString()
	for i, want := range []bool{true, false, false} {
		first, err := b.store.Once(t.Context(), s.Human.ID, key)
		require.NoError(t, err)
		require.Equal(t, want, first, i)
	}
	first, err := b.store.Once(t.Context(), uuid.New(), key)
	require.NoError(t, err)
	require.True(t, first, "another human's key is another one")
	require.NoError(t, b.store.Forget(t.Context(), s.Human.ID, key))
	first, err = b.store.Once(t.Context(), s.Human.ID, key)
	require.NoError(t, err)
	require.True(t, first, "a refused form can be sent again")
	_, err = b.store.Once(t.Context(), s.Human.ID, "x")
	require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
	b.exec(t, `UPDATE form_once SET at = clock_timestamp() - interval '25 hours'`)
	require.NoError(t, b.store.Sweep(t.Context()))
	var left int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM form_once`).Scan(&left))
	require.Zero(t, left)
}

func TestAlive_KeepsNobodySignedIn(t *testing.T) {
	t.Parallel()
	b := setup(t, "*")
	token, err := b.signIn(t, "alice")
	require.NoError(t, err)
	b.exec(t, `UPDATE session SET last_seen = clock_timestamp() - interval '11 hours 59 minutes'`)
	alive, err := b.store.Alive(t.Context(), token)
	require.NoError(t, err)
	require.True(t, alive)
	b.exec(t, `UPDATE session SET last_seen = last_seen - interval '2 minutes'`)
	alive, err = b.store.Alive(t.Context(), token)
	require.NoError(t, err)
	require.False(t, alive, "looking did not slide the limit")
}

func TestUpdate_ChecksAndCountsVersions(t *testing.T) {
	t.Parallel()
	b := setup(t, "*")
	token, err := b.signIn(t, "alice")
	require.NoError(t, err)
	s, err := b.store.Authenticate(t.Context(), token)
	require.NoError(t, err)
	name, stale := "Alice A.", s.Human.Version
	h, err := b.store.Update(t.Context(), s.Human.ID, &name, &human.Notifications{Email: true, Webhook: "https://hooks.example/x", Digest: "daily"}, &stale)
	require.NoError(t, err)
	require.Equal(t, "https://hooks.example/x", h.Notifications.Webhook)
	_, err = b.store.Update(t.Context(), h.ID, &name, nil, &stale)
	require.Equal(t, refusal.PreconditionFailed, refusal.CodeOf(err))
	for _, bad := range []string{"", " ", "a\u0000b", "two\nlines"} {
		_, err = b.store.Update(t.Context(), h.ID, &bad, nil, nil)
		require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err), "%q", bad)
	}
	for _, bad := range []string{"http://hooks.example", "ftp://x", "https://", "https://u:p@hooks.example/"} {
		_, err = b.store.Update(t.Context(), h.ID, nil, &human.Notifications{Webhook: bad}, nil)
		require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err), bad)
	}
	_, err = b.signIn(t, "alice")
	require.NoError(t, err)
	h, err = b.store.Get(t.Context(), h.ID)
	require.NoError(t, err)
	require.Equal(t, name, h.Name, "sign-in does not overwrite a chosen name")
}

func TestResidents_Entries(t *testing.T) {
	t.Parallel()
	_, err := human.NewResidents([]string{"*"}, false)
	require.ErrorContains(t, err, "development only")
	for _, bad := range []string{"", "alice", "a@b@c", "@", "notaurl sub", "https://issuer.example "} {
		_, err := human.NewResidents([]string{"@example.com", bad}, false)
		require.ErrorContains(t, err, "entry 2", bad)
	}
	_, err = human.New(nil, human.Config{Issuers: []provenance.Issuer{{Login: &provenance.LoginClient{}}}})
	require.ErrorContains(t, err, "residents")
}

func TestLocalPath(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"/", "/inbox", "/oauth/authorize?client_id=https%3A%2F%2Fx.example&state=a", "/inbox/requests/1#x"} {
		require.Equal(t, good, human.LocalPath(good))
	}
	for _, bad := range []string{"", "inbox", "//evil.example", `/\evil.example`, "/\t/evil.example", "https://evil.example", "/\r\nSet-Cookie: x=1", "/login?x", "/logout"} {
		require.Equal(t, "/", human.LocalPath(bad), bad)
	}
}

func TestSameOrigin(t *testing.T) {
	t.Parallel()
	h := human.SameOrigin(publicURL)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for name, c := range map[string]struct {
		method, host, origin, site, mode string
		status                           int
	}{
		"browser's own form":      {"POST", "127.0.0.1:8080", publicURL, "same-origin", "navigate", 204},
		"program with a cookie":   {"POST", "127.0.0.1:8080", "", "", "", 204},
		"link from a mail":        {"GET", "127.0.0.1:8080", "", "cross-site", "navigate", 204},
		"another site's form":     {"POST", "127.0.0.1:8080", "https://evil.example", "cross-site", "navigate", 403},
		"another port":            {"POST", "127.0.0.1:8080", "http://127.0.0.1:9090", "same-site", "cors", 403},
		"null origin":             {"POST", "127.0.0.1:8080", "null", "", "", 403},
		"another site's script":   {"GET", "127.0.0.1:8080", "", "cross-site", "no-cors", 403},
		"another site, no origin": {"POST", "127.0.0.1:8080", "", "cross-site", "", 403},
		"rebound name":            {"GET", "evil.example:8080", "", "", "", 421},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		r.Host = c.host
		for k, v := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site, "Sec-Fetch-Mode": c.mode} {
			if v != "" {
				r.Header.Set(k, v)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, name)
	}
}

func TestCookie(t *testing.T) {
	t.Parallel()
	b := setup(t, "*")
	w := httptest.NewRecorder()
	b.store.SetCookie(w, "x")
	c := w.Result().Cookies()[0]
	require.Equal(t, human.CookieName(publicURL), c.Name)
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteLaxMode, c.SameSite)
	require.Regexp(t, `^sb_session_[0-9a-f]{8}$`, c.Name)
	require.Regexp(t, `^__Host-sb_session_[0-9a-f]{8}$`, human.CookieName("https://switchboard.example"))
	require.WithinDuration(t, time.Now().Add(human.SessionLife), time.Now().Add(time.Duration(c.MaxAge)*time.Second), time.Minute)
}

// TestMailOff_LeavesEverythingElse: it may come from a mail program while the person
// has the settings open, so that it counts as a change and is no more than one.
func TestMailOff_LeavesEverythingElse(t *testing.T) {
	t.Parallel()
	b := setup(t, "*")
	token, err := b.signIn(t, "alice")
	require.NoError(t, err)
	s, err := b.store.Authenticate(t.Context(), token)
	require.NoError(t, err)
	was, err := b.store.Update(t.Context(), s.Human.ID, nil, &human.Notifications{Email: true, Webhook: "https://hooks.example/x", Digest: "daily"}, nil)
	require.NoError(t, err)
	require.NoError(t, b.store.MailOff(t.Context(), uuid.New()))
	for range 2 {
		require.NoError(t, b.store.MailOff(t.Context(), was.ID))
		h, err := b.store.Get(t.Context(), was.ID)
		require.NoError(t, err)
		require.Equal(t, human.Notifications{Webhook: "https://hooks.example/x", Digest: "daily"}, h.Notifications)
		require.Equal(t, was.Version+1, h.Version)
	}
}
