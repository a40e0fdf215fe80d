package aggregator

import (
	"cmp"
	"fmt"
)

// A StoreError is a store that is not used as it is: it was damaged, replaced or put back,
// so that opening it could release a batch a second time, or lose what was acknowledged
// without a word. Nothing of it was changed.
type StoreError struct {
	Fault  StoreFault
	Role   string // "leader" or "helper", as it was configured
	File   string // of the configuration; empty: that of the role's name
	Detail string // what was found, in words
}

// A StoreFault says what is wrong with a store.
type StoreFault uint8

const (
	// DatabaseLost: the database is gone or empty, and what lies around it is of a store
	// that was in use.
	DatabaseLost StoreFault = iota + 1
	// LogLost: the database's write-ahead log is gone, and what it held with it.
	LogLost
	// ForeignStore: database, files and record are not of one store, or of another
	// aggregator than is configured.
	ForeignStore
	// OlderStore: the database is older than its record says that it has been.
	OlderStore
	// DamagedStore: the database, its log, or a sum in it is not what was written.
	DamagedStore
	// RecordLost: the record is gone or cannot be read.
	RecordLost
	// RestoreBegun: a restore began and did not end.
	RestoreBegun
	// NewerSchema: the database has been migrated beyond what this program works with.
	NewerSchema
	// OlderSchema: the database lacks a migration that this program needs.
	OlderSchema
	// ForeignSchema: the schema of the database is another aggregator's, or another
	// program's.
	ForeignSchema
	// OlderDatabase: the database is older than its marks say that it has been.
	OlderDatabase
	// Unreached: no connection to the database is had. It does not answer, is not the one that
	// is trusted, or does not take the credentials.
	Unreached
	// OlderPrograms: processes of an older program live that need what a migration takes
	// away.
	OlderPrograms
	// MarksLost: the marks of the database are gone, or another's.
	MarksLost
)

// String is the fault in a word, for programs.
func (f StoreFault) String() string {
	switch f {
	case DatabaseLost:
		return "database lost"
	case LogLost:
		return "write-ahead log lost"
	case ForeignStore:
		return "another store's"
	case OlderStore:
		return "older than its record"
	case DamagedStore:
		return "damaged"
	case RecordLost:
		return "record lost"
	case RestoreBegun:
		return "restore not finished"
	case NewerSchema:
		return "schema newer than this program"
	case OlderSchema:
		return "schema older than this program"
	case ForeignSchema:
		return "another's schema"
	case OlderDatabase:
		return "database older than its marks"
	case Unreached:
		return "database not reached"
	case OlderPrograms:
		return "older programs still run"
	case MarksLost:
		return "marks lost"
	}
	return fmt.Sprintf("store fault %d", uint8(f))
}

func (e *StoreError) Error() string { return "store: " + e.Fault.String() + ": " + e.Detail }

// Remedy says what a person can do about it.
func (e *StoreError) Remedy() string {
	file := cmp.Or(e.File, e.Role+".toml")
	const anew = "; if they are gone for good, this store cannot go on: move its directories away and publish its recipes anew " +
		"(starling recipe new; \"When a store is refused\" in docs/operating.md), for a store that has forgotten may release a batch twice"
	switch e.Fault {
	case RestoreBegun:
		return "run the restore again: starling restore --from DIR --yes " + file
	case DatabaseLost, OlderStore, DamagedStore:
		return "put the newest files back, `data` in " + file + " says where; or, with a backup, starling restore --from DIR " + file + anew
	case LogLost:
		return "put store.db-wal back beside store.db, `data` in " + file + " says where" + anew
	case NewerSchema:
		return "start a newer starling: this one no longer works with the database (docs/operating.md, \"Several processes\")"
	case OlderSchema:
		return "bring it to this version: starling migrate " + file
	case Unreached:
		return "look at the connection strings that `database` in " + file + " names, with psql: sslrootcert=FILE in them names the authority that vouches for the server, " +
			"host= a name in its certificate; a server of this machine without TLS takes sslmode=disable (docs/operating.md, \"Several processes\")"
	case OlderPrograms:
		return "stop them, or start this version in their place; then: starling migrate --finish " + file + " (one that was killed counts for 30 seconds more)"
	case ForeignSchema:
		return "`database.schema` in " + file + " has to name the schema of this very aggregator, or one that is not there yet (docs/operating.md, \"Several processes\")"
	case OlderDatabase:
		return "bring the newest database back, `database.file` in " + file + " says where; if it is gone for good, stop all processes and say so: starling restore --database --yes " + file + " (\"PostgreSQL\" in docs/recovery.md)"
	case MarksLost:
		return "`database.marks` in " + file + " has to name the place where this aggregator's marks have always been" + anew
	case RecordLost:
		return "put its files back, or say with `record` in " + file + " where they are" + anew
	}
	return "`data` and `record` in " + file + " have to name the directories of one store of this very aggregator (docs/recovery.md)"
}
