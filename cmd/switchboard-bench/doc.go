// Command switchboard-bench measures the todo queue against its peers (bench) and
// tries to break it (soak).
//
// # bench
//
// One run starts a throwaway PostgreSQL with fsync and synchronous commit on,
// and what else it needs, on loopback. Contenders take turns within each of at
// least three rounds; a figure is the median of the rounds' ratios, so that what
// slows the machine down slows both sides of a ratio. Clients of a server are
// processes of their own. What is counted is counted after a warm-up; a process of
// ours that serves alone has had the time to learn that there is no other to tell
// about changes, except where two are measured.
//
// A lifecycle is: create under an idempotency key, claim the next, heartbeat,
// complete. Every caller runs lifecycles one after another. Callers are spread
// over eight owners, each with one queue and one home endpoint, in every
// contender; the contents are the same in every contender.
//
//	raw    the four steps by pgx with cached statements, each one transaction,
//	       in one table that is changed in place, with the indexes that they
//	       need, room in its pages, eager vacuum, SKIP LOCKED, a connection for
//	       each caller, and no authority check: a deliberately strong opponent
//	store  todo.Store in this process, with real endpoints and their authority
//	mcp    the whole server in its own process; a client process on net/http,
//	       one MCP call a step
//	lean   the same with a client that writes and reads HTTP/1.1 by hand, as the
//	       client takes its part of the same processors
//	batch  the same as mcp, fifty todos a call
//
// The figures:
//
//	mcp_over_raw          mcp ÷ raw at 64 callers, lifecycles a second
//	mcp_lean_over_raw     lean ÷ raw at 64 callers
//	store_over_raw_cN     store ÷ raw at N callers (1, 4, 64; 16 is shown too)
//	mcp_batch_over_raw    todos a second of batch ÷ raw, at 64 callers
//	drain_over_river      todos a second when 16 workers claim 100 and complete
//	                      100 of a queue filled beforehand, by todo.Store in this
//	                      process, ÷ jobs a second of River's burn-down of no-op
//	                      jobs with the settings of River's own benchmark
//	claim_p99_growth      p99 of a claim in a database with 1 million ready and 5
//	                      million finished todos ÷ in one with 1,000 ready and
//	                      none finished; single claims, turn by turn
//	wake_p99_same         with 1,000 calls of claim_next waiting on one queue: p99
//	                      of the time from sending create until the claim's answer
//	                      is there ÷ p50 of a single-row commit, measured in turn
//	                      with it; both through one server process
//	wake_p99_cross        the same, the create through another server process
//	bytes_per_waiter      growth of the server's resident memory with 2,500 calls
//	                      waiting, collected and returned to the system before and
//	                      after, ÷ their number: connection, goroutine, call
//	held_snapshot         lifecycles a second of store at 64 callers while another
//	                      session holds a REPEATABLE READ snapshot for 60 seconds ÷
//	                      before; the mean of the whole minute
//
// # soak
//
// Workers, server processes and PostgreSQL are killed and restarted while
// clients create, claim, heartbeat, complete, fail, release and ask through MCP.
// Every call is recorded before it is sent and after it was answered. In the
// end the queue is drained in peace, what the database says is read back, and
// the history is checked; see check.go for the rules.
package main
