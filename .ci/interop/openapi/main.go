// A person's program that knows the instance by its OpenAPI document alone.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/oapi-codegen/runtime/types"

	"interop/openapi/client"
)

func main() {
	instance, program, document := os.Args[1], os.Args[2], os.Args[3]
	j, errs := newJudge(document)
	check("the document can be read", len(errs) == 0, errs)
	if j != nil {
		valid, about := j.ValidateDocument()
		reasons := ""
		for _, e := range about {
			reasons += explained(e) + "\n"
		}
		check("and is OpenAPI 3.1", valid, reasons)
		drive(context.Background(), j, instance, program)
		check(fmt.Sprintf("all %d exchanges are as it says", j.seen), j.seen > 20 && j.verdict() == nil, j.verdict())
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		check("no surprise", false, err)
		os.Exit(1)
	}
	return v
}

func ptr[T any](v T) *T { return &v }

// drive goes through the basic loop as bob.
func drive(ctx context.Context, j *judge, instance, program string) {
	browser := &http.Client{Jar: must(cookiejar.New(nil)), Transport: j, Timeout: time.Minute}
	must(browser.Get(instance + "/login?prompt=none&login_hint=bob&return_to=/v1/me")).Body.Close()
	bob := must(client.NewClientWithResponses(instance, client.WithHTTPClient(browser)))
	me := must(bob.GetMeWithResponse(ctx))
	check("signed in", me.JSON200 != nil && me.JSON200.Name == "Bob", me.Status())

	run := strconv.FormatInt(time.Now().UnixMilli(), 36)
	slug, queue := "openapi-"+run, "openapi-"+run
	key := &client.CreateAgentParams{IdempotencyKey: ptr("agent-" + run)}
	agent := must(bob.CreateAgentWithResponse(ctx, key, client.NewAgentBody{Name: slug}))
	check("agent", agent.JSON201 != nil, string(agent.Body))
	again := must(bob.CreateAgentWithResponse(ctx, key, client.NewAgentBody{Name: slug}))
	check("a repeat is answered as the first time", again.JSON201 != nil && again.JSON201.Id == agent.JSON201.Id && again.HTTPResponse.Header.Get("ETag") == agent.HTTPResponse.Header.Get("ETag"), string(again.Body))
	other := must(bob.CreateAgentWithResponse(ctx, key, client.NewAgentBody{Name: "another"}))
	check("another body is a conflict", other.ApplicationproblemJSON409 != nil && other.ApplicationproblemJSON409.Code == "conflict", string(other.Body))

	q := must(bob.CreateQueueWithResponse(ctx, nil, client.NewQueueBody{Name: queue}))
	check("queue", q.JSON201 != nil, string(q.Body))
	var anyone client.NewPersonaBody_WhoMayAsk
	_ = anyone.FromNewPersonaBodyWhoMayAsk0(client.NewPersonaBodyWhoMayAsk0Anyone)
	persona := must(bob.CreatePersonaWithResponse(ctx, nil, client.NewPersonaBody{
		AgentId: agent.JSON201.Id, Slug: slug, Name: slug, Queues: &[]string{queue}, Visibility: ptr(client.NewPersonaBodyVisibilityListed), WhoMayAsk: &anyone,
		Offers: &[]client.ScopeOffer{{Queue: queue, Verbs: []client.Verb{client.CreateFor, client.TodoStatus}, Limits: &client.ScopePartial{MaxOpen: ptr(int64(20))}}},
	}))
	check("persona", persona.JSON201 != nil, string(persona.Body))
	if persona.JSON201 == nil {
		return
	}
	home := must(bob.VendEndpointWithResponse(ctx, nil, client.NewEndpointBody{
		Kind: client.NewEndpointBodyKindHome, AgentId: agent.JSON201.Id, PersonaId: persona.JSON201.Id, Queues: []string{queue},
	}))
	check("home endpoint", home.JSON201 != nil && home.JSON201.Credential != nil, home.Status())

	state := must(os.MkdirTemp("", "openapi"))
	defer os.RemoveAll(state)
	out, err := exec.CommandContext(ctx, program, "friend", "--state", state, "request", instance+"/a2a/"+slug, "--headless", "alice", "--name", "release-bot", "--reason", "Interop.").CombinedOutput()
	check("alice asks", err == nil, string(out))

	found := must(bob.ListFriendRequestsWithResponse(ctx, &client.ListFriendRequestsParams{State: ptr("pending")}))
	at := -1
	if found.JSON200 != nil {
		at = slices.IndexFunc(found.JSON200.Items, func(r client.RequestView) bool { return r.Persona == slug })
	}
	check("the request is listed", at >= 0, string(found.Body))
	if at < 0 {
		return
	}
	asked := found.JSON200.Items[at]
	stale := must(bob.ApproveFriendRequestWithResponse(ctx, asked.Id, client.ApproveRequestBody{OfferVersion: ptr(asked.OfferVersion + 1)}))
	check("an offer that changed is a conflict", stale.ApplicationproblemJSON409 != nil, string(stale.Body))
	approved := must(bob.ApproveFriendRequestWithResponse(ctx, asked.Id, client.ApproveRequestBody{
		Scope:        &client.ScopeAsked{Queues: []string{queue}, Verbs: []client.Verb{client.CreateFor}, Limits: &client.ScopePartial{MaxOpen: ptr(int64(3))}},
		OfferVersion: &asked.OfferVersion,
	}))
	check("approved, narrower", approved.JSON200 != nil && approved.JSON200.Scope.Limits.MaxOpen == 3 && slices.Equal(approved.JSON200.Scope.Verbs, []client.Verb{client.CreateFor}), string(approved.Body))
	if approved.JSON200 == nil {
		return
	}
	grants(ctx, bob, approved.JSON200.Id, queue)
	todos(ctx, bob, queue)
	nobody := must(client.NewClientWithResponses(instance, client.WithHTTPClient(&http.Client{Transport: j})))
	refused := must(nobody.GetMeWithResponse(ctx))
	check("a stranger is refused", refused.ApplicationproblemJSON401 != nil && refused.ApplicationproblemJSON401.Code == "unauthenticated", string(refused.Body))
	tokens(ctx, j, bob, instance)
}

func grants(ctx context.Context, bob *client.ClientWithResponses, id types.UUID, queue string) {
	mine := must(bob.ListGrantsWithResponse(ctx, &client.ListGrantsParams{Direction: ptr(client.ListGrantsParamsDirectionIn)}))
	check("grants", mine.JSON200 != nil && slices.ContainsFunc(mine.JSON200.Items, func(g client.GrantView) bool { return g.Id == id && g.State == client.GrantViewStateActive }), string(mine.Body))
	one := must(bob.GetGrantWithResponse(ctx, id))
	check("one grant, with its version", one.Headers200 != nil && one.Headers200.ETag != nil, one.Status())
	narrower := client.NarrowGrantBody{Scope: client.ScopeAsked{Queues: []string{queue}, Verbs: []client.Verb{client.CreateFor}, Limits: &client.ScopePartial{PerHour: ptr(int64(1))}}}
	old := must(bob.NarrowGrantWithResponse(ctx, id, &client.NarrowGrantParams{IfMatch: ptr(`"0"`)}, narrower))
	check("a version that is gone is 412", old.ApplicationproblemJSON412 != nil, string(old.Body))
	narrowed := must(bob.NarrowGrantWithResponse(ctx, id, &client.NarrowGrantParams{IfMatch: one.Headers200.ETag}, narrower))
	check("narrowed", narrowed.JSON200 != nil && narrowed.JSON200.Scope.Limits.PerHour == 1, string(narrowed.Body))
	narrower.Scope.Limits.PerHour = ptr(int64(500))
	wider := must(bob.NarrowGrantWithResponse(ctx, id, nil, narrower))
	check("wider is refused", wider.ApplicationproblemJSON422 != nil && wider.ApplicationproblemJSON422.Code == "invalid_argument", string(wider.Body))
	paused := must(bob.PauseGrantWithResponse(ctx, id, nil))
	check("paused", paused.JSON200 != nil && paused.JSON200.State == client.GrantViewStatePaused, string(paused.Body))
	revoked := must(bob.RevokeGrantWithResponse(ctx, id, nil, client.RevokeGrantBody{OpenTodos: ptr(client.Finish)}))
	check("revoked", revoked.JSON200 != nil && revoked.JSON200.State == client.GrantViewStateRevoked, string(revoked.Body))
	gone := must(bob.GetGrantWithResponse(ctx, types.UUID{15: 1}))
	check("an unknown one is 404", gone.ApplicationproblemJSON404 != nil, string(gone.Body))
}

func todos(ctx context.Context, bob *client.ClientWithResponses, queue string) {
	made := must(bob.CreateTodoWithResponse(ctx, nil, client.NewTodoBody{Queue: queue, Title: "Review", Payload: map[string]any{"pull_request": 7}}))
	check("todo", made.JSON201 != nil && made.JSON201.State == client.Ready, string(made.Body))
	first := must(bob.ListTodosWithResponse(ctx, &client.ListTodosParams{Queue: &queue, Limit: ptr(int64(1))}))
	check("todos, page by page", first.JSON200 != nil && len(first.JSON200.Items) == 1, string(first.Body))
	whole := must(bob.GetTodoWithResponse(ctx, made.JSON201.Id))
	check("one todo", whole.JSON200 != nil && whole.JSON200.Title != nil && *whole.JSON200.Title == "Review", string(whole.Body))
	canceled := must(bob.CancelTodoWithResponse(ctx, made.JSON201.Id, client.CancelTodoBody{}))
	check("canceled", canceled.JSON200 != nil && canceled.JSON200.State == client.Canceled, string(canceled.Body))
	for what, r := range map[string]interface{ StatusCode() int }{
		"inbox": must(bob.ListInboxWithResponse(ctx, nil)), "activity": must(bob.ListActivityWithResponse(ctx, nil)), "directory": must(bob.SearchDirectoryWithResponse(ctx, nil)),
		"blocks": must(bob.ListBlocksWithResponse(ctx, nil)), "personas": must(bob.ListPersonasWithResponse(ctx, nil)), "endpoints": must(bob.ListEndpointsWithResponse(ctx, nil)),
	} {
		check(what, r.StatusCode() == 200)
	}
}

// tokens is what a program does with an API token.
func tokens(ctx context.Context, j *judge, bob *client.ClientWithResponses, instance string) {
	token := must(bob.CreateApiTokenWithResponse(ctx, nil, client.NewTokenBody{Name: "interop"}))
	check("API token", token.JSON201 != nil && token.JSON201.Token != nil, token.Status())
	bearer := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+*token.JSON201.Token)
		return nil
	}
	program := must(client.NewClientWithResponses(instance, client.WithHTTPClient(&http.Client{Transport: j}), client.WithRequestEditorFn(bearer)))
	read := must(program.ListGrantsWithResponse(ctx, nil))
	check("it reads", read.JSON200 != nil, string(read.Body))
	write := must(program.CreateAgentWithResponse(ctx, nil, client.NewAgentBody{Name: "no"}))
	check("and makes nothing", write.ApplicationproblemJSON403 != nil, string(write.Body))
	ended := must(bob.DeleteApiTokenWithResponse(ctx, token.JSON201.Id))
	check("and ends", ended.StatusCode() == 204, string(ended.Body))
}
