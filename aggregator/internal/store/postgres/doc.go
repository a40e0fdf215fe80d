// Package postgres keeps what one aggregator has in PostgreSQL, for any number of
// replicas. It is to be an engine of [store.Engine] and is not one yet, and no product
// uses it: it has the schema, [store.Resources], and of [store.Tasks] all but the end of
// a task. There are no commits, releases, logs and segments. Package pgdb runs its
// transactions, and package pgtest its tests.
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
// # Rules
//
// What must hold whatever the code does stands in the schema: releases are disjoint within
// a task and a view, and not below the task's minimum; the ledger has no UPDATE and no
// DELETE. Two roles make that last one a wall: one that owns the tables and migrates, and
// one that the replicas connect as, which is granted what they do and no more. Where both
// are one role, it keeps mistakes out, and nobody who has the role's password.
//
// # Shredding
//
// Deleted rows stay in versions, logs and backups. So what must be forgotten lies under
// keys that are kept elsewhere: a part, a kept share and noise name their data key, and
// what clients sealed is under the daily HPKE key.
//
// # Compatible services
//
// A service that speaks PostgreSQL's protocol has to have READ COMMITTED and REPEATABLE
// READ, SKIP LOCKED, the lock modes FOR KEY SHARE and FOR UPDATE, exclusion constraints
// over ranges (GiST), rights on columns, and CREATE TABLE in transactions. It may have
// UNLOGGED tables or take the word for nothing.
package postgres
