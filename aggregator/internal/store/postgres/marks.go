package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/pgdb"
)

// marks say how far a database has come, in a place that no backup of it has, and that all
// replicas reach: so that one which was put back is found out, by each of them. Every mark
// is an object that is put where there is none and never changes:
//
//	whose.mark                         the aggregator, and the store's id
//	epoch/EPOCH.mark                   a restore was begun, which made the store's EPOCH
//	e/EPOCH/releases/SEQ.mark          the digest over all releases up to SEQ, and the task of it
//	e/EPOCH/ages/AGE.mark              the random word of the AGE-th time that the time was saved
//
// A database that was put back gives a number to another release than it did before, or to
// another word, and cannot put the mark of it: the name is taken. A mark is put after what
// it speaks of is committed, and before anybody learns of a release; so marks are never
// ahead of the database that they are of. Marks of releases have no gaps: whoever puts one
// first puts those before it. No row is written for a mark, so that nothing waits on it.
type marks struct {
	objects payload.Store
	role    string
	prefix  string // of the epoch's marks
	base    uint64 // the last release before them
	told    atomic.Pointer[told]
}

// told is a release whose mark, and those of all before it, are there. Its total is nil
// where it is the last one before the marks.
type told struct {
	seq   uint64
	total []byte
}

// OwnersMark is the mark that says whose they are. It is there as long as they are.
const OwnersMark = "whose.mark"

// marksMagic opens the mark that says whose they are.
const marksMagic = "starling marks v1\n"

// keptAges is how many marks of ages stay; the last is enough, and a slow replica may still
// be putting an older one.
const keptAges = 100

func (m *marks) release(seq uint64) string {
	return fmt.Sprintf("%sreleases/%020d.mark", m.prefix, seq)
}
func (m *marks) age(n uint64) string { return fmt.Sprintf("%sages/%020d.mark", m.prefix, n) }
func prefixOf(epoch uint64) string   { return fmt.Sprintf("e/%010d/", epoch) }
func epochMark(epoch uint64) string  { return fmt.Sprintf("epoch/%010d.mark", epoch) }

// openMarks compares the database with its marks, and begins them where there are none.
func (s *Store) openMarks(ctx context.Context, opt *Options) error {
	if opt.Marks == nil {
		return nil
	}
	m := &marks{objects: opt.Marks, role: opt.Role.String()}
	if err := s.ownMarks(ctx, m, opt.Party); err != nil {
		return err
	}
	last, err := m.last(ctx, "epoch/")
	if err != nil {
		return err
	}
	// A mark is put after the commit that it speaks of: the database, read after it, has that.
	now, err := s.marked(ctx)
	if err != nil {
		return err
	}
	if last > epochMark(now.epoch) {
		return s.refuse("a restore of it was declared that it knows nothing of: %s is there, and the database is of epoch %d", last, now.epoch)
	}
	m.prefix, m.base = prefixOf(now.epoch), now.base
	s.marks = m
	if err := s.checkAge(ctx); err != nil {
		return err
	}
	return s.checkReleases(ctx)
}

// marked is what the database says of its marks.
type marked struct {
	id    []byte // of the store
	epoch uint64
	begun bool
	base  uint64
}

func (s *Store) marked(ctx context.Context) (now marked, err error) {
	err = s.view(ctx, "marked", func(tx *pgdb.Tx) error {
		_, err := tx.One("marked", nil, &now.id, &now.epoch, &now.begun, &now.base)
		return err
	})
	return now, err
}

// last is the last mark of a folder, empty where there is none.
func (m *marks) last(ctx context.Context, folder string) (name string, err error) {
	for {
		page, err := m.objects.List(ctx, folder, name, payload.MaxPage)
		if err != nil {
			return "", fmt.Errorf("store: marks: %w", err)
		}
		if len(page) == 0 {
			return name, nil
		}
		name = page[len(page)-1].Name
	}
}

// ownMarks makes marks those of this store, or refuses them.
func (s *Store) ownMarks(ctx context.Context, m *marks, party string) error {
	const name = OwnersMark
	now, err := s.marked(ctx)
	if err != nil {
		return err
	}
	if now.begun {
		switch _, err := m.objects.Size(ctx, name); {
		case errors.Is(err, payload.ErrNotFound):
			return &aggregator.StoreError{Fault: aggregator.MarksLost, Role: m.role, Detail: name + " is gone, and the database had marks"}
		case err != nil:
			return fmt.Errorf("store: marks: %w", err)
		}
	}
	whose := fmt.Sprintf(marksMagic+"role %v\nparty %q\n", m.role, party)
	err = payload.Keep(ctx, m.objects, name, fmt.Appendf(nil, "%sid %x\n", whose, now.id))
	switch {
	case errors.Is(err, payload.ErrExists):
		there := make([]byte, 4096)
		n, err := m.objects.ReadAt(ctx, name, there, 0)
		if err != nil && err != io.EOF {
			return fmt.Errorf("store: marks: %w", err)
		}
		if strings.HasPrefix(string(there[:n]), whose) {
			return &aggregator.StoreError{Fault: aggregator.OlderDatabase, Role: m.role,
				Detail: "the marks are of a database of this aggregator that was in use, and this is another one: that one was lost, or lies elsewhere"}
		}
		return &aggregator.StoreError{Fault: aggregator.MarksLost, Role: m.role, Detail: "the marks are another aggregator's: " + name}
	case err != nil:
		return fmt.Errorf("store: marks: %w", err)
	case now.begun:
		return nil
	}
	return s.update(ctx, "begin-marks", func(tx *pgdb.Tx) error {
		_, err := tx.Exec("begin-marks")
		return err
	})
}

// checkAge refuses a database whose age is behind a mark's.
func (s *Store) checkAge(ctx context.Context) error {
	m := s.marks
	last, err := m.last(ctx, m.prefix+"ages/")
	if err != nil {
		return err
	}
	var age uint64
	var word []byte
	err = s.view(ctx, "age", func(tx *pgdb.Tx) error {
		_, err := tx.One("age", nil, &age, &word)
		return err
	})
	switch {
	case err != nil:
		return err
	case last > m.age(age):
		return s.refuse("its age is %d, and %s is there", age, last)
	case age == 0:
		return nil
	}
	return s.putAge(ctx, age, word)
}

func (s *Store) putAge(ctx context.Context, age uint64, word []byte) error {
	switch err := payload.Keep(ctx, s.marks.objects, s.marks.age(age), word); {
	case errors.Is(err, payload.ErrExists):
		return s.refuse("its age is %d, as it was once before, with another word", age)
	case err != nil:
		return fmt.Errorf("store: marks: %w", err)
	}
	return nil
}

// saveAge saves the time, and marks that it did. The mark may fail to be put: the next one
// says more.
func (s *Store) saveAge(ctx context.Context, seen int64) error {
	word := make([]byte, 16)
	rand.Read(word)
	var age uint64
	err := s.update(ctx, "save-time", func(tx *pgdb.Tx) error {
		_, err := tx.One("save-time-and-age", []any{seen, word}, &age)
		return err
	})
	if err != nil {
		return err
	}
	// The word in the database may be a later one by now, of another age.
	if err := s.putAge(ctx, age, word); err == nil && age > keptAges {
		_ = s.marks.objects.Delete(ctx, s.marks.age(age-keptAges)) // one that stays does no harm
	}
	if fault := s.fault(); fault != nil || ctx.Err() != nil {
		return errors.Join(fault, ctx.Err())
	}
	return nil
}

// checkReleases refuses a database that has fewer releases than there are marks, or others,
// and puts the marks that are missing.
func (s *Store) checkReleases(ctx context.Context) error {
	m := s.marks
	head, err := s.head(ctx)
	if err != nil {
		return err
	}
	// The marks of an epoch are a beginning of its releases.
	low, high := m.base, max(head, m.base)
	for low < high {
		middle := low + (high-low+1)/2
		there, err := m.has(ctx, middle)
		switch {
		case err != nil:
			return err
		case there:
			low = middle
		default:
			high = middle - 1
		}
	}
	if low > m.base {
		low-- // and compare the last one
	}
	m.told.Store(&told{seq: low})
	return s.compareReleases(ctx)
}

// compareReleases puts the marks that are missing, and refuses a database that has fewer
// releases than there are marks: what this process has seen of them is no measure, for other
// replicas release too.
func (s *Store) compareReleases(ctx context.Context) error {
	m := s.marks
	if m == nil {
		return nil
	}
	for {
		if err := s.tell(ctx); err != nil {
			return err
		}
		last := m.told.Load().seq
		there, err := m.has(ctx, last+1)
		if err != nil || !there {
			return err
		}
		// Another replica has put it since, or it is of a database that had come further.
		head, err := s.head(ctx)
		if err != nil {
			return err
		}
		if head <= last {
			return s.refuse("it has %d releases, and %s is there", head, m.release(last+1))
		}
	}
}

func (m *marks) has(ctx context.Context, seq uint64) (bool, error) {
	_, err := m.objects.Size(ctx, m.release(seq))
	if err != nil && !errors.Is(err, payload.ErrNotFound) {
		return false, fmt.Errorf("store: marks: %w", err)
	}
	return err == nil, nil
}

func (s *Store) head(ctx context.Context) (seq uint64, err error) {
	err = s.view(ctx, "head-now", func(tx *pgdb.Tx) error {
		_, err := tx.One("head-now", nil, &seq)
		return err
	})
	return seq, err
}

// toldAtOnce is how many releases are marked between two looks at the ledger.
const toldAtOnce = 100

// tell puts the marks of all releases. Nobody may learn of one before. It fails where one
// cannot be put, and for good where the database was put back.
func (s *Store) tell(ctx context.Context) error {
	m := s.marks
	if m == nil {
		return nil
	}
	for last := m.told.Load(); ; {
		after := last.seq
		if last.total != nil {
			after-- // the last one is read again, as it may be another by now
		}
		type release struct {
			told
			task []byte
		}
		var list []release
		err := s.view(ctx, "releases-to-mark", func(tx *pgdb.Tx) error {
			list = nil
			return tx.Each("releases-to-mark", []any{after, toldAtOnce}, func(row pgdb.Row) error {
				var r release
				err := row.Scan(&r.seq, &r.total, &r.task)
				list = append(list, r)
				return err
			})
		})
		if err != nil {
			return err
		}
		if last.total != nil {
			if len(list) == 0 || list[0].seq != last.seq || !bytes.Equal(list[0].total, last.total) {
				return s.refuse("its release %d is gone, or another by now", last.seq)
			}
			list = list[1:]
		}
		for _, r := range list {
			if r.seq != last.seq+1 {
				return fmt.Errorf("store: the ledger lacks release %d", last.seq+1)
			}
			switch err := payload.Keep(ctx, m.objects, m.release(r.seq), r.total, r.task); {
			case errors.Is(err, payload.ErrExists):
				return s.refuse("its release %d is another than the one that once had this number", r.seq)
			case err != nil:
				return fmt.Errorf("store: marks: %w", err)
			}
			last = &r.told
		}
		for old := m.told.Load(); old.seq < last.seq && !m.told.CompareAndSwap(old, last); old = m.told.Load() {
		}
		if len(list) < toldAtOnce-1 {
			return nil
		}
	}
}
