package sqlite

// TransactionNames lists the names of all transactions of the store, in order: what
// [Options.Observe] is told and what failpoints are named after.
func TransactionNames() []string {
	return []string{
		"add-refused", "advance-job", "answers-of-task", "audit", "backup", "batch-state", "batches", "begin-logs", "begun-logs", "claim-segments", "close-task", "commit-job",
		"commit-log", "commit-segment", "counts", "create-resource", "damages", "data-keys", "delete-resource", "drain",
		"drop-tombstones", "end-data-key", "fail-resource", "fence", "forget-damage", "forget-log", "freeze", "frozen", "hold-task", "holds", "hurry",
		"kept", "kept-under", "keys-made", "ledger", "ledger-entry", "levels", "live-files", "merge-runs", "note-data-key", "note-keys", "open", "order",
		"park", "pending-resources", "put-task", "quarantine", "register", "registration", "registrations", "release", "release-read", "releases-after", "reload-resource", "renewed",
		"reseal", "resource", "resume", "retire-task", "retry-segment", "runs-of-task", "save-sent", "save-time",
		"seen-time", "segments-of-log", "sent", "shared-job", "shares", "shut-batches", "stuck", "sweep-task", "take-back",
		"tombstones", "unfinished-jobs",
	}
}
