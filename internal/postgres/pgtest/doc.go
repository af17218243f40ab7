// Package pgtest gives every test a PostgreSQL database of its own, fresh and
// migrated.
//
// One server is started per test binary, at the first call, or none when
// SWITCHBOARD_TEST_POSTGRES names a running one (`switchboard dev-postgres --
// go test ./...` starts one for all packages). Databases are clones of a
// template that is migrated once per server, so that a test pays a fraction of
// a second. A server goes with the process that started it, however it ends;
// [Main] makes that orderly:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
package pgtest
