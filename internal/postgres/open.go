package postgres

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"
)

// Options adjusts the pool that [Open] makes.
type Options struct {
	// ApplicationName shows in pg_stat_activity; default "switchboard".
	ApplicationName string
	// MaxConns bounds the pool; default 4 per processor, at least 16.
	MaxConns int32
	// MinIdleConns are kept open so that a burst does not wait for handshakes.
	MinIdleConns int32
	// TransactionPooling says that the URL leads to a pooler such as PgBouncer
	// that hands out a server connection per transaction: no statement is
	// prepared by name and no setting is asked for that such poolers refuse.
	TransactionPooling bool
}

// Open returns a pool on the database at url after it has answered once.
// Sessions run in UTC. The caller closes the pool.
func Open(ctx context.Context, url string, o Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// pgx's message has the password already taken out.
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	config.MaxConns = o.MaxConns
	if config.MaxConns == 0 {
		config.MaxConns = int32(max(16, 4*runtime.NumCPU()))
	}
	config.MinIdleConns = min(o.MinIdleConns, config.MaxConns)
	config.MaxConnLifetime = time.Hour
	config.MaxConnLifetimeJitter = 10 * time.Minute
	config.MaxConnIdleTime = 10 * time.Minute
	configure(config.ConnConfig, o)
	// Times come out in UTC, as every wire form shows them, whatever the zone of
	// this machine.
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		// Otherwise pgx asks an id for its text, parses that, and in an array first
		// words an error for each element.
		pgxuuid.Register(conn.TypeMap())
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}})
		registerArrays(conn.TypeMap())
		return nil
	}

	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("make the database pool: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("reach the database: %w", err)
	}
	return pool, nil
}

// configure sets what every connection of ours has in common.
func configure(config *pgx.ConnConfig, o Options) {
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	params := config.RuntimeParams
	params["timezone"] = "UTC"
	if o.ApplicationName != "" {
		params["application_name"] = o.ApplicationName
	} else if params["application_name"] == "" {
		params["application_name"] = "switchboard"
	}
	if o.TransactionPooling {
		// Types are looked up and cached, statements stay unnamed: each query is
		// then complete in itself, whichever server connection runs it.
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		config.StatementCacheCapacity = 0
		return
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	// A replica that froze in the middle of a transaction must not hold its
	// locks for ever.
	params["idle_in_transaction_session_timeout"] = "60000"
}

// connect opens one connection outside any pool.
func connect(ctx context.Context, url string, o Options) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	configure(config, o)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("reach the database: %w", err)
	}
	return conn, nil
}
