package a2a_test

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/server"
	"switchboard/internal/server/servertest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// versions runs f for both A2A versions, each on an instance of its own, where
// bob has published the reviewer.
func versions(t *testing.T, f func(t *testing.T, v servertest.A2A, b *bundle)) {
	t.Helper()
	for _, v := range []servertest.A2A{servertest.V1, servertest.V03} {
		t.Run(v.Version, func(t *testing.T) {
			t.Parallel()
			f(t, v, setup(t, v))
		})
	}
}

type bundle struct {
	t    *testing.T
	v    servertest.A2A
	i    *servertest.Instance
	bob  *servertest.Person
	home servertest.Home
}

func setup(t *testing.T, v servertest.A2A) *bundle {
	t.Helper()
	b := &bundle{t: t, v: v, i: servertest.Start(t)}
	b.bob = b.i.SignIn(t, "bob")
	b.home = b.bob.Publish("reviewer")
	return b
}

// call does a method at the reviewer.
func (b *bundle) call(bearer, method string, params any, header ...string) servertest.Answer {
	b.t.Helper()
	return b.v.Call(b.t, b.i, b.home.Slug, bearer, method, params, header...)
}

func (b *bundle) raw(body any, header ...string) servertest.Answer {
	b.t.Helper()
	return b.v.Raw(b.t, b.i, b.home.Slug, "", body, header...)
}

// resource is the reviewer's A2A URL.
func (b *bundle) resource() string { return b.i.URL + "/a2a/" + b.home.Slug }

// with is params of a send.
func with(message map[string]any, more ...any) map[string]any {
	p := map[string]any{"message": message}
	for n := 0; n+1 < len(more); n += 2 {
		p[more[n].(string)] = more[n+1]
	}
	return p
}

// put returns m with one member more.
func put(m map[string]any, name string, value any) map[string]any {
	out := map[string]any{name: value}
	for k, v := range m {
		if k != name {
			out[k] = v
		}
	}
	return out
}

// refusal is what an error has to be; status 0 is 200.
type refusal struct {
	status int
	code   int
	reason string
	domain string // "" is A2A's
}

func (b *bundle) refused(what string, want refusal, r servertest.Answer) {
	b.t.Helper()
	if want.status == 0 {
		want.status = http.StatusOK
	}
	if want.domain == "" {
		want.domain = "a2a-protocol.org"
	}
	require.Equal(b.t, want.status, r.Status, "%s: %s", what, r.Body)
	require.NotNil(b.t, r.Error, "%s: %s", what, r.Body)
	require.NotEmpty(b.t, r.Error.Data, "%s: %s", what, r.Body)
	require.Equal(b.t, "type.googleapis.com/google.rpc.ErrorInfo", r.Error.Data[0].Type, what)
	require.Equal(b.t, want, refusal{r.Status, r.Error.Code, r.Error.Data[0].Reason, r.Error.Data[0].Domain}, "%s: %s", what, r.Body)
	require.NotEmpty(b.t, r.Error.Message, what)
	require.Empty(b.t, r.Result, what)
	require.Equal(b.t, "application/json", r.Header.Get("Content-Type"), what)
}

// stored is how many requests bob has been sent.
func (b *bundle) stored() int {
	b.t.Helper()
	var in struct{ Items []any }
	b.bob.Get("/v1/friend-requests?direction=in&limit=100", &in)
	return len(in.Items)
}

var (
	parseError   = refusal{code: -32700, reason: "PARSE_ERROR"}
	badRequest   = refusal{code: -32600, reason: "INVALID_REQUEST"}
	noMethod     = refusal{code: -32601, reason: "METHOD_NOT_FOUND"}
	badParams    = refusal{code: -32602, reason: "INVALID_PARAMS"}
	noTask       = refusal{code: -32001, reason: "TASK_NOT_FOUND"}
	notCancel    = refusal{code: -32002, reason: "TASK_NOT_CANCELABLE"}
	noPush       = refusal{code: -32003, reason: "PUSH_NOTIFICATION_NOT_SUPPORTED"}
	unsupported  = refusal{code: -32004, reason: "UNSUPPORTED_OPERATION"}
	contentType  = refusal{code: -32005, reason: "CONTENT_TYPE_NOT_SUPPORTED"}
	noExtension  = refusal{code: -32008, reason: "EXTENSION_SUPPORT_REQUIRED"}
	badVersion   = refusal{code: -32009, reason: "VERSION_NOT_SUPPORTED"}
	invalid      = refusal{code: -32602, reason: "INVALID_ARGUMENT", domain: "switchboard"}
	conflict     = refusal{code: -32602, reason: "CONFLICT", domain: "switchboard"}
	tooLarge     = refusal{status: 413, code: -32602, reason: "PAYLOAD_TOO_LARGE", domain: "switchboard"}
	unauthorized = refusal{status: 401, code: -32602, reason: "UNAUTHENTICATED", domain: "switchboard"}
	unproven     = refusal{status: 401, code: -32602, reason: "PROVENANCE_MISSING", domain: "switchboard"}
)

// TestTheBodyIsJSONRPC: what is no request gets the error that JSON-RPC has for
// it, and the id comes back wherever it could be read.
func TestTheBodyIsJSONRPC(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, v servertest.A2A, b *bundle) {
		for _, c := range []struct {
			name, body, id string
			want           refusal
		}{
			{"cut off", `{"jsonrpc":`, "null", parseError},
			{"empty", ``, "null", parseError},
			{"two texts", `{} {}`, "null", parseError},
			{"a word", `hello`, "null", parseError},
			{"a form", `jsonrpc=2.0&method=` + v.Get, "null", parseError},
			{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"` + v.Get + `"}]`, "null", badRequest},
			{"a string", `"x"`, "null", badRequest},
			{"no version of JSON-RPC", `{"id":1,"method":"` + v.Get + `"}`, "1", badRequest},
			{"another version of JSON-RPC", `{"jsonrpc":"1.0","id":"a","method":"` + v.Get + `"}`, `"a"`, badRequest},
			{"no method", `{"jsonrpc":"2.0","id":1}`, "1", badRequest},
			{"a method that is a number", `{"jsonrpc":"2.0","id":1,"method":7}`, "null", badRequest},
			{"a notification", `{"jsonrpc":"2.0","method":"` + v.Get + `"}`, "null", badRequest},
			{"an object as id", `{"jsonrpc":"2.0","id":{},"method":"` + v.Get + `"}`, "null", badRequest},
			{"params that are a list", `{"jsonrpc":"2.0","id":1,"method":"` + v.Get + `","params":[]}`, "1", badParams},
			{"a method in other case", `{"jsonrpc":"2.0","id":1,"Method":"` + v.Get + `"}`, "1", badRequest},
			{"an unknown method", `{"jsonrpc":"2.0","id":"é","method":"DoWork"}`, `"é"`, noMethod},
			{"an unknown method and a null id", `{"jsonrpc":"2.0","id":null,"method":"DoWork"}`, "null", noMethod},
			{"a fraction as id", `{"jsonrpc":"2.0","id":1.50,"method":"DoWork"}`, "1.50", noMethod},
			{"a member twice", `{"jsonrpc":"2.0","id":3,"method":"DoWork","params":{"a":1,"a":1}}`, "3", invalid},
			{"a lone surrogate", `{"jsonrpc":"2.0","id":3,"method":"DoWork","params":{"a":"\ud800"}}`, "3", invalid},
			{"an id that is itself no I-JSON", `{"jsonrpc":"2.0","id":"\ud800","method":"DoWork"}`, "null", invalid},
			{"an integer beyond 2^53", `{"jsonrpc":"2.0","id":3,"method":"DoWork","params":{"a":9007199254740993}}`, "3", invalid},
			{"bytes that are no UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"DoWork\",\"params\":{\"a\":\"\xff\"}}", "3", invalid},
			{"very deep", `{"jsonrpc":"2.0","id":3,"method":"DoWork","params":{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}}`, "3", invalid},
			{"over 256 KiB", `{"jsonrpc":"2.0","id":3,"method":"DoWork","params":{"a":"` + strings.Repeat("x", 256<<10) + `"}}`, "null", tooLarge},
		} {
			r := b.raw(c.body)
			b.refused(c.name, c.want, r)
			require.Equal(t, c.id, string(r.ID), c.name)
			require.Equal(t, "no-store", r.Header.Get("Cache-Control"))
		}
		ok := `{"jsonrpc":"2.0","id":1,"method":"DoWork"}`
		b.refused("a text body", contentType, b.raw(ok, "Content-Type", "text/plain"))
		for _, media := range []string{"application/json; charset=utf-8", "application/a2a+json", ""} {
			b.refused(media, noMethod, b.raw(ok, "Content-Type", media))
		}
		slash := servertest.Read(t, b.i.Stranger(t, "").Do(http.MethodPost, "/a2a/reviewer/", ok, "A2A-Version", v.Version))
		b.refused("with a slash at the end", noMethod, slash)
		require.Equal(t, http.StatusMethodNotAllowed, b.i.Stranger(t, "").Do(http.MethodGet, "/a2a/reviewer", nil).Status)
	})
}

// TestVersionsAreNegotiatedPerRequest: header or query, absent is 0.3, and a
// method of the other version is unknown.
func TestVersionsAreNegotiatedPerRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, servertest.V1)
	ask := func(method, query string, header ...string) servertest.Answer {
		return servertest.Read(t, b.i.Stranger(t, "").Do(http.MethodPost, "/a2a/reviewer"+query,
			map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": map[string]any{}}, header...))
	}
	const header = "A2A-Version"
	for _, c := range []struct {
		name, method, query, version string
		want                         refusal
	}{
		{"1.0", "GetTask", "", "1.0", unauthorized},
		{"1.0 in the query", "GetTask", "?A2A-Version=1.0", "", unauthorized},
		{"a patch of 1.0", "GetTask", "", "1.0.3", unauthorized},
		{"absent", "tasks/get", "", "", unauthorized},
		{"0.3", "tasks/get", "", "0.3", unauthorized},
		{"a patch of 0.3", "tasks/get", "", "0.3.0", unauthorized},
		{"1.0's method in 0.3", "GetTask", "", "", noMethod},
		{"0.3's method in 1.0", "tasks/get", "", "1.0", noMethod},
		{"0.3's send in 1.0", "message/send", "", "1.0", noMethod},
		{"1.0's send in 0.3", "SendMessage", "", "0.3", noMethod},
		{"an older one", "tasks/get", "", "0.2", badVersion},
		{"a newer one", "GetTask", "", "2.0", badVersion},
		{"a number too long", "GetTask", "", "1.00", badVersion},
		{"no number", "GetTask", "", "latest", badVersion},
		{"unknown, and an unknown method", "DoWork", "?A2A-Version=9.9", "", badVersion},
	} {
		var h []string
		if c.version != "" {
			h = []string{header, c.version}
		}
		b.refused(c.name, c.want, ask(c.method, c.query, h...))
	}
}

// TestSendTakesAFriendRequestAndNothingElse, and stores nothing of all else.
func TestSendTakesAFriendRequestAndNothingElse(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, v servertest.A2A, b *bundle) {
		a := b.i.Agent(t, "alice")
		part := a.Part(t, b.home, b.home.Wish())
		good := v.Message(part)
		var unsigned map[string]any
		require.NoError(t, json.Unmarshal(part, &unsigned))
		delete(unsigned, "provenance")
		file := map[string]any{"url": "https://alice.example/x.pdf"}
		if v.Version == "0.3" {
			file = map[string]any{"kind": "file", "file": map[string]any{"uri": "https://alice.example/x.pdf"}}
		}
		dataPart := good["parts"].([]any)[0].(map[string]any)
		otherRole := map[string]string{"1.0": "user", "0.3": "ROLE_USER"}[v.Version]
		pushName := map[string]string{"1.0": "taskPushNotificationConfig", "0.3": "pushNotificationConfig"}[v.Version]
		cases := []struct {
			name   string
			params any
			want   refusal
		}{
			{"no params", nil, badParams},
			{"no message", map[string]any{}, badParams},
			{"a message that is a string", map[string]any{"message": "hello"}, badParams},
			{"text", with(v.Message("Please review PR 7.")), contentType},
			{"a file", with(put(good, "parts", []any{file})), contentType},
			{"data and text", with(put(good, "parts", []any{dataPart, v.Message("and hello")["parts"].([]any)[0]})), contentType},
			{"two data parts", with(put(good, "parts", []any{dataPart, dataPart})), badParams},
			{"no part", with(put(good, "parts", []any{})), badParams},
			{"a part of no kind", with(put(good, "parts", []any{map[string]any{}})), badParams},
			{"the other version's role", with(put(good, "role", otherRole)), badParams},
			{"the agent's role", with(put(good, "role", map[string]string{"1.0": "ROLE_AGENT", "0.3": "agent"}[v.Version])), badParams},
			{"no message id", with(put(good, "messageId", "")), badParams},
			{"a message id of 300 characters", with(put(good, "messageId", strings.Repeat("m", 300))), badParams},
			{"a continuation of an unknown task", with(put(good, "taskId", uuid.NewString())), unsupported},
			{"a context of the client's", with(put(good, "contextId", uuid.NewString())), badParams},
			{"push", with(good, "configuration", map[string]any{pushName: map[string]any{"url": "https://alice.example/hook"}}), noPush},
			{"data that is no friend request", with(v.Message(map[string]any{"type": "work"})), invalid},
			{"a member that is not ours", with(v.Message(put(unsigned, "urgent", true))), invalid},
			{"a member in other case", with(v.Message(put(unsigned, "Reason", "x"))), invalid},
			{"no provenance", with(v.Message(unsigned)), unproven},
		}
		if v.Version == "0.3" {
			cases = append(cases, struct {
				name   string
				params any
				want   refusal
			}{"no kind", with(put(good, "kind", "")), badParams})
		} else {
			cases = append(cases, struct {
				name   string
				params any
				want   refusal
			}{"data of another media type", with(put(good, "parts", []any{put(dataPart, "mediaType", "text/yaml")})), contentType})
		}
		for _, c := range cases {
			b.refused(c.name, c.want, b.call("", v.Send, c.params))
			b.refused(c.name+", streaming", c.want, b.call("", v.Stream, c.params))
		}
		b.refused("without the extension", noExtension, b.call("", v.Send, with(good), v.ExtensionHeaderName, ""))
		b.refused("another extension", noExtension, b.call("", v.Send, with(good), v.ExtensionHeaderName, "urn:other"))
		r := b.call("", v.Send, with(v.Message(unsigned)))
		require.Equal(t, "Bearer", r.Header.Get("WWW-Authenticate"))
		require.Zero(t, b.stored(), "nothing is stored on any error")

		// Declared in whatever way, at last it is taken; the answer says that the extension is on.
		both := strings.Join([]string{"urn:other", servertest.Extension}, ", ")
		first := b.call("", v.Send, with(good), v.ExtensionHeaderName, both)
		require.Nil(t, first.Error, first.Body)
		require.Equal(t, servertest.Extension, first.Header.Get(v.ExtensionHeaderName))
		for _, name := range []string{"A2A-Extensions", "X-A2A-Extensions"} {
			again := b.call("", v.Send, with(good), v.ExtensionHeaderName, "", name, servertest.Extension)
			require.Equal(t, first.Task, again.Task, "the same message is the same task")
		}
		inMessage := b.call("", v.Send, with(put(good, "extensions", []any{servertest.Extension})), v.ExtensionHeaderName, "")
		require.Equal(t, first.Task.ID, inMessage.Task.ID)
		b.refused("a continuation of an existing task", unsupported, b.call("", v.Send, with(put(good, "taskId", first.Task.ID))))
		b.refused("another request while one is pending", conflict, b.call("", v.Send, with(v.Message(a.Part(t, b.home, b.home.Wish())))))
		resigned := b.call("", v.Send, with(put(v.Message(a.Part(t, b.home, b.home.Wish())), "messageId", good["messageId"])))
		require.Equal(t, first.Task, resigned.Task, "the same message signed anew is the same task")
		wish := b.home.Wish()
		wish.Reason = "Something else."
		other := a.Part(t, b.home, wish)
		b.refused("the same message id for another request", conflict, b.call("", v.Send, with(put(v.Message(other), "messageId", good["messageId"]))))
		require.Equal(t, 1, b.stored())

		require.Equal(t, v.Submitted, first.Task.Status.State)
		require.Equal(t, first.Task.ID, first.Task.ContextID)
		require.NotZero(t, first.Task.Status.Timestamp)
		require.Empty(t, first.Task.Artifacts)
		require.Equal(t, v.Version == "1.0", strings.HasPrefix(string(first.Result), `{"task":`), first.Body)
		require.Equal(t, map[string]string{"0.3": "task"}[v.Version], first.Task.Kind)
		require.NotContains(t, first.Body, "id_token")
	})
}

// TestCapabilitiesComeBeforeAuthentication: what this agent does not do it says
// to anybody; what it does needs a token.
func TestCapabilitiesComeBeforeAuthentication(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, v servertest.A2A, b *bundle) {
		push := map[string][]string{
			"1.0": {"CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"},
			"0.3": {"tasks/pushNotificationConfig/set", "tasks/pushNotificationConfig/get", "tasks/pushNotificationConfig/list", "tasks/pushNotificationConfig/delete"},
		}[v.Version]
		for _, m := range push {
			b.refused(m, noPush, b.call("", m, map[string]any{"id": uuid.NewString()}))
		}
		for _, m := range []string{v.Get, v.Cancel, v.List, v.Subscribe, v.Extended} {
			for _, bearer := range []string{"", "sbt_" + strings.Repeat("x", 43), "nonsense"} {
				r := b.call(bearer, m, map[string]any{"id": uuid.NewString()})
				b.refused(m, unauthorized, r)
				require.Equal(t, `Bearer resource_metadata="`+b.i.URL+`/.well-known/oauth-protected-resource/a2a/reviewer"`, r.Header.Get("WWW-Authenticate"))
			}
		}
	})
}

// TestOffAnswersAsUnknown, byte for byte, whatever is asked.
func TestOffAnswersAsUnknown(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, v servertest.A2A, b *bundle) {
		off := b.bob.Publish("sleeper")
		a := b.i.Agent(t, "alice")
		part := a.Part(t, off, off.Wish())
		a.Ask(t, v, off)
		bearer := a.Token(t, b.i.URL+"/a2a/sleeper")
		b.bob.Must(http.MethodPatch, "/v1/personas/"+off.PersonaID, map[string]any{"visibility": "off"}, nil)

		all := func(slug string) (out []servertest.Reply) {
			s := b.i.Stranger(t, "")
			for _, path := range []string{"/a2a/", "/a2a-v03/"} {
				out = append(out, s.Do(http.MethodGet, path+slug+"/.well-known/agent-card.json", nil))
			}
			for _, m := range []string{v.Send, v.Get, v.List, v.Cancel, v.Push, "DoWork"} {
				out = append(out, v.Call(t, b.i, slug, bearer, m, with(v.Message(part), "id", uuid.NewString())).Reply)
			}
			return append(out, v.Raw(t, b.i, slug, "", "no JSON").Reply)
		}
		unknown, sleeping, odd := all("nobody"), all("sleeper"), all("No_Slug")
		for n := range unknown {
			for _, r := range []*servertest.Reply{&unknown[n], &sleeping[n], &odd[n]} {
				require.Equal(t, http.StatusNotFound, r.Status)
				r.Header.Del("Date")
			}
			require.Equal(t, unknown[n], sleeping[n])
			require.Equal(t, unknown[n], odd[n])
		}
		catalog := b.i.Stranger(t, "").Do(http.MethodGet, "/.well-known/api-catalog", nil).Body
		require.Contains(t, catalog, "/a2a/reviewer/")
		require.NotContains(t, catalog, "sleeper")
	})
}

// TestAnAddressIsHeldBack: 120 requests a minute before anything is verified;
// then 429, with the time to wait in the header and in the error's details.
func TestAnAddressIsHeldBack(t *testing.T) {
	t.Parallel()
	b := &bundle{t: t, v: servertest.V1, i: servertest.Start(t, func(c *server.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})}
	b.home = b.i.SignIn(t, "bob").Publish("reviewer")
	send := func(from string) servertest.Answer {
		return b.call("", b.v.Send, with(b.v.Message(map[string]any{"type": "work"})), "X-Forwarded-For", from)
	}
	var over servertest.Answer
	for n := range 1000 { // while this runs, two a second come back
		if over = send("192.0.2.1"); over.Status != http.StatusOK {
			require.GreaterOrEqual(t, n, 120)
			break
		}
		b.refused("no friend request", invalid, over)
	}
	b.refused("one too many", refusal{status: 429, code: -32602, reason: "RATE_LIMITED", domain: "switchboard"}, over)
	require.Len(t, over.Error.Data, 2)
	require.Equal(t, "type.googleapis.com/google.rpc.RetryInfo", over.Error.Data[1].Type)
	require.Equal(t, over.Header.Get("Retry-After")+"s", over.Error.Data[1].Retry)
	b.refused("another address", invalid, send("192.0.2.2"))
	b.refused("loopback, in development", invalid, b.call("", b.v.Send, with(b.v.Message(map[string]any{"type": "work"}))))
}
