// Package segment keeps uploaded reports and the ids already seen in files that are
// written once: the way of a report from its acknowledgement to the job that claims it,
// without a row or a second copy of each.
//
// # Files
//
//	inbox/<n>-<random>.log  append logs; every upload of the process goes into the newest ([Inbox])
//	slices/<random>.obj     what was copied out of logs while it waits ([MoveSlices])
//	runs/..                 sorted runs of report ids already aggregated in a task, for replay, and of the marks of a round ([Runs])
//
// The folders are the caller's choice; each has to be this package's alone. A batch
// bucket is a multiple of the task's time_precision: the Time of the report as DAP writes
// it.
//
// # Durability: files before rows
//
// [Inbox.Put] returns when the reports are synced in a log. The sorter lists the slices of
// a closed log and has its [Committer] name them, in one transaction that also records the
// log as sorted. The log stays until the last of them has ended or was moved: then comes a
// tombstone, then the file goes, and last the tombstone. So a row never names what is not
// durable and whole, and a copy with neither row nor tombstone is kept (package lost),
// unless what it has waits elsewhere ([Waiting]).
//
// A crash at any point leaves each acknowledged report in exactly one named slice or in a
// log not yet sorted, which is sorted unless the Committer knows its fate. A report that was
// not acknowledged appears at most once per upload. Records that another life has left in a
// log may be whole and not synced, and so may those before a write that failed: they are
// copied, durably, before rows name them, and so are the whole ones of a damaged log.
//
// # Slices
//
// What a log has of one task and batch bucket is a [Slice]: its pieces, one or more of
// each record, verbatim. A row names a slice by where the pieces are and by one checksum
// over its reports, so that no report is copied between its acknowledgement and its job. A
// job takes slices of several logs, in an order that its row keeps, and numbers the
// reports through them. Ids may come twice: in two pieces, for requests are repeated, and
// in two slices. The first report of an id counts in a job, and the rest as replays; across
// jobs the replay check tells.
//
// Damage is of a slice: one that cannot be opened says so ([SliceError]), and the others
// do not suffer. Memory is of a job: all of its slices are read into one buffer of their
// length, through a small one.
//
// Where several machines share a database the pieces lie in objects instead, one of which
// has what a group commit acknowledged (object.go): slices of one piece.
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
