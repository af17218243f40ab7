package web

import (
	"net/url"

	"github.com/google/uuid"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

// holderRow is one client that can open an endpoint, with all its tokens: a
// program that starts often holds several, and to a person they are one.
type holderRow struct {
	endpoint.Holder // the newest; LastUsed and ExpiresAt are the latest of all
	IDs             []uuid.UUID
}

func holderRows(holders []endpoint.Holder) (rows []holderRow) {
	at := map[[2]string]int{}
	for _, h := range holders {
		client := [2]string{h.Kind, h.Client}
		n, ok := at[client]
		if !ok {
			at[client], rows = len(rows), append(rows, holderRow{h, []uuid.UUID{h.ID}})
			continue
		}
		row := &rows[n]
		row.IDs = append(row.IDs, h.ID)
		if h.ExpiresAt.After(row.ExpiresAt) {
			row.ExpiresAt = h.ExpiresAt
		}
		if h.LastUsed != nil && (row.LastUsed == nil || h.LastUsed.After(*row.LastUsed)) {
			row.LastUsed = h.LastUsed
		}
	}
	return rows
}

// endHolders takes back every token that the form names; one that has ended
// already counts as taken back.
func (v *visit) endHolders(endpoint uuid.UUID, values url.Values, here string) error {
	holders := values["holder"]
	if len(holders) == 0 {
		return errNoPage
	}
	for _, text := range holders {
		holder, err := parseID(text)
		if err != nil {
			return err
		}
		err = v.Endpoints.RevokeHolder(v.r.Context(), v.owner(), endpoint, holder)
		if err != nil && refusal.CodeOf(err) != refusal.NotFound {
			return v.after(err, here, "")
		}
	}
	return v.redirect(here + "?done=token-ended")
}
