package a2a

import (
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/refusal"
)

type taskParams struct {
	ID            string `json:"id"`
	HistoryLength *int   `json:"historyLength"`
}

func (c *call) taskID() (uuid.UUID, error) {
	var p taskParams
	if err := c.params(&p); err != nil {
		return uuid.Nil, err
	}
	if p.ID == "" {
		return uuid.Nil, invalidParams("id is missing")
	}
	if p.HistoryLength != nil && *p.HistoryLength < 0 {
		return uuid.Nil, invalidParams("historyLength must not be negative")
	}
	id, err := uuid.Parse(p.ID)
	if err != nil || len(p.ID) != 36 {
		return uuid.Nil, errTaskNotFound
	}
	return id, nil
}

func (c *call) get(who friend.Asker) (any, error) {
	id, err := c.taskID()
	if err != nil {
		return nil, err
	}
	req, err := c.Friends.GetOwn(c.r.Context(), who, id)
	if err != nil {
		return nil, asTask(err)
	}
	return c.version.task(task(req, true)), nil
}

func (c *call) cancel(who friend.Asker) (any, error) {
	id, err := c.taskID()
	if err != nil {
		return nil, err
	}
	req, err := c.Friends.Withdraw(c.r.Context(), who, id)
	if err != nil {
		return nil, asTask(err)
	}
	return c.version.task(task(req, true)), nil
}

// asTask turns the domain's words into A2A's.
func asTask(err error) error {
	switch refusal.CodeOf(err) {
	case refusal.NotFound:
		return errTaskNotFound
	case refusal.Conflict:
		return errTaskNotCancelable
	}
	return err
}

type listParams struct {
	ContextID            string     `json:"contextId"`
	Status               string     `json:"status"`
	PageSize             *int       `json:"pageSize"`
	PageToken            string     `json:"pageToken"`
	HistoryLength        *int       `json:"historyLength"`
	StatusTimestampAfter *time.Time `json:"statusTimestampAfter"`
	LastUpdatedAfter     *time.Time `json:"lastUpdatedAfter"` // a2a-go's 0.3 name
	IncludeArtifacts     bool       `json:"includeArtifacts"`
}

const defaultPage = 50

func (c *call) list(who friend.Asker) (any, error) {
	var p listParams
	if err := c.params(&p); err != nil {
		return nil, err
	}
	size := defaultPage
	if p.PageSize != nil {
		size = *p.PageSize
	}
	switch {
	case size < 1 || size > 100:
		return nil, invalidParams("pageSize must be from 1 to 100")
	case p.HistoryLength != nil && *p.HistoryLength < 0:
		return nil, invalidParams("historyLength must not be negative")
	}
	out := &a2a.ListTasksResponse{Tasks: []*a2a.Task{}, PageSize: size}
	f := friend.AskerFilter{}
	since := p.StatusTimestampAfter
	if since == nil {
		since = p.LastUpdatedAfter
	}
	if since != nil { // A2A means at or after, the filter means after
		before := since.Add(-time.Nanosecond)
		f.Since = &before
	}
	if p.Status != "" && p.Status != unspecified {
		state, known := c.version.state(p.Status)
		if !known {
			return nil, invalidParams("status is no task state of this A2A version")
		}
		if f.State = requestState(state); f.State == "" {
			return c.version.list(out), nil // a state that no friend request is ever in
		}
	}
	if p.ContextID != "" { // each request is a context of its own
		id, err := uuid.Parse(p.ContextID)
		if err != nil {
			return c.version.list(out), nil //nolint:nilerr // no context of ours, so it has no tasks
		}
		req, err := c.Friends.GetOwn(c.r.Context(), who, id)
		if err != nil && refusal.CodeOf(err) != refusal.NotFound {
			return nil, err
		}
		if err == nil && (f.State == "" || f.State == req.State) && (since == nil || !req.UpdatedAt.Before(*since)) {
			out.Tasks, out.TotalSize = append(out.Tasks, task(req, p.IncludeArtifacts)), 1
		}
		return c.version.list(out), nil
	}
	reqs, next, total, err := c.Friends.ListOwn(c.r.Context(), who, f, p.PageToken, size)
	if err != nil {
		if refusal.CodeOf(err) == refusal.InvalidArgument {
			return nil, invalidParams("pageToken is not one of ours")
		}
		return nil, err
	}
	for _, req := range reqs {
		out.Tasks = append(out.Tasks, task(req, p.IncludeArtifacts))
	}
	out.NextPageToken, out.TotalSize = next, total
	return c.version.list(out), nil
}
