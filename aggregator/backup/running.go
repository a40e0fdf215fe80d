package backup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/internal/disk"
)

// copyFileName is where the database of an aggregator that runs is copied to, beside it.
const copyFileName = "backup.db"

// A Copier is the store of an aggregator that runs.
type Copier interface {
	Copy(ctx context.Context, to string) (store.Copied, error)
}

// Send writes a backup of an aggregator that runs: the manifest, and the database as it was
// between two transactions. A crash after either leaves just that, so that such a backup is
// one of an aggregator that was stopped there. The copy lies beside the database until it
// is written; one call at a time, and [Sweep] at a start.
func Send(ctx context.Context, s Copier, data disk.FS, clock disk.Clock, w io.Writer) (err error) {
	defer func() { err = errors.Join(err, Sweep(data)) }()
	c, err := s.Copy(ctx, copyFileName)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	m := &Manifest{Role: c.Role.String(), Party: c.Party, Store: c.ID, Epoch: c.Epoch, Releases: c.Releases, Made: clock.Now().UTC()}
	if m.Size, m.SHA256, err = copyFile(data, copyFileName, io.Discard); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	b, err := m.encode()
	if err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	_, _, err = copyFile(data, copyFileName, w)
	return err
}

// Sweep removes the copy that a life left which ended during [Send].
func Sweep(data disk.FS) error {
	for _, name := range []string{copyFileName, copyFileName + ".tmp"} {
		if err := data.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("backup: %w", err)
		}
	}
	return nil
}

// Receive reads what [Send] writes, and makes the backup of it in a directory that is
// empty. It reads to the end, which comes when the sender has removed its copy. It fails
// with [ErrExists] and, where the stream is cut or damaged, [ErrDamaged].
func Receive(from io.Reader, to disk.FS) (*Manifest, error) {
	if err := checkEmpty(to); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(from, maxManifest)
	var text []byte
	for range 3 { // the magic, the JSON, the check
		line, err := r.ReadSlice('\n')
		if err != nil || len(text)+len(line) > maxManifest {
			return nil, fmt.Errorf("%w: no manifest came", ErrDamaged)
		}
		text = append(text, line...)
	}
	m, err := parse(text)
	if err != nil {
		return nil, err
	}
	err = disk.WriteStream(to, DatabaseFile, func(w io.Writer) error {
		if _, err := io.CopyN(w, r, m.Size); err != nil {
			return err
		}
		switch _, err := r.ReadByte(); err {
		case io.EOF:
			return nil
		case nil:
			return fmt.Errorf("%w: more came than the manifest says", ErrDamaged)
		default:
			return err
		}
	})
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%w: it was cut on its way", ErrDamaged)
	}
	if err == nil {
		err = m.copy(to, io.Discard)
	}
	if err == nil {
		err = disk.WriteFile(to, ManifestFile, bytes.Clone(text))
	}
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	return Read(to)
}
