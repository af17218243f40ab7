package a2a

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"switchboard/internal/friend"
)

// task is the A2A face of a friend request. It keeps no message of the
// sender's: what was sent holds a token.
func task(r friend.Request, artifacts bool) *a2a.Task {
	t := &a2a.Task{ID: a2a.TaskID(r.ID.String()), ContextID: r.ID.String(), Status: status(r)}
	if artifacts && r.Artifact != nil {
		t.Artifacts = []*a2a.Artifact{grantArtifact(r.Artifact)}
	}
	return t
}

func status(r friend.Request) a2a.TaskStatus {
	at := r.UpdatedAt.UTC()
	s := a2a.TaskStatus{State: stateOf[r.State], Timestamp: &at}
	say := func(parts ...*a2a.Part) {
		s.Message = &a2a.Message{
			ID: r.ID.String() + "." + string(r.State), Role: a2a.MessageRoleAgent, Parts: parts,
			TaskID: a2a.TaskID(r.ID.String()), ContextID: r.ID.String(),
		}
	}
	switch {
	case r.State == friend.AwaitingSignIn && r.SignIn != nil:
		part := a2a.NewDataPart(map[string]any{"type": "sign-in", "url": r.SignIn.URL, "expires_at": r.SignIn.ExpiresAt.UTC().Format(time.RFC3339)})
		part.MediaType = "application/json"
		say(a2a.NewTextPart("Sign in at the URL, after adding redirect_uri (loopback), code_challenge, code_challenge_method=S256 and state to it; then redeem the code at /oauth/token."), part)
	case r.State == friend.Declined && r.Note != "", r.State == friend.Approved && r.Note != "":
		say(a2a.NewTextPart(r.Note))
	case r.State == friend.RequestExpired:
		say(a2a.NewTextPart("Nobody decided within 14 days."))
	}
	return s
}

func grantArtifact(g *friend.Artifact) *a2a.Artifact {
	data := map[string]any{}
	b, err := json.Marshal(g)
	if err == nil {
		err = json.Unmarshal(b, &data)
	}
	if err != nil {
		panic(fmt.Sprintf("a grant's artifact is plain data: %v", err))
	}
	part := a2a.NewDataPart(data)
	part.MediaType = "application/json"
	return &a2a.Artifact{ID: "grant", Name: "grant", Parts: a2a.ContentParts{part}}
}

var stateOf = map[friend.RequestState]a2a.TaskState{
	friend.AwaitingSignIn: a2a.TaskStateAuthRequired,
	friend.Pending:        a2a.TaskStateSubmitted,
	friend.Approved:       a2a.TaskStateCompleted,
	friend.Declined:       a2a.TaskStateRejected,
	friend.Withdrawn:      a2a.TaskStateCanceled,
	friend.RequestExpired: a2a.TaskStateFailed,
}

func requestState(s a2a.TaskState) friend.RequestState {
	for rs, ts := range stateOf {
		if ts == s {
			return rs
		}
	}
	return ""
}

var taskStates = []a2a.TaskState{
	a2a.TaskStateSubmitted, a2a.TaskStateWorking, a2a.TaskStateCompleted, a2a.TaskStateFailed, a2a.TaskStateCanceled,
	a2a.TaskStateInputRequired, a2a.TaskStateRejected, a2a.TaskStateAuthRequired,
}

func knownState(s a2a.TaskState) bool { return slices.Contains(taskStates, s) }
