package sqlite

// TransactionNames lists the names of all transactions of the store, in order: what
// [Options.Observe] is told and what failpoints are named after.
func TransactionNames() []string {
	return []string{
		"add-refused", "advance-job", "amend-task", "answers-of-task", "audit", "backup", "batch-state", "batches", "begin-logs",
		"begun-logs", "claim-jobs", "close-task", "commit-job", "commit-log", "counts", "create-resource", "damages",
		"data-keys", "delete-resource", "drain", "drop-tombstones", "end-data-key", "end-views", "fail-resource", "fence", "finish-job",
		"forget-damage", "forget-log", "forget-round", "forgo-collection", "freeze", "frozen", "give-up-task", "has-job", "hold-task", "holds", "hurry", "kept", "kept-under",
		"keys-made", "ledger", "ledger-entry", "leftover", "levels", "live-files", "log-fate", "merge-runs", "move-slices",
		"note-data-key", "note-keys", "open", "order", "park-job", "pending-resources", "put-task", "quarantine-job",
		"register", "registration", "registrations", "release", "release-read", "releases-after", "reload-resource",
		"renew-job", "renewed", "reseal", "resource", "resume", "retire-task", "retry-job", "runs-of-task", "save-sent", "save-time",
		"seen-time", "sent", "set-aside", "shared-job", "shares", "shut-batches", "slices", "spend", "stuck", "sweep-task",
		"tombstones", "totals", "unfinished-jobs", "usage",
	}
}
