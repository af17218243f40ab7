package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// Retryable reports whether err says that the transaction was rolled back for
// a reason that may be gone the next time: a serialization failure or a
// deadlock. The same transaction may then be run again.
func Retryable(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	switch pgErr.Code {
	case "40001", // serialization_failure
		"40P01": // deadlock_detected
		return true
	}
	return false
}

// RolledBack reports whether err proves that nothing of the transaction took
// effect. A connection that broke proves nothing: the commit may have reached
// the server. Nor does FATAL, with which a server that is being stopped cuts
// even a session that has committed.
func RolledBack(err error) bool {
	if pgconn.SafeToRetry(err) {
		return true
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	severity := pgErr.SeverityUnlocalized
	if severity == "" {
		severity = pgErr.Severity
	}
	// 40003 is statement_completion_unknown.
	return severity == "ERROR" && pgErr.Code != "40003"
}

// SQLState returns the five-character code of a server's error, or "".
func SQLState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// Violates reports whether err is the violation of the named constraint.
func Violates(err error, constraint string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.ConstraintName == constraint
}
