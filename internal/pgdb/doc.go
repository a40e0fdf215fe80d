// Package pgdb reaches one schema of a PostgreSQL database: a pool of connections, numbered
// migrations, named statements and named transactions. It knows nothing of what is kept
// there.
//
// # Model
//
// Any number of processes work in one schema. Each has a [DB], whose methods may be called
// from many goroutines. [DB.Update] runs at READ COMMITTED: whoever takes a lock in it
// reads, in the statements that follow, all that was committed before the lock was had.
// [DB.View] runs read-only at REPEATABLE READ: it sees one state.
//
// # Nothing of a session
//
// A pooler in transaction mode may stand between, which hands each transaction to another
// connection: no statement is prepared under a name, no setting outlives its transaction
// (SET LOCAL alone), and there are no advisory locks and no notifications, which compatible
// distributed services lack as well. Connection strings that set parameters of a session
// are refused.
//
// # Durability
//
// When Update returns nil its effect survives the loss of power: each transaction asks for
// synchronous_commit, whatever the server's default is, and [Open] refuses a server that
// runs without fsync. [DB.Pass] alone asks for less. Whether it survives the loss of the
// server too is a matter of that server's synchronous standbys.
//
// # Failure
//
// Serialization failures, deadlocks, servers that start, stop or fail over, and
// connections that break are met by running the transaction again, after a pause, as long
// as the caller's context lasts and [Options.Attempts] are left. So the function given to
// Update or View may run several times: it begins with nothing of the time before, and
// its effects outside of the transaction are harmless.
//
// Where the answer to a COMMIT is lost the outcome is found out: each transaction inserts a
// row with a random token, and where no answer came the token is inserted once more, alone,
// as void. That waits for a transaction which is still under way. If the transaction's own
// row is there it took place; if the void one is, it did not and never will. [ErrUnknown]
// is left where the database cannot be reached for [Options.Resolve].
//
// # Trust
//
// TLS is verified as sslmode=verify-full does, unless the string says otherwise, and what
// is weaker is refused but on this machine. A connection string in a file is read for
// each new connection, so that credentials which are replaced there need no restart.
//
// # Versions of the schema
//
// Migrations are files NNNN_name.sql whose first line, "-- least: N", is the version that a
// program must have at least to work with what the migration leaves. One whose least is
// that of the schema before it only adds, and is applied by [Open]: programs of the old and
// of the new version then work side by side. One that takes away what the old version needs
// is applied by [DB.Finish], when no old one runs any more. A program that is older than
// the schema's least version is refused.
package pgdb
