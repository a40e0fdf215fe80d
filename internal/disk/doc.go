// Package disk keeps Starling's durable state: a file-system seam, named failpoints,
// atomic replacement and an append log with group commit. It knows nothing of reports,
// tasks or SQL.
//
// # Durability
//
// An [FS] promises no more than POSIX does. Bytes that were written are durable only
// after [File.Sync]; a name that was created, renamed or removed is durable only after
// [FS.SyncDir] of its directory. The helpers here ([WriteFile], [Remove], [MakeDirs]) do
// both in the right order, and the simulation in disktest loses everything that was not
// synced, so a forgotten sync shows up in tests as lost data.
//
// # Failure
//
// A failed sync leaves the state of the file unknown: the kernel may have dropped the
// dirty pages and marked them clean, so a second sync that succeeds proves nothing.
// Errors of that kind match [ErrStateUnknown]. The one correct answer is to stop using
// the file and to recover it by the code that also runs at start-up; a [Log] enforces
// this by refusing every later append.
//
// # The append log
//
// A log file is a 64-byte header (magic, version, random file id, CRC) and then frames:
//
//	marker   uint32  the first four bytes of the file id
//	length   uint32  of the payload, in bytes, never zero
//	durable  uint64  how many bytes of the file were known to be durable when the frame was written
//	crc      uint32  CRC-32C of file id, offset of the frame, length, durable and payload
//	payload
//
// all big-endian. The file id and the offset under the checksum mean that a frame of
// another file, or of another place in this one, never parses. [ScanLog] ends at the
// first bad frame. A bad frame in the last unsynced group is what losing power looks like
// and is no error; the durable field tells it apart from damage to frames that had been
// acknowledged, which a frame of a later group proves ([Scan.Damaged]).
//
// # Concurrency
//
// Every method of FS and Log may be called from many goroutines. A File may be read from
// many goroutines; writes, truncation and sync need the caller's own order.
package disk
