// Package payload keeps bytes under names, whole and unchanged until they are deleted,
// for whoever has a database that says what they are: five calls that files, object
// storage and rows of a database can all answer alike.
//
// # Engines
//
//	[Files]              one machine: files of a [disk.FS]
//	package objects      many replicas: S3-compatible object storage
//	package payloadtest  memory, and faults of every kind, for tests; the suite that each
//	                     engine passes
//
// Rows of a database, for payloads too small to be worth an object each, belong to the
// database's engine: it implements [Store] beside its tables.
//
// # Names
//
// A name is at most [MaxName] bytes of folders and one leaf, with slashes between: a
// folder is of a-z, 0-9 and "-", the leaf is that, a dot, and letters or digits behind
// it. So only a leaf has a dot, and no name is the folder of another; none means anything
// else to a file system, a URL or a shell; and all engines sort them alike, byte by byte.
// Names are made by programs, never taken from a stranger. No name is ever used for two
// contents: whoever makes one puts 16 random bytes into it, or a digest.
//
// # What a put promises
//
// [Store.Put] makes an object appear whole or not at all, and only where there is none of
// that name: of several that put the same name at once, in whatever process, one
// succeeds. Nil means that the object is durable and everybody's from now on: every later
// call of every handle sees it. Nothing changes an object afterwards but [Store.Delete].
//
// After any error but [ErrInvalid] the object may be there, or may come up later: a
// request that a network has delayed arrives when its sender has long given up. So
// finding nothing settles nothing. Finding the object does:
//
//   - [Keep] puts the same content under the same name again, which changes nothing where
//     the first put took effect, and takes it for success if what is there is that
//     content;
//   - or the name is given up for good. An object that turns up under it is found by
//     [Store.List], and deleted by whoever has first made sure, in the database, that
//     nobody will name it.
//
// A delete that failed may take effect late, too. Since names are not used twice that
// hurts nobody.
//
// # Errors
//
// Every error matches exactly one of [ErrInvalid], [ErrExists], [ErrNotFound], [ErrFull],
// [ErrDenied], [ErrCorrupt] and [ErrUnavailable]; where a context ended it is
// ErrUnavailable and the context's. [ErrUnavailable] alone is worth another try by
// itself; ErrFull and ErrDenied are worth one after somebody has done something about
// them, and an upload that meets one is back-pressure like any other. Engines try again
// by themselves, a bounded number of times and within the caller's context.
//
// # What it does not promise
//
// That the bytes are still those that were put: disks rot, and an object store is
// another's machine. The reader compares with the checksum in its row. Versions that a
// store keeps, backups and freed blocks outlive their deletion: what must become
// unreadable is under a key that is destroyed.
//
// Two handles on one data set are as good as one. All methods may be called from many
// goroutines.
package payload
