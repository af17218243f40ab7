// Package migrations embeds the schema of Switchboard as goose files in plain
// SQL.
//
// Files are append-only: one that has been released is never edited, because
// databases remember it by its number alone. The number divided by 1000 is the
// release that a file belongs to, and within a release each domain counts from
// its own tens (human 10, persona 20, endpoint 30, todo 40, friend 50,
// activity 60, rest 70, notify 80). A change is first an expansion that the
// previous release can live with, and a release later a contraction, so that
// programs of two neighbouring releases run on one database.
package migrations

import "embed"

// FS holds every migration.
//
//go:embed *.sql
var FS embed.FS

// Release returns the release that the migration with this number belongs to.
func Release(version int64) int64 { return version / 1000 }
