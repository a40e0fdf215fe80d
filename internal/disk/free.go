package disk

// sized may be implemented by an [FS] that knows how much room is left. A caller that
// writes much asks before the disk is full, while all that is under way can still be
// finished.
type sized interface {
	// Free is how many bytes may still be written, at the moment.
	Free() (bytes int64, err error)
}

// Free is how many bytes may still be written to an FS, and false where it does not know.
func Free(fsys FS) (bytes int64, known bool) {
	s, ok := fsys.(sized)
	if !ok {
		return 0, false
	}
	bytes, err := s.Free()
	return bytes, err == nil
}

// IsFull says whether an error is that of a disk, or a quota, without room.
func IsFull(err error) bool { return isFull(err) }
