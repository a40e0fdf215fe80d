package pgdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Errors to branch on with [errors.Is].
var (
	// ErrUnknown: a transaction may or may not have taken place, and the database could not
	// be asked which. The handle stays usable.
	ErrUnknown = errors.New("pgdb: outcome of a commit unknown")
	// ErrConstraint: a CHECK, UNIQUE, EXCLUDE, FOREIGN KEY or trigger of the schema refused
	// the change; see [Violated].
	ErrConstraint = errors.New("pgdb: constraint")
	// ErrDenied: the role has no right to the statement.
	ErrDenied = errors.New("pgdb: permission denied")
	// ErrAway: the server was not reached, or refused every attempt. Nothing changed; it may
	// be tried again later.
	ErrAway = errors.New("pgdb: the server is not to be had")
	// ErrNoRoom: the server has no room for a transaction. Nothing changed; it may be tried
	// again later.
	ErrNoRoom = errors.New("pgdb: no room on the server")
	// ErrUnreached: there is no connection. The server does not answer, is not the one that is
	// trusted, or does not take the credentials. Nothing changed.
	ErrUnreached = errors.New("pgdb: the server cannot be reached")
	// ErrTooNew: the schema has been migrated beyond what this program works with.
	ErrTooNew = errors.New("pgdb: schema newer than this program")
	// ErrTooOld: the schema lacks a migration that [DB.Finish], or its owner, has to apply.
	ErrTooOld = errors.New("pgdb: schema older than this program needs")
	// ErrForeign: a migration was applied that this program has otherwise.
	ErrForeign = errors.New("pgdb: not a schema of this program")
	// ErrUnsafe: the server loses what it has committed.
	ErrUnsafe = errors.New("pgdb: the server does not keep what it commits")
	// ErrReadOnly: a view wrote.
	ErrReadOnly = errors.New("pgdb: a view cannot write")
)

// errAgain marks what did not take place and may be tried again.
var errAgain = errors.New("try again")

// Violated is the name of the constraint that refused a change, or the table whose trigger
// did; empty for all other errors.
func Violated(err error) string {
	var e *pgconn.PgError
	if !errors.As(err, &e) || class(e) != "23" {
		return ""
	}
	if e.ConstraintName != "" {
		return e.ConstraintName
	}
	return e.TableName
}

func class(e *pgconn.PgError) string {
	if len(e.Code) < 2 {
		return ""
	}
	return e.Code[:2]
}

// classify names what the server said, for a transaction that did not take place.
func classify(err error) error {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		err = fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) { // what another attempt would meet again
		return err
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if broken(err) {
			return fmt.Errorf("%w: %w", errAgain, err)
		}
		return err
	}
	switch {
	case class(e) == "23":
		return fmt.Errorf("%w: %w", ErrConstraint, err)
	case e.Code == "42501":
		return fmt.Errorf("%w: %w", ErrDenied, err)
	case e.Code == "25006": // read only: a server that failed over, if the transaction is none
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case class(e) == "53" && e.Code != "53300": // disk full, out of memory
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	case transient(e):
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return err
}

// transient says whether the server may answer the same transaction otherwise a moment
// later: conflicts (40), lost connections (08), servers that start, stop or fail over
// (57P), locks that were not had (55P03), too many connections (53300), idle transactions
// that were ended (25P03), and credentials that are being replaced (28).
func transient(e *pgconn.PgError) bool {
	switch {
	case class(e) == "40", class(e) == "08", class(e) == "28", strings.HasPrefix(e.Code, "57P"):
		return true
	}
	return e.Code == "55P03" || e.Code == "53300" || e.Code == "25P03"
}

// broken says whether a connection was lost, or not had.
func broken(err error) bool {
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}

// over says whether the caller wants no more.
func over(ctx context.Context) bool { return ctx.Err() != nil }
