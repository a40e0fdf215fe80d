package payload

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Limits of every engine.
const (
	// MaxObject is the largest object, in bytes; the smallest has one.
	MaxObject = 64 << 20
	// MaxName is the longest name, in bytes, what a handle puts before it not included.
	MaxName = 200
	// MaxPage is the most objects that List lists at once.
	MaxPage = 1000
)

// Errors to branch on; see the package comment.
var (
	ErrInvalid     = errors.New("payload: invalid name, size or range") // nothing was asked of the store
	ErrExists      = errors.New("payload: there is an object of that name")
	ErrNotFound    = errors.New("payload: no object of that name")
	ErrFull        = errors.New("payload: no room in the store")
	ErrDenied      = errors.New("payload: the store refuses access")
	ErrCorrupt     = errors.New("payload: the store's answer contradicts itself")
	ErrUnavailable = errors.New("payload: the store does not answer") // the outcome is unknown
)

// Store keeps objects under names. The package comment has the contract that every engine
// keeps.
type Store interface {
	// Put makes an object of parts, one after the other, durable under a name that has
	// none, or fails with ErrExists: then an object of that name is there, durable, and
	// may be this call's own where an attempt of it got no answer. The parts may be
	// reused when it returns.
	Put(ctx context.Context, name string, parts ...[]byte) error
	// ReadAt reads len(p) bytes, at least one, from an offset of an object on, and says
	// how many it read: fewer only with an error, which is io.EOF where the object ends
	// before. An offset at the end or behind it reads nothing, with io.EOF. Nothing
	// behind p[:n] is promised.
	ReadAt(ctx context.Context, name string, p []byte, offset int64) (n int, err error)
	// Delete removes an object, durably. That there is none is no error.
	Delete(ctx context.Context, name string) error
	// List lists the objects whose names begin with a prefix and come after a name, in
	// byte order, at most n of them, from 1 to MaxPage: fewer only where there are no
	// more. The prefix is folders, each with its slash, or empty; after need not exist,
	// nor be a name. Objects that are put or deleted meanwhile may be among them or not;
	// all others are. Files and keys that bear no name of ours are left out.
	List(ctx context.Context, prefix, after string, n int) ([]Object, error)
	// Size is the length of an object, in bytes.
	Size(ctx context.Context, name string) (int64, error)
}

// Object is what List tells of one.
type Object struct {
	Name string
	Size int64 // bytes
}

// CheckName refuses what is no name with [ErrInvalid].
func CheckName(name string) error {
	folders, leaf := cut(name)
	base, suffix, dotted := strings.Cut(leaf, ".")
	if len(name) > MaxName || !areFolders(folders) || !dotted || !isElement(base) || !isElement(suffix) ||
		strings.Contains(suffix, "-") || suffix == tempSuffix {
		return fmt.Errorf("%w: %.*q is no name", ErrInvalid, MaxName, name)
	}
	return nil
}

// checkPrefix refuses with [ErrInvalid] what is not empty and not folders, each with its
// slash.
func checkPrefix(prefix string) error {
	if len(prefix) > MaxName || !areFolders(prefix) {
		return fmt.Errorf("%w: %.*q is no prefix of names", ErrInvalid, MaxName, prefix)
	}
	return nil
}

// CheckPut refuses what no engine may put with [ErrInvalid], and returns its size.
func CheckPut(name string, parts [][]byte) (size int64, err error) {
	if err := CheckName(name); err != nil {
		return 0, err
	}
	for _, part := range parts {
		size += int64(len(part))
	}
	if size < 1 || size > MaxObject {
		return 0, fmt.Errorf("%w: put %s: %d bytes not in [1, %d]", ErrInvalid, name, size, MaxObject)
	}
	return size, nil
}

// CheckRead refuses what no engine may be asked to read with [ErrInvalid].
func CheckRead(name string, p []byte, offset int64) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if len(p) < 1 || len(p) > MaxObject || offset < 0 {
		return fmt.Errorf("%w: read %s: %d bytes from %d", ErrInvalid, name, len(p), offset)
	}
	return nil
}

// CheckList refuses what no engine may be asked to list with [ErrInvalid].
func CheckList(prefix, after string, n int) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	if n < 1 || n > MaxPage || len(after) > MaxName {
		return fmt.Errorf("%w: list %d objects after %.*q", ErrInvalid, n, MaxName, after)
	}
	return nil
}

// Ended is an error by which a call ends whose context has ended.
func Ended(ctx context.Context, what string) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, context.Cause(ctx))
}

// cut cuts a name into its folders, each with its slash, and its leaf.
func cut(name string) (folders, leaf string) {
	at := strings.LastIndexByte(name, '/') + 1
	return name[:at], name[at:]
}

func areFolders(s string) bool {
	if s == "" {
		return true
	}
	s, slashed := strings.CutSuffix(s, "/")
	for folder := range strings.SplitSeq(s, "/") {
		if !isElement(folder) {
			return false
		}
	}
	return slashed
}

func isElement(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return s != ""
}
