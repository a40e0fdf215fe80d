// Package disktest simulates a disk that loses power: what was not synced may be lost,
// torn or there, independently of all else, and a failed sync leaves anything behind. A
// seed makes each loss repeatable.
//
// The model is harsher than any one journaling file system. Per file, the writes since
// the last sync survive as one of: none, all, a prefix cut at any byte, or a random
// choice of 512-byte sectors at one of the lengths the file had, where a sector that was
// allocated and not written holds zeros or rubbish. Per directory, the creations, renames
// and removals since the last SyncDir survive as a prefix or as a random choice; a rename
// is one step.
//
//	mem := disktest.NewMem(seed)
//	run(mem)             // the code under test; a failpoint may call mem.Cut
//	mem = mem.Crash()    // the disk as found after power came back
//	recoverAndCheck(mem)
package disktest
