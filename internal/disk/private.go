package disk

import (
	"fmt"
	"io/fs"
	"path/filepath"
)

// A ModeError is a file with a secret in it that others than its owner may read or write.
type ModeError struct {
	Path string
	Mode fs.FileMode
}

func (e *ModeError) Error() string {
	return fmt.Sprintf("disk: %s has mode %04o; only its owner may have access: chmod 600 %s", e.Path, e.Mode, e.Path)
}

// private is what a file system can do that knows of owners.
type private interface{ checkPrivate(name string) error }

// CheckPrivate refuses a file that others than its owner may read or write, with a
// [*ModeError]. On file systems that know of no owners every file is private.
func CheckPrivate(fsys FS, name string) error {
	if p, ok := fsys.(private); ok {
		return p.checkPrivate(name)
	}
	return nil
}

func (o *OSFS) checkPrivate(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	info, err := o.root.Stat(name)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return &ModeError{filepath.Join(o.root.Name(), filepath.FromSlash(name)), info.Mode().Perm()}
	}
	return nil
}

func (s *sub) checkPrivate(name string) error {
	return s.do(name, func(at string) error { return CheckPrivate(s.fs, at) })
}
