// Package segment keeps uploaded reports and the ids already seen in files that are
// written once: the way of a report from its acknowledgement to the job that claims it,
// without a row per report.
//
// # Files
//
//	inbox/<n>.log    append logs; every upload of the process goes into the newest ([Inbox])
//	segments/..      segments: immutable runs of reports of one task and one bucket ([Sorter], [Segment])
//	runs/..          sorted runs of report ids already aggregated in a task, for replay ([Runs])
//
// The folders are the caller's choice; each has to be this package's alone. A batch
// bucket is a multiple of the task's time_precision: the Time of the report as DAP writes
// it.
//
// # Durability: files before rows
//
// [Inbox.Put] returns when the reports are synced in a log. The sorter cuts a closed log
// into segment files, syncs the files and their directory, and only then has its
// [Committer] name them, by length and checksum, in one transaction that also records the
// log as sorted; the log file is removed after that. Deleting goes the other way: first
// the row, for which a tombstone comes, then the file, and last the tombstone. So a row
// never names a file that is not whole, and a whole file with neither row nor tombstone
// is kept (package lost), unless its log still waits ([Waiting]).
//
// A crash at any point leaves each acknowledged report in exactly one committed segment
// or in a log not yet sorted: a log is sorted again from its beginning unless the
// Committer says that it was done, and segment names follow from the log's id, so that
// sorting again overwrites what a crash left. A report that was not acknowledged appears
// at most once per upload.
//
// Duplicates: of several reports with one id in the same log, task and batch bucket the
// first is kept and the rest are counted ([Meta.Duplicates]); DAP takes a repeated upload
// of the same report silently. Others, of other logs or batch buckets, fall to the replay
// check at the claim.
//
// Where several machines share a database there is no log: an [Intake] gathers uploads of
// all tasks into objects (object.go), whose slices have rows before anything is
// acknowledged.
//
// # Start-up
//
// One process owns the folders ([disk.OSFS.Lock]): a second would take the first one's
// open log for an old one. [OpenInbox] finds the logs of earlier lives; what no row names
// is looked through before the sorter starts; [Sorter.Run] then sorts the old logs first.
// Of a log in which acknowledged records are damaged every whole one is taken, the others
// are counted ([LogDamage]), and the log is set aside (package lost), never deleted. A
// log of a newer version refuses the start.
//
// # Errors
//
// [ErrBusy] is back-pressure: nothing was kept, retry later. [ErrTooLarge] is permanent
// for that report. An error that matches [disk.ErrStateUnknown] means that the upload may
// or may not be kept. After a failed fsync the inbox refuses everything until the process
// opens it anew; after a failed write (a full disk) the next Put begins a new log.
// [ErrCorrupt] says that a named file is not what its row says. A run that is damaged or
// missing leaves questions about its ids without an answer, a [DamagedError], until
// [RewriteRun] has mended it.
//
// # Concurrency
//
// Inbox, Sorter, Segment and Runs are safe for many goroutines. The only goroutines are
// the log's committer, ended by [Inbox.Close], and the caller's own that runs
// [Sorter.Run], ended by its context.
package segment
