package participate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/recipe"
)

// MarkFile is the name, beside the ledger, of the second record of a charge: how far the
// ledger is paid up. It is replaced as a whole after each charge, and before a coin is
// tossed for it.
const MarkFile = "charged"

const (
	markMagic = "starling charged v1"
	markSize  = len(markMagic) + 2*8 + 3*sha256.Size + len(recipe.ID{}) + 8 + sha256.Size
)

// A digest is a SHA-256; zero stands for nothing.
type digest [sha256.Size]byte

// then chains a record to what came before it.
func (d digest) then(payload []byte) digest {
	h := sha256.New()
	h.Write(d[:])
	h.Write(payload)
	return digest(h.Sum(nil))
}

// A mark says what the ledger held when its last charge was acted on, and which file of
// draws belongs to it:
//
//	struct {
//	  opaque magic[19];        // "starling charged v1"
//	  uint64 serial;           // of this mark: how many were written
//	  uint64 records;          // that the ledger begins with
//	  opaque chain[32];        // over their payloads: SHA-256 of the chain so far and the payload
//	  opaque before[32];       // SHA-256 of the file of draws, as it was; zero is none
//	  opaque after[32];        // the same, once the change under way is done
//	  opaque recipe_id[32];    // whose draw changed last
//	  uint64 round;
//	  opaque checksum[32];     // SHA-256 of all before it
//	};
//
// The log alone cannot protect its last record: a reader takes a bad one at the end for a
// write that a loss of power tore. With the mark a record is either beyond it, and was
// never acted on, or before it, and has to be there.
type mark struct {
	serial        uint64
	records       uint64
	chain         digest
	before, after digest
	changed       drawKey
}

func (m *mark) code(c *wire.Coder) {
	c.Const(markMagic, "not a starling mark of version 1")
	c.Uint64(&m.serial, "serial")
	c.Uint64(&m.records, "records")
	c.Fixed(m.chain[:], "chain")
	c.Fixed(m.before[:], "before")
	c.Fixed(m.after[:], "after")
	c.Fixed(m.changed.recipe[:], "recipe id")
	c.Uint64(&m.changed.round, "round")
}

func (m mark) append(dst []byte) ([]byte, error) {
	b, err := wire.Append(dst, errRecord, m.code)
	if err != nil {
		return nil, err
	}
	return wire.AppendSum(b, len(dst)), nil
}

func readMark(file []byte) (m mark, err error) {
	content, ok := wire.CutSum(file)
	if !ok {
		return mark{}, fmt.Errorf("%w: wrong checksum", errRecord)
	}
	err = wire.Read(content, errRecord, m.code)
	return m, err
}

// readMarkFile reads the mark, if there is one.
func readMarkFile(fsys disk.FS) (m mark, ok bool, err error) {
	b, err := disk.ReadFile(fsys, MarkFile, int64(markSize))
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, false, nil
	}
	if err == nil {
		m, err = readMark(b)
	}
	if err != nil {
		return mark{}, false, fmt.Errorf("%s: %w", MarkFile, err)
	}
	return m, true, nil
}

// A position is a place in the ledger: after how many records, and what they chain to.
type position struct {
	records uint64
	chain   digest
}

func (p position) after(payload []byte) position {
	return position{p.records + 1, p.chain.then(payload)}
}

// load reads the ledger's records and holds them against its mark. It changes nothing on
// the disk.
func (l *Ledger) load(fsys disk.FS) error {
	// The mark comes first: a device that has the ledger open meanwhile only adds records
	// to those that it names.
	m, marked, err := readMarkFile(fsys)
	if err != nil {
		return err
	}
	l.mark, l.marked = m, marked
	scan, err := disk.ScanLog(fsys, LedgerFile)
	if err == nil {
		err = scan.Err(LedgerFile)
	}
	if !marked && errors.Is(err, fs.ErrNotExist) {
		return nil // new
	}
	if marked && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is gone, and %s has been used", LedgerFile, MarkFile)
	}
	if !marked && errors.Is(err, disk.ErrLogHeader) {
		if file, stat := fsys.Stat(LedgerFile); stat == nil && file.Size <= disk.LogHeaderSize {
			return nil // torn when it was made
		}
	}
	if err != nil {
		return err
	}
	if marked && m.records == 0 {
		return fmt.Errorf("%s: %w", MarkFile, errRecord)
	}
	for _, payload := range scan.Records {
		if err := l.read(payload); err != nil {
			return err
		}
		if l.at.records == m.records && l.at.chain != m.chain {
			return fmt.Errorf("%s and %s are of different ledgers, or of different times", LedgerFile, MarkFile)
		}
	}
	switch {
	case !marked && (l.at.records > 1 || l.at.records == 1 && scan.Cut > 0): // it stands before anything but the first record
		return fmt.Errorf("%s is gone, and %s has been used", MarkFile, LedgerFile)
	case l.at.records < m.records:
		return fmt.Errorf("%s ends after %d records, of which %d were acted on", LedgerFile, l.at.records, m.records)
	}
	return nil
}

// begin makes a new ledger's first record, and brings the mark up to what was read: a
// charge that it does not cover counts all the same, and its coin was never tossed.
func (l *Ledger) begin() error {
	if l.at.records == 0 {
		var id recipe.ID
		rand.Read(id[:]) // never fails
		if err := l.append(context.Background(), record{kind: kindBegun, recipe: id}); err != nil {
			return err
		}
	}
	if l.marked && l.mark.records == l.at.records {
		return l.raise(l.mark.serial) // the power may have gone between the two
	}
	return l.setMark(l.mark)
}

// setMark writes the mark of the ledger as it is. A failure leaves it unknown what the
// disk holds, and ends the ledger.
func (l *Ledger) setMark(m mark) error {
	if l.fsys == nil {
		return nil
	}
	m.serial, m.records, m.chain = m.serial+1, l.at.records, l.at.chain
	b, err := m.append(nil)
	if err == nil {
		err = disk.WriteFile(l.fsys, MarkFile, b)
	}
	if err != nil {
		l.broken = err
		return fmt.Errorf("%w: %w", ErrLedger, err)
	}
	l.mark, l.marked, l.unmarked = m, true, 0
	return l.raise(m.serial)
}

// raise brings the counter outside up to a mark that stands.
func (l *Ledger) raise(serial uint64) error {
	if l.o.Counter == nil {
		return nil
	}
	if err := l.o.Counter.Raise(serial); err != nil {
		l.broken = err
		return fmt.Errorf("%w: the counter outside: %w", ErrLedger, err)
	}
	return nil
}
