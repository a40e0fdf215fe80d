// Package postgres keeps what one aggregator has in PostgreSQL, for any number of
// replicas: all of [store.Engine] but logs, for which an aggregator has a [segment.Intake].
// Package party opens it. Package pgdb runs its transactions, and package pgtest its tests.
//
// # Uploads
//
// There are no logs. The uploads that a [segment.Intake] gathers are one object, cut into
// slices, and one transaction that names them, after which the uploads are acknowledged:
// below 256 KiB the object is in its row, else it is durable in object storage before the
// transaction begins.
// The transaction holds the tasks as commits do, and refuses what comes for a batch bucket
// that is frozen or closed, or for a task that was closed. So no slice ever waits for one,
// and claims need not look.
//
// # Jobs
//
// A claim locks jobs that are due, and free slices, and passes over what others have locked;
// a leader-selected task that another claim assigns batches of is left to that one. A handle
// remembers behind which slices claims need not look, for all before are of tasks that are
// held, and which batches have their reports, so that neither is read each time (past, full).
//
// Each later transaction of a job begins with its row, found by number and lease token.
// Transactions that take slices away note the objects (ending). Bury looks whether any
// slice is left, which two that end at once cannot see of one another.
//
// # Leftovers
//
// Slices that wait in small objects, or in some that are mostly done, are moved to a new one
// by whoever has the turn ([Store.Turn]). A move locks slices, and jobs that have them, and
// leaves out what is leased; claims pass over what a move has locked. So a trickle of which
// jobs wait keeps some eight objects of each of a few sizes, and each report is written
// again a few times. Objects that no row names are looked for in what the object storage
// lists ([Store.SweepStrays]).
//
// # Locks
//
// The locks of package store are rows here, taken in its order. The task's row is held FOR
// KEY SHARE by commits, which therefore never wait for each other, and FOR UPDATE by what
// changes the state of batches. Nothing that a commit writes is a row that another commit
// of the same task writes: shares are appended (part), counts are (tally), and so are runs
// of ids (run). The ids of commits under way are flights, which are entered before the
// transaction and end with it. The ledger's turn is the row head.
//
// A commit is two transactions. The first one waits for no disk: in the task's turn (replay)
// it looks for the ids among flights and then runs, in that order, and enters its flight.
// The second one judges the batches, folds, appends, and takes the flight back, which must
// be there still: it may have expired, or have gone with a crash of the server. If it is
// gone the commit begins again, with the fold that it has, and fails where the verdicts
// have become others. The flight of a leader's job bears the token of its lease, and goes
// with it: whoever claims the job does not wait for a worker that was killed.
//
// # Replay protection
//
// A commit appends its ids as a run, and runs of about one size become one. A replica has a
// filter and the first id of each page in memory, some two bytes for each id, and reads pages
// of 256 ids: one for each id that is aggregated already, and one for some 700 others and
// runs. Both the memory and each page are proven by hashes in the row before they are used;
// a run that fails lets no commit of its task go on that could lean on it, until it is
// mended with the ids that its digest proves.
//
// The marks of credentials lie in such runs, too, those of a round by themselves, each
// with the report that has it. Spend needs no flight: its one transaction has the rows
// of the rounds, which say how many marks there are and what their set's digest is, so that
// a run that is gone or put back is found out. Merges share these rows, and only the end of
// a round waits for them.
//
// # Tidying
//
// A commit that finds many parts in a batch, many runs or many tallies makes few of them
// once it is answered, in transactions that take back what they replace: of two replicas
// that do so the second finds nothing left. Tokens of old transactions go by the way.
//
// # Callbacks
//
// What a caller hands in runs inside transactions, and may read through the engine: writers
// never take all connections. A transaction in which one takes longer than
// [pgdb.Options.Idle] is ended by the server and tried again.
//
// # Rules
//
// What must hold whatever the code does stands in the schema: releases are disjoint
// within a task and a view, and not below the task's minimum; the ledger has no UPDATE
// and no DELETE; what an issuer has answered only grows, until its key is destroyed. Two
// roles make these last two a wall: one that owns the tables and migrates, and one that
// the replicas connect as, which is granted what they do and no more. Where both are one
// role, it keeps mistakes out, and nobody who has the role's password.
//
// # Shredding
//
// Deleted rows stay in versions, logs and backups. So what must be forgotten lies under
// keys that are kept elsewhere, or wrapped by such a key in rows ([Vault]): a part, a kept
// share and noise name their data key, and what clients sealed is under the daily HPKE key.
// A part is sealed under the key of the time at which it came, which stays for as long as
// the part is there.
//
// Each task has a secret besides, which goes when it is retired. A part and noise lie
// under a key of both, a kept share under one of the secret, too, and the ids of runs and
// flights, and marks with their reports, are enciphered under keys of it. Secrets lie
// under a root of the day. docs/data-model.md says what that buys. A task of a schema of
// before gets its secret once no older program runs; what was written until then says of
// itself that it is of the old form, and both are read.
//
// # Compatible services
//
// A service that speaks PostgreSQL's protocol has to have READ COMMITTED and REPEATABLE
// READ, SKIP LOCKED, the lock modes FOR KEY SHARE and FOR UPDATE, exclusion constraints
// over ranges (GiST), rights on columns, triggers in PL/pgSQL, and CREATE TABLE in
// transactions. It may have UNLOGGED tables or take the word for nothing.
package postgres
