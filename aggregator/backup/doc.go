// Package backup copies the store of a leader or a helper, and puts such a copy back when
// the store is lost. [Make] copies a stopped party's store, [Send] and [Receive] that of
// one that runs: they copy the store between two transactions, as a stop at that moment
// would have left it.
//
// # Contents of a backup
//
//	manifest  whose store it is, how far it had come, size and SHA-256 of the rest
//	store.db  the database: tasks, counts, the ledger of releases and the results
//
// It has no keys. Reports that wait are sealed to keys that are nowhere else, and data keys
// belong to the record; so neither the logs nor what is copied out of them comes along. The sums of
// batches that are open lie in the database: each backup is one share of them.
//
// # Effects of a restore
//
// A copy has forgotten the releases after it, and a server that released again on it
// would average the noise away. So a restore begins an epoch. First the record says so,
// durably: from then on any store in its place is refused until a restore has ended, and
// a crash at any step is mended by the same command once more. HPKE keys are destroyed
// and the reports that waited for them are removed. In one transaction of the database,
// every task of the backup and of the configuration is closed for good: it takes no
// report and releases nothing, which triggers of the database enforce, too. The releases
// in its ledger can still be asked for. The peer sees it in the comparison of the two and
// stops as well.
//
// A task that neither the backup nor the configuration knows cannot be closed: a recipe
// that was taken out of the configuration before the restore must not come back after it.
package backup
