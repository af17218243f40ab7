package persona

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// BySlug finds a persona from outside. refusal.NotFound, the same, for a slug
// that is unknown, no slug at all, or of a persona that is off.
func (s *Store) BySlug(ctx context.Context, slug string) (Persona, error) {
	if !scope.QueueName(slug) {
		return Persona{}, errNoPersona
	}
	p, err := from(s.pool.Query(ctx, `
		SELECT `+columns+`
		FROM persona_slug r
		JOIN persona p ON p.owner = r.owner AND p.id = r.persona_id
		WHERE r.slug = $1 AND p.visibility <> 'off'`, slug))
	if err != nil {
		return Persona{}, fmt.Errorf("find persona: %w", err)
	}
	return p, nil
}

// Catalog lists the listed personas of the instance in the order of their
// slugs. query, when not empty, is looked for in slug, name and description,
// whatever the case.
func (s *Store) Catalog(ctx context.Context, query, cursor string, limit int) ([]Persona, string, error) {
	if err := checkText("query", query, 200); err != nil {
		return nil, "", err
	}
	bind := postgres.BindCursor("catalog", query)
	after := ""
	if cursor != "" {
		key, err := postgres.DecodeCursor(bind, cursor, 1)
		if err != nil {
			return nil, "", err
		}
		if after = key[0]; !scope.QueueName(after) {
			return nil, "", refusal.Invalid("cursor", "cursor is not one that this list returned")
		}
	}
	rows, err := s.pool.Query(ctx, `
		SELECT `+columns+`
		FROM persona_slug r
		JOIN persona p ON p.owner = r.owner AND p.id = r.persona_id
		WHERE r.listed AND r.slug > $1
			AND ($2 = '' OR strpos(lower(r.slug || ' ' || p.name || ' ' || p.description), lower($2)) > 0)
		ORDER BY r.slug
		LIMIT $3`, after, strings.TrimSpace(query), page(limit)+1)
	if err != nil {
		return nil, "", fmt.Errorf("list the catalog: %w", err)
	}
	list, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, "", fmt.Errorf("list the catalog: %w", err)
	}
	list, next := cut(list, page(limit), func(p Persona) string { return postgres.EncodeCursor(bind, p.Slug) })
	return list, next, nil
}
