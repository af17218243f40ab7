package mcp_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/todo"
)

// Whoever routes by the headers reads the body's first uri, or its last, or the
// one in lower case; we must not act on another one.
func TestParamsOfTwoReadingsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.todos.status = todo.Status{TodoID: aTodo, State: todo.Ready, Version: 1, Artifacts: []todo.Artifact{}}
	uri, other := "todo:"+aTodo.String(), "todo:01890a5d-ac96-774b-bcce-b302099a8058"
	meta, err := json.Marshal(b.peer.message("ping", nil)["params"].(map[string]any)["_meta"])
	require.NoError(t, err)
	read := func(params string) reply {
		h := b.peer.headers("resources/read", nil)
		h["Mcp-Name"] = uri
		return b.peer.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{%s,"_meta":%s}}`, params, meta), h)
	}
	require.Nil(t, read(`"uri":"`+uri+`"`).Error)
	for _, params := range []string{
		`"uri":"` + other + `","URI":"` + uri + `"`, `"uri":"` + other + `","uri":"` + uri + `"`, `"Uri":"` + uri + `"`, `"uri":"` + uri + `","more":1`,
	} {
		require.NotNil(t, read(params).Error, params)
	}
	for _, params := range []string{`"Notifications":{"toolsListChanged":true}`, `"notifications":{"toolsListChanged":true},"notifications":{}`} {
		r := b.peer.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{%s,"_meta":%s}}`, params, meta), b.peer.headers("subscriptions/listen", nil))
		require.NotNil(t, r.Error, params)
		require.Equal(t, -32602, r.Error.Code)
	}
}

// A waiting call runs outside of net/http, which elsewhere keeps a fault to its
// own request.
func TestAFaultInAWaitingCallIsItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.todos.fault = "a fault of ours"
	r := b.peer.tool("todo_status", `{"todo_id":"`+aTodo.String()+`","wait_seconds":5}`)
	require.Contains(t, r.text, "internal")
	require.NotContains(t, r.text, "a fault of ours")
}

// One document of two readings, kept by an older release, does not take the
// todos beside it along.
func TestAStoredDocumentSpoilsNoAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, raw := range []string{`{"a":1,"a":2}`, `"\ud800"`, "\"\xff\""} {
		b.todos.status = todo.Status{TodoID: aTodo, State: todo.Done, Version: 1, Result: json.RawMessage(raw), Artifacts: []todo.Artifact{}}
		r := b.peer.tool("todo_status", `{"todo_id":"`+aTodo.String()+`"}`)
		require.Nil(t, r.Error, raw)
		require.Contains(t, r.text, aTodo.String())
	}
}
