package sqlite

// TransactionNames lists the names of all transactions of the store, in order: what [Options.Observe] is told and what
// failpoints are named after.
func TransactionNames() []string {
	return []string{
		"add-refused", "advance-job", "audit", "batch-state", "batches", "claim-segments", "commit-job", "commit-log",
		"commit-segment", "counts", "create-resource", "delete-resource", "drain", "drop-tombstones", "fail-resource", "fence", "forget-log",
		"freeze", "ledger", "ledger-entry", "live-files", "merge-runs", "open", "order", "park", "pending-resources", "put-task", "quarantine",
		"release", "release-read", "reload-resource", "resource", "resume", "retire-task", "retry-segment", "runs-of-task",
		"save-sent", "save-time", "seen-time", "segments-of-log", "shared-job", "shut-batches", "stuck", "sweep-task", "take-back", "tombstones", "unfinished-jobs",
	}
}
