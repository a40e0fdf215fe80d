package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// tasksName is the file of the ids of all tasks that were ever to be taken: what a backup
// has forgotten of them may have been released, so that none of them begins again after a
// restore. It has an id and a checksum for each, one after the other, and only grows.
const tasksName = "tasks"

// known is the size of an entry, in bytes.
const known = len(dap.TaskID{}) + 4

// maxKnown bounds the file, in bytes: some 29 million tasks.
const maxKnown = 1 << 30

// NoteTasks makes durable that tasks are to be taken, before they are.
func NoteTasks(fsys disk.FS, ids []dap.TaskID) (err error) {
	_, err = fsys.Stat(tasksName)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return fmt.Errorf("record: %w", err)
	}
	f, err := fsys.OpenWrite(tasksName)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	var b []byte
	for _, id := range ids {
		b = binary.BigEndian.AppendUint32(append(b, id[:]...), crc32.ChecksumIEEE(id[:]))
	}
	// A torn entry at the end is of a task that was not taken.
	if _, err := f.WriteAt(b, size-size%int64(known)); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if fresh {
		if err := fsys.SyncDir("."); err != nil {
			return fmt.Errorf("record: %w", err)
		}
	}
	return nil
}

// Tasks lists the ids of all tasks that were ever to be taken; some may be there twice, and
// some were never taken. Entries that cannot be read are left out.
func Tasks(fsys disk.FS) (ids []dap.TaskID, err error) {
	b, err := disk.ReadFile(fsys, tasksName, maxKnown)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	for ; len(b) >= known; b = b[known:] {
		id := dap.TaskID(b[:len(dap.TaskID{})])
		if binary.BigEndian.Uint32(b[len(id):]) == crc32.ChecksumIEEE(id[:]) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
