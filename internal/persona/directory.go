package persona

import "context"

// Entry is one persona as a directory shows it, of this instance or another.
type Entry struct {
	Slug        string   `json:"slug"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Card        string   `json:"card"`     // URL of the A2A 1.0 card
	Skills      []string `json:"skills"`   // names of the card's skills
	Source      string   `json:"source"`   // public URL of the instance or directory it was found in
	Verified    bool     `json:"verified"` // the card's signature was checked against its instance's keys
}

// Directory searches the listed personas of this instance.
type Directory struct {
	Store     *Store
	PublicURL string
}

// Search finds personas whose name, slug or description contains the query.
func (d Directory) Search(ctx context.Context, query, cursor string, limit int) ([]Entry, string, error) {
	ps, next, err := d.Store.Catalog(ctx, query, cursor, limit)
	if err != nil {
		return nil, "", err
	}
	entries := make([]Entry, 0, len(ps))
	for _, p := range ps {
		skills := []string{}
		for _, s := range p.Skills() {
			skills = append(skills, s.Name)
		}
		entries = append(entries, Entry{
			Slug: p.Slug, Name: p.Name, Description: p.Description, Skills: skills, Source: d.PublicURL, Verified: true,
			Card: d.PublicURL + "/a2a/" + p.Slug + "/.well-known/agent-card.json",
		})
	}
	return entries, next, nil
}
