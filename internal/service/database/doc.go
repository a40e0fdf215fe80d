// Package database opens the embedded database of a service: one SQLite file reached
// through a [disk.FS], with numbered migrations, named statements and named transactions.
//
// # Model
//
// One process owns the file, through one connection (locking_mode=EXCLUSIVE, so the WAL
// index lives on the heap and no shared memory is needed); transactions are serial. That
// is as fast as SQLite gets for writers, since it has one anyway, and it lets the whole
// of SQLite's input and output pass through a small VFS over disk.FS: a simulated loss of
// power reaches the database as it reaches every other file.
//
// # Durability
//
// WAL and synchronous=FULL: when [DB.Update] returns nil, its effect survives the loss of
// power.
//
// # Failure
//
// An error of the function given to Update rolls back: nothing changed. If COMMIT itself
// fails the outcome is unknown; Update then returns [ErrUnknown], and so does every later
// call, because what the process remembers may differ from what the disk holds. The
// answer is to close, open again and recover by the code that runs at every start.
//
// # Damage
//
// Every page of the file ends in a checksum, which is checked when it is read; [Open]
// reads all of them, and looks through the write-ahead log that it finds for frames that
// were whole once. Pages that come from the log while it is open are held to a hash of
// what was written. A database that is not right is [ErrDamaged]: Open refuses, an open
// database answers nothing any more. A checksum knows neither its page's number nor its
// age, and is no seal: whoever sums what a row says holds it to a hash of its own, and
// says ErrDamaged with it.
//
// # Erasure
//
// What is deleted is overwritten in the database file (secure_delete). The write-ahead
// log may hold it longer, unless the transaction asks for erasure: [Tx.Erase].
//
// # Names
//
// SQL lives in .sql files. A line "-- name: claim" begins a statement that the code calls
// "claim". A statement is prepared at its first use and kept, since a start would else
// pay for all of them; so whoever brings statements has a test that calls [DB.Prepare],
// where a wrong one fails. Each transaction has a name too, from which come its metric
// and its failpoints: "<prefix>.<name>.before-commit" and "<prefix>.<name>.after-commit",
// the latter being a commit that is done but reported failed.
package database
