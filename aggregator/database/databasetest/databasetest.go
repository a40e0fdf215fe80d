//go:build unix

// Package databasetest gives tests of whole aggregators a PostgreSQL server of their own, and
// lines to it on which things go wrong. It is what the engine's own tests have: see
// package pgtest.
package databasetest

import (
	"testing"

	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

type (
	// A Server is where tests have their schemas.
	Server = pgtest.Server
	// A Schema is one of them.
	Schema = pgtest.Schema
	// A Line is a way to a server; see [NewLine].
	Line = pgtest.Line
	// A Fate is what becomes of a statement on its way.
	Fate = pgtest.Fate
)

// Fates.
const (
	Arrives    = pgtest.Arrives
	LostBefore = pgtest.LostBefore
	LostAfter  = pgtest.LostAfter
	UnderWay   = pgtest.UnderWay
	Conflict   = pgtest.Conflict
	Deadlock   = pgtest.Deadlock
	NoRoom     = pgtest.NoRoom
	Unsynced   = pgtest.Unsynced
	ShutDown   = pgtest.ShutDown
)

// Connecting is what a line asks the fate of before all else, in place of SQL.
const Connecting = pgtest.Connecting

// Run runs the tests of a binary, and ends its server.
func Run(m *testing.M) int { return pgtest.Run(m) }

// New makes a schema in the server of the test binary.
func New(t testing.TB) *Schema { return pgtest.New(t) }

// NewServer starts a server for one test, which may stop it. It keeps what it commits.
func NewServer(t testing.TB) *Server { return pgtest.NewServer(t) }

// NewLine lays a line to where a connection string leads; see [pgtest.NewLine].
func NewLine(t testing.TB, connection string, fate func(sql string) Fate, rewrite func(sql string) string) *Line {
	return pgtest.NewLine(t, connection, fate, rewrite)
}
