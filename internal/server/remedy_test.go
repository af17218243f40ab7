package server

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestDatabaseRemedy_ByWhatPostgreSQLSays(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{"28P01": "password", "28000": "pg_hba.conf", "3D000": "CREATE DATABASE", "53300": "max_connections", "XX000": "log"} {
		require.Contains(t, databaseRemedy("database_url", fmt.Errorf("reach: %w", &pgconn.PgError{Code: code})), want, code)
	}
}
