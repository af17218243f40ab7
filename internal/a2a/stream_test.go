package a2a_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

// event is one event of a stream, in either version.
type event struct {
	Kind   string // task, artifact-update or status-update
	ID     string // of the task
	State  string
	Final  *bool
	Grants int
}

// follow opens a stream and returns its events one by one; "" is its end.
func (b *bundle) follow(bearer, method string, params any) func() event {
	b.t.Helper()
	return b.followAt(strings.TrimPrefix(b.i.URL, "http://"), bearer, method, params)
}

// followAt is follow at one process of the instance.
func (b *bundle) followAt(address, bearer, method string, params any) func() event {
	t, v := b.t, b.v
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "s", "method": method, "params": params})
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/a2a/"+b.home.Slug, strings.NewReader(string(body)))
	require.NoError(t, err)
	r.Host = strings.TrimPrefix(b.i.URL, "http://")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("A2A-Version", v.Version)
	r.Header.Set(v.ExtensionHeaderName, servertest.Extension)
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	lines := bufio.NewScanner(resp.Body)
	return func() event {
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			return reader(v).read(t, data)
		}
		return event{}
	}
}

type reader servertest.A2A

func (v reader) read(t *testing.T, data string) event {
	t.Helper()
	type status struct{ State string }
	type artifact struct{ ArtifactID string }
	var a struct {
		ID     string
		Result struct { // 0.3
			Kind     string
			ID       string
			TaskID   string
			Status   status
			Artifact *artifact
			Final    *bool
			// 1.0
			Task *struct {
				ID     string
				Status status
			}
			StatusUpdate *struct {
				TaskID string
				Status status
				Final  *bool
			}
			ArtifactUpdate *struct {
				TaskID   string
				Artifact *artifact
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(data), &a), data)
	require.Equal(t, "s", a.ID)
	r := a.Result
	switch {
	case v.Version == "0.3":
		e := event{Kind: r.Kind, ID: r.ID + r.TaskID, State: r.Status.State, Final: r.Final}
		if r.Artifact != nil && r.Artifact.ArtifactID == "grant" {
			e.Grants = 1
		}
		return e
	case r.Task != nil:
		return event{Kind: "task", ID: r.Task.ID, State: r.Task.Status.State}
	case r.ArtifactUpdate != nil:
		require.Equal(t, "grant", r.ArtifactUpdate.Artifact.ArtifactID)
		return event{Kind: "artifact-update", ID: r.ArtifactUpdate.TaskID, Grants: 1}
	case r.StatusUpdate != nil:
		return event{Kind: "status-update", ID: r.StatusUpdate.TaskID, State: r.StatusUpdate.Status.State, Final: r.StatusUpdate.Final}
	}
	require.Fail(t, "no event", data)
	return event{}
}

// TestStreamsFollowARequestToItsDecision, from the send on and from any later
// moment, and end with it.
func TestStreamsFollowARequestToItsDecision(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, v servertest.A2A, b *bundle) {
		alice := b.i.Agent(t, "alice")
		sent := b.follow("", v.Stream, with(v.Message(alice.Part(t, b.home, b.home.Wish()))))
		first := sent()
		require.Equal(t, event{Kind: "task", ID: first.ID, State: v.Submitted}, first)
		bearer := alice.Token(t, b.resource())
		later := b.follow(bearer, v.Subscribe, map[string]any{"id": first.ID})
		require.Equal(t, first, later())

		b.decide(first.ID, "approve", map[string]any{})
		var final, last *bool
		if v.Version == "0.3" { // 1.0 has no such member: the stream's end says it
			yes := true
			last = &yes
		}
		for _, next := range []func() event{sent, later} {
			require.Equal(t, event{Kind: "artifact-update", ID: first.ID, Grants: 1, Final: final}, next())
			require.Equal(t, event{Kind: "status-update", ID: first.ID, State: v.Completed, Final: last}, next())
			require.Equal(t, event{}, next(), "the stream has ended")
		}

		// The same message again, streaming, after the decision: the task as it is, and the end.
		carol := b.i.Agent(t, "carol")
		message := v.Message(carol.Part(t, b.home, b.home.Wish()))
		r := b.call("", v.Send, with(message))
		b.decide(r.Task.ID, "decline", map[string]any{})
		again := b.follow("", v.Stream, with(message))
		require.Equal(t, event{Kind: "task", ID: r.Task.ID, State: v.Rejected}, again())
		require.Equal(t, event{}, again())
	})
}

// TestAStreamEndsWithItsToken: authority that has ended shows nothing more.
func TestAStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	b := setup(t, servertest.V1)
	alice := b.i.Agent(t, "alice")
	task := alice.Ask(t, b.v, b.home)
	bearer := alice.Token(t, b.resource())
	next := b.follow(bearer, b.v.Subscribe, map[string]any{"id": task.ID})
	require.Equal(t, "task", next().Kind)
	revoked := b.i.Stranger(t, "").Do(http.MethodPost, "/oauth/revoke", "token="+bearer, "Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, http.StatusOK, revoked.Status, revoked.Body)
	require.Equal(t, http.StatusUnauthorized, b.call(bearer, b.v.Get, map[string]any{"id": task.ID}).Status)
	b.decide(task.ID, "approve", map[string]any{})
	require.Equal(t, event{}, next())
}

// TestAStreamLivesOnAnyProcess: a decision on one process reaches a stream on
// another, and when that one is restarted the requester subscribes again
// anywhere and misses nothing.
func TestAStreamLivesOnAnyProcess(t *testing.T) {
	t.Parallel()
	b := setup(t, servertest.V1)
	alice, carol := b.i.Agent(t, "alice"), b.i.Agent(t, "carol")
	other, _ := b.i.Replica(t)
	doomed, kill := b.i.Replica(t)

	task := alice.Ask(t, b.v, b.home)
	bearer := alice.Token(t, b.resource())
	elsewhere := b.followAt(other, bearer, b.v.Subscribe, map[string]any{"id": task.ID})
	require.Equal(t, "task", elsewhere().Kind)
	b.decide(task.ID, "approve", map[string]any{})
	require.Equal(t, "artifact-update", elsewhere().Kind)
	require.Equal(t, b.v.Completed, elsewhere().State)

	task = carol.Ask(t, b.v, b.home)
	bearer = carol.Token(t, b.resource())
	cut := b.followAt(doomed, bearer, b.v.Subscribe, map[string]any{"id": task.ID})
	require.Equal(t, "task", cut().Kind)
	kill()
	require.Equal(t, event{}, cut(), "the process that ended has ended its streams")
	again := b.followAt(other, bearer, b.v.Subscribe, map[string]any{"id": task.ID})
	require.Equal(t, event{Kind: "task", ID: task.ID, State: b.v.Submitted}, again())
	b.decide(task.ID, "decline", map[string]any{})
	require.Equal(t, b.v.Rejected, again().State)
}

// TestTheStreamsOfARequestAreFew: its message is good for ever, so whoever has it
// could open as many as the process has room for.
func TestTheStreamsOfARequestAreFew(t *testing.T) {
	t.Parallel()
	b := setup(t, servertest.V1)
	alice := b.i.Agent(t, "alice")
	message := b.v.Message(alice.Part(t, b.home, b.home.Wish()))
	first := b.follow("", b.v.Stream, with(message))()
	for range 7 {
		require.Equal(t, "task", b.follow("", b.v.Stream, with(message))().Kind)
	}
	bearer := alice.Token(t, b.resource())
	require.Equal(t, http.StatusTooManyRequests, b.call("", b.v.Stream, with(message)).Status)
	require.Equal(t, http.StatusTooManyRequests, b.call(bearer, b.v.Subscribe, map[string]any{"id": first.ID}).Status)
	require.Equal(t, first.ID, b.call("", b.v.Send, with(message)).Task.ID, "only streams are bounded")
	// Another request has its own.
	carol := b.i.Agent(t, "carol")
	require.Equal(t, "task", b.follow("", b.v.Stream, with(b.v.Message(carol.Part(t, b.home, b.home.Wish()))))().Kind)
}
