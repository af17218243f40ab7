package a2a_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2aext"
	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

// TestTheClientsOfA2AGo drives both of a2a-go's clients, unmodified: each reads
// our card with its own parser, signs in by the card's security scheme, and
// sends, gets, lists, cancels, streams and reads the artifact.
func TestTheClientsOfA2AGo(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, v servertest.A2A, b *bundle) {
		ctx := t.Context()
		resolver, path := agentcard.NewResolver(nil), cardsV1
		options := []a2aclient.FactoryOption{}
		if v.Version == "0.3" {
			resolver, path = &agentcard.Resolver{CardParser: a2av0.NewAgentCardParser()}, cardsV03
			options = append(options, a2aclient.WithDefaultsDisabled(), a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{}))
		}
		card, err := resolver.Resolve(ctx, b.i.URL, agentcard.WithPath(path+"reviewer/.well-known/agent-card.json"))
		require.NoError(t, err)
		credentials := a2aclient.NewInMemoryCredentialsStore()
		options = append(options, a2aclient.WithCallInterceptors(a2aext.NewActivator(servertest.Extension), &a2aclient.AuthInterceptor{Service: credentials}))
		client, err := a2aclient.NewFromCard(ctx, card, options...)
		require.NoError(t, err)

		alice := b.i.Agent(t, "alice")
		message := func() *a2a.SendMessageRequest {
			var data map[string]any
			require.NoError(t, json.Unmarshal(alice.Part(t, b.home, b.home.Wish()), &data))
			return &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewDataPart(data))}
		}
		sent, err := client.SendMessage(ctx, message())
		require.NoError(t, err)
		task := sent.(*a2a.Task)
		require.Equal(t, a2a.TaskStateSubmitted, task.Status.State)

		_, err = client.GetTask(ctx, &a2a.GetTaskRequest{ID: task.ID})
		require.Error(t, err, "no token yet")
		credentials.Set("alice", "friend", a2aclient.AuthCredential(alice.Token(t, b.resource())))
		in := a2aclient.AttachSessionID(ctx, "alice")
		got, err := client.GetTask(in, &a2a.GetTaskRequest{ID: task.ID})
		require.NoError(t, err)
		require.Equal(t, task, got)
		_, err = client.GetTask(in, &a2a.GetTaskRequest{ID: a2a.NewTaskID()})
		require.ErrorIs(t, err, a2a.ErrTaskNotFound)

		canceled, err := client.CancelTask(in, &a2a.CancelTaskRequest{ID: task.ID})
		require.NoError(t, err)
		require.Equal(t, a2a.TaskStateCanceled, canceled.Status.State)
		_, err = client.CancelTask(in, &a2a.CancelTaskRequest{ID: task.ID})
		require.ErrorIs(t, err, a2a.ErrTaskNotCancelable)
		_, err = client.SendMessage(ctx, &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("Do this."))})
		require.ErrorIs(t, err, a2a.ErrUnsupportedContentType)

		stream, err := firstThenApprove(in, b, client, message())
		require.NoError(t, err)
		require.Equal(t, []a2a.TaskState{a2a.TaskStateSubmitted, a2a.TaskStateCompleted}, stream.states)
		require.Equal(t, 1, stream.artifacts)

		done, err := client.GetTask(in, &a2a.GetTaskRequest{ID: stream.id})
		require.NoError(t, err)
		require.Equal(t, a2a.ArtifactID("grant"), done.Artifacts[0].ID)
		grant := done.Artifacts[0].Parts[0].Data().(map[string]any)
		require.Contains(t, grant["mcp_endpoint"], b.i.URL+"/mcp/")

		extended, err := client.GetExtendedAgentCard(in, &a2a.GetExtendedAgentCardRequest{})
		require.NoError(t, err)
		require.Len(t, extended.Capabilities.Extensions[0].Params["grants"], 1)

		if v.Version == "0.3" {
			return // that client knows no list: ours is an addition to 0.3
		}
		list, err := client.ListTasks(in, &a2a.ListTasksRequest{PageSize: 1, IncludeArtifacts: true})
		require.NoError(t, err)
		require.Equal(t, 2, list.TotalSize)
		require.Equal(t, stream.id, list.Tasks[0].ID)
		require.Len(t, list.Tasks[0].Artifacts, 1)
		list, err = client.ListTasks(in, &a2a.ListTasksRequest{PageToken: list.NextPageToken})
		require.NoError(t, err)
		require.Equal(t, task.ID, list.Tasks[0].ID)
	})
}

type seen struct {
	id        a2a.TaskID
	states    []a2a.TaskState
	artifacts int
}

// firstThenApprove sends a streaming message, has bob approve at the first
// event, and gathers what follows.
func firstThenApprove(ctx context.Context, b *bundle, client *a2aclient.Client, message *a2a.SendMessageRequest) (s seen, err error) {
	for e, err := range client.SendStreamingMessage(ctx, message) {
		if err != nil {
			return s, err
		}
		switch e := e.(type) {
		case *a2a.Task:
			s.id = e.ID
			s.states = append(s.states, e.Status.State)
			b.decide(string(e.ID), "approve", map[string]any{})
		case *a2a.TaskStatusUpdateEvent:
			s.states = append(s.states, e.Status.State)
		case *a2a.TaskArtifactUpdateEvent:
			s.artifacts++
		}
	}
	return s, nil
}
