package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres"
	"switchboard/migrations"
)

// templateLock is the key of the advisory lock under which the template is made.
const templateLock int64 = 0x5357_5445_4d50 // "SWTEMP"

// cluster is the server that the tests of this binary share.
type cluster struct {
	dev      *postgres.DevServer // nil when the server is somebody else's
	admin    *pgxpool.Pool       // on its maintenance database
	url      string
	template string
}

var (
	once     sync.Once
	shared   *cluster
	startErr error
)

// Main runs the tests and stops the shared server after them. It does not
// return.
func Main(m *testing.M) {
	code := m.Run()
	if shared != nil {
		shared.admin.Close()
		if shared.dev != nil {
			if err := shared.dev.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "pgtest:", err)
			}
		}
	}
	os.Exit(code)
}

// URL returns the address of a new database, migrated to the newest schema. It
// is dropped when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	c := sharedCluster(t)
	return c.database(t, c.template)
}

// Empty returns the address of a new database without any schema.
func Empty(t testing.TB) string {
	t.Helper()
	return sharedCluster(t).database(t, "template1")
}

// Pool returns a pool on a new database like that of [URL].
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Open(t, URL(t))
}

// Open returns a pool on the database at url, closed when the test ends: a
// second replica, for instance.
func Open(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(context.Background(), url, postgres.Options{ApplicationName: "test", MaxConns: 16})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// Server returns a server that this test alone uses and may kill and restart,
// with a migrated database "switchboard". It is stopped when the test ends.
func Server(t testing.TB) *postgres.DevServer {
	t.Helper()
	ctx := context.Background()
	s, err := postgres.StartThrowaway(ctx, postgres.DevOptions{Database: "switchboard"})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop the test's server: %v", err)
		}
	})
	require.NoError(t, postgres.Migrate(ctx, s.URL("switchboard")))
	return s
}

func sharedCluster(t testing.TB) *cluster {
	t.Helper()
	once.Do(func() { shared, startErr = startCluster(context.Background()) })
	require.NoError(t, startErr, "the tests' PostgreSQL")
	return shared
}

// startCluster finds or starts the server and makes sure of the template.
func startCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{url: os.Getenv(postgres.TestURLVariable)}
	if c.url == "" {
		dev, err := postgres.StartThrowaway(ctx, postgres.DevOptions{})
		if err != nil {
			return nil, err
		}
		c.dev, c.url = dev, dev.URL("postgres")
	}
	var err error
	c.admin, err = postgres.Open(ctx, c.url, postgres.Options{ApplicationName: "pgtest", MaxConns: 4})
	if err != nil {
		return nil, err
	}
	if c.template, err = templateName(migrations.FS); err != nil {
		return nil, err
	}
	if err := c.makeTemplate(ctx); err != nil {
		return nil, fmt.Errorf("make the template database: %w", err)
	}
	return c, nil
}

// templateName changes with every change to a migration.
func templateName(files fs.FS) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(content), content)
		return err
	})
	return "template_" + hex.EncodeToString(h.Sum(nil)[:8]), err
}

// makeTemplate migrates a database once per server. The flag datistemplate is
// set last and says that it is whole.
func (c *cluster) makeTemplate(ctx context.Context) error {
	conn, err := c.admin.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", templateLock); err != nil {
		return err
	}
	defer conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", templateLock) //nolint:errcheck // the session's end unlocks too

	var whole bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)", c.template).Scan(&whole); err != nil {
		return err
	}
	if whole {
		return nil
	}
	name := pgx.Identifier{c.template}.Sanitize()
	if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return err
	}
	if err := postgres.Migrate(ctx, c.at(c.template)); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE "+name+" IS_TEMPLATE true ALLOW_CONNECTIONS false")
	return err
}

// database clones the template and drops the clone when the test ends.
func (c *cluster) database(t testing.TB, template string) string {
	t.Helper()
	ctx := context.Background()
	name := "test_" + rand.Text()
	_, err := c.admin.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s",
		pgx.Identifier{name}.Sanitize(), pgx.Identifier{template}.Sanitize()))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := c.admin.Exec(ctx, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", pgx.Identifier{name}.Sanitize()))
		if err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return c.at(name)
}

// at returns the address of another database on the same server.
func (c *cluster) at(db string) string {
	u, err := url.Parse(c.url)
	if err != nil {
		return c.url // startCluster has connected with it
	}
	u.Path = "/" + db
	return u.String()
}
