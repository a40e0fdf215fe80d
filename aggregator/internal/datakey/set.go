package datakey

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/internal/disk"
)

// Failpoints of this package: a crash at each must neither lose a key that is needed nor
// bring one back.
const (
	// a new key's file is durable, the store does not know it
	failAfterFile     = "datakeys.after-file"
	failAfterMake     = "datakeys.after-make"     // the store knows it
	failBeforeDestroy = "datakeys.before-destroy" // nothing needs the key
	// the store says that it ended, the file is whole
	failAfterEnd       = "datakeys.after-end"
	failAfterOverwrite = "datakeys.after-overwrite" // the file holds zeros
)

// FailpointNames lists the failpoints of this package.
func FailpointNames() []string {
	return []string{failAfterFile, failAfterMake, failBeforeDestroy, failAfterEnd, failAfterOverwrite}
}

// ErrDamaged: the keys are not those that the store has used, so that new ones would draw
// noise again. It is for the operator.
var ErrDamaged = errors.New("datakey: damaged")

// A GoneError says that there is no key for a time any more: nothing of it is released.
type GoneError struct {
	At time.Time
	// Lost: the key was not destroyed, its file is missing or damaged.
	Lost bool
}

func (e *GoneError) Error() string {
	at := e.At.UTC().Format(time.RFC3339)
	if e.Lost {
		return "the file of the data key of " + at + " is lost or damaged, or was destroyed after this copy of the data was made, " +
			"and noise is never drawn with another: put the file back"
	}
	return "the data key of " + at + " has been destroyed, as nothing of that time was to be released any more, or was given up"
}

// An AheadError says that the key of a time is not made yet: the clock will make it.
type AheadError struct{ At time.Time }

func (e *AheadError) Error() string {
	return "by this clock the data key of " + e.At.UTC().Format(time.RFC3339) + " is not made yet"
}

// A Book is where the store remembers which keys there were. Each method is one durable
// transaction.
type Book interface {
	// DataKeys are the keys noted, by serial, and the set that they are of; none and zero
	// for a new store.
	DataKeys(ctx context.Context) (SetID, []Record, error)
	// NoteDataKey notes a key, and with the first one the set. Again is harmless.
	NoteDataKey(ctx context.Context, set SetID, r Record) error
	// EndDataKey notes that a key is destroyed. It cannot be undone.
	EndDataKey(ctx context.Context, serial uint64) error
}

// DefaultPeriod is how long a key is the one of the time that runs.
const DefaultPeriod = 7 * 24 * time.Hour

const minPeriod = aggregator.MinDataKeyPeriod

// Options make a [Set].
type Options struct {
	// Vault holds the keys of replicas, which share the book, too; default the directory Dir
	// of FS.
	Vault vault.Vault
	// FS holds the keys, and should not be the place of the data. Required without Vault.
	FS disk.FS
	// Dir is the directory in it, which is the set's alone; default "data-keys".
	Dir string
	// Book is the store's memory. Required.
	Book Book
	// Period is how much time a key is of; default [DefaultPeriod], at least an hour. A
	// change counts for keys that are not made yet.
	Period time.Duration
	// Keep is how long after its time a key stays at least; negative: for ever.
	Keep time.Duration
	// Clock is the time; default the system's.
	Clock disk.Clock
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
	// Log gets an event for each key that is made, lost or destroyed; default none.
	Log *slog.Logger
}

// Validate fills in defaults and says what is wrong.
func (o *Options) Validate() error {
	if o.Dir == "" {
		o.Dir = "data-keys"
	}
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Period == 0 {
		o.Period = DefaultPeriod
	}
	switch {
	case o.FS == nil && o.Vault == nil:
		return errors.New("datakey: no file system")
	case o.Book == nil:
		return errors.New("datakey: no book")
	case o.Period < minPeriod:
		return fmt.Errorf("datakey: a period of %v, want %v or more", o.Period, minPeriod)
	}
	return disk.CheckName(o.Dir)
}

// place is where the keys are.
func (o *Options) place() place {
	if o.Vault != nil {
		return shared{o.Vault}
	}
	return &directory{fs: o.FS, dir: o.Dir, fail: o.Failpoints}
}

// A Set is the data keys of one aggregator. Safe for concurrent use.
type Set struct {
	opt   Options
	place place
	step  sync.Mutex // held while keys are made and destroyed, and while they are read again; taken before mu
	id    SetID      // zero until there is a key; step guards it

	mu    sync.Mutex
	known []Record         // by serial, ended ones too
	keys  map[uint64]*file // those that are there
}

// Open reads the keys, finishes what an earlier life began to destroy, and makes those
// that the clock asks for.
func Open(ctx context.Context, opt Options) (*Set, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	s := &Set{opt: opt, place: opt.place(), keys: make(map[uint64]*file)}
	if opt.Vault == nil {
		if err := disk.MakeDirs(opt.FS, opt.Dir); err != nil {
			return nil, fmt.Errorf("datakey: %w", err)
		}
	}
	s.step.Lock()
	defer s.step.Unlock()
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	_, err := s.make(ctx)
	return s, err
}

// read takes over what the book and the place have. s.step must be held.
func (s *Set) read(ctx context.Context) error {
	// A key is kept before it is noted: those that the book has first are there by then. And
	// it is noted as ended before it goes, so the book is asked again which have ended.
	found := &Set{opt: s.opt, place: s.place, keys: make(map[uint64]*file)}
	var names []string
	var later []Record
	var err error
	if found.id, found.known, err = s.opt.Book.DataKeys(ctx); err == nil {
		names, err = s.place.names(ctx)
	}
	if err == nil {
		_, later, err = s.opt.Book.DataKeys(ctx)
	}
	if err != nil {
		return fmt.Errorf("datakey: %w", err)
	}
	for _, r := range later {
		if i, known := found.find(r.Serial); known && r.Ended {
			found.known[i].Ended = true
		}
	}
	if err := found.compare(ctx, names); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.known, s.keys = found.id, found.known, found.keys
	return nil
}

// compare reads the keys of those names, and holds them against the book. s is not shared.
func (s *Set) compare(ctx context.Context, names []string) error {
	newest := uint64(0)
	for _, name := range names {
		f, err := s.readFile(ctx, name)
		if errors.Is(err, fs.ErrNotExist) && s.opt.Vault != nil {
			continue // another replica has destroyed it
		}
		if err != nil {
			// One overwritten and not yet removed is no key any more. A key that the store
			// does not know may have been used by a store that is lost.
			i := slices.IndexFunc(s.known, func(r Record) bool { return r.name() == name })
			switch {
			case i < 0:
				return fmt.Errorf("%w: %s: %w", ErrDamaged, s.place.call(name), err)
			case s.known[i].Ended:
				if err := s.shred(ctx, &s.known[i]); err != nil {
					return err
				}
				continue
			}
			s.opt.Log.Error("a data key is damaged: nothing of its time is released until it is put back", "key", s.place.call(name), "why", err)
			continue
		}
		if s.id == (SetID{}) {
			s.id = f.set
		}
		if f.set != s.id {
			return fmt.Errorf("%w: %s is of another store; put the keys of this one there", ErrDamaged, s.place.call(name))
		}
		s.keys[f.Serial] = f
		newest = max(newest, f.Serial)
	}
	seen := uint64(0) // the newest that the store has used, or may have
	for _, r := range s.known {
		if r.Ended {
			continue // or was given up
		}
		if seen = r.Serial; s.keys[r.Serial] == nil {
			s.opt.Log.Error("a data key is lost: nothing of its time is released until it is put back", "serial", r.Serial,
				"from", r.From, "until", r.Until)
		}
	}
	if newest < seen {
		what := "an older copy is there"
		if newest == 0 {
			what = "none is there"
		}
		where := s.opt.Dir
		if s.opt.Vault != nil {
			where = "its row, or the wrapping key,"
		}
		return fmt.Errorf("%w: this store has used data key %d, and %s: put %s back as it was last, or noise would be drawn again",
			ErrDamaged, seen, what, where)
	}
	for _, f := range s.keys {
		i, known := s.find(f.Serial)
		switch {
		case !known: // an older store is beside it, or the power went before it was noted
			if err := s.opt.Book.NoteDataKey(ctx, s.id, f.Record); err != nil {
				return fmt.Errorf("datakey: %w", err)
			}
			s.known = slices.Insert(s.known, i, f.Record)
		case s.known[i].Ended:
			if err := s.shred(ctx, &s.known[i]); err != nil {
				return err
			}
			delete(s.keys, f.Serial)
		case s.known[i] != f.Record:
			return fmt.Errorf("%w: data key %d is of another time than this store has used it for", ErrDamaged, f.Serial)
		}
	}
	if err := s.place.sweep(ctx); err != nil {
		return fmt.Errorf("datakey: destroy a key: %w", err)
	}
	return nil
}

func (s *Set) readFile(ctx context.Context, name string) (*file, error) {
	b, err := s.place.get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer clear(b)
	f, err := parseFile(b)
	if err == nil && f.name() != name {
		err = fmt.Errorf("it is key %d", f.Serial)
	}
	return f, err
}

// find is the place of a key in s.known.
func (s *Set) find(serial uint64) (i int, known bool) {
	return slices.BinarySearchFunc(s.known, serial, func(r Record, n uint64) int { return cmp.Compare(r.Serial, n) })
}

// make makes the keys of the period that runs and of the next. s.step must be held, or s
// not yet shared.
func (s *Set) make(ctx context.Context) (worked bool, err error) {
	for {
		now := s.opt.Clock.Now().Round(0).UTC()
		s.mu.Lock()
		r := Record{Serial: 1, From: time.Unix(0, 0).UTC()}
		due := len(s.known) == 0
		if !due {
			last := s.known[len(s.known)-1]
			r.Serial, r.From = last.Serial+1, last.Until
			due = last.Until.Before(now.Add(s.opt.Period))
		}
		s.mu.Unlock()
		if !due {
			return worked, nil
		}
		// At a multiple of the period, so that keys begin and end at times that people
		// can say.
		after := r.From
		if now.After(after) {
			after = now
		}
		period := int64(s.opt.Period / time.Second)
		r.Until = time.Unix((max(after.Unix(), 0)/period+1)*period, 0).UTC()
		if s.id == (SetID{}) {
			rand.Read(s.id[:])
		}
		f := newFile(s.id, r)
		b := f.append()
		err := s.place.put(ctx, r.name(), b)
		clear(b)
		if errors.Is(err, vault.ErrStale) { // another replica was first
			if err := s.read(ctx); err != nil {
				return worked, err
			}
			worked = true
			continue
		}
		if err == nil {
			err = s.opt.Failpoints.Hit(failAfterFile)
		}
		if err == nil {
			err = s.opt.Book.NoteDataKey(ctx, s.id, r)
		}
		if err != nil {
			return worked, fmt.Errorf("datakey: make a key: %w", err)
		}
		s.mu.Lock()
		s.known, s.keys[r.Serial] = append(s.known, r), f
		s.mu.Unlock()
		worked = true
		s.opt.Log.Info("data key made", "serial", r.Serial, "from", r.From, "until", r.Until)
		if err := s.opt.Failpoints.Hit(failAfterMake); err != nil {
			return worked, err
		}
	}
}

// At is Make and then Held.
func (s *Set) At(ctx context.Context, at time.Time) (*Key, error) {
	if err := s.Make(ctx); err != nil {
		return nil, err
	}
	return s.Held(at)
}

// Make makes the keys that are due: the clock may have gone on since the last step.
func (s *Set) Make(ctx context.Context) error {
	s.step.Lock()
	defer s.step.Unlock()
	_, err := s.make(ctx)
	return err
}

// Held is the key of a time; a *[GoneError] or *[AheadError] where there is none. It asks
// nothing of the book.
func (s *Set) Held(at time.Time) (*Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.known {
		if r := &s.known[i]; r.holds(at) {
			return s.copy(r, at)
		}
	}
	if last := s.known[len(s.known)-1]; !at.Before(last.Until) {
		return nil, &AheadError{at}
	}
	return nil, &GoneError{At: at}
}

// By is the key of that serial; a *[GoneError] where it is not there. Of keys that another
// replica has made since the last step it asks the vault.
func (s *Set) By(serial uint64) (*Key, error) {
	key, known, err := s.by(serial)
	if known {
		return key, err
	}
	if s.opt.Vault == nil {
		return nil, &GoneError{Lost: true}
	}
	ctx, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	s.step.Lock()
	defer s.step.Unlock()
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	if key, known, err = s.by(serial); !known {
		return nil, &GoneError{Lost: true}
	}
	return key, err
}

// asking bounds how long a key is asked for that should be there.
const asking = 10 * time.Second

func (s *Set) by(serial uint64) (key *Key, known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := s.find(serial)
	if !known {
		return nil, false, nil
	}
	key, err = s.copy(&s.known[i], s.known[i].From)
	return key, true, err
}

// copy is a living key. s.mu must be held.
func (s *Set) copy(r *Record, at time.Time) (*Key, error) {
	f := s.keys[r.Serial]
	if f == nil {
		return nil, &GoneError{At: at, Lost: !r.Ended}
	}
	return &Key{Serial: r.Serial, secret: f.secret}, nil
}

// Every is how often an aggregator calls [Set.Step].
const Every = time.Minute

// Needs says what an aggregator still needs a key for, in words, or "" where it needs it
// no more.
type Needs func(ctx context.Context, r Record) (why string, err error)

// Step makes the keys that the clock asks for and destroys those that nothing needs, and
// says whether it did either.
func (s *Set) Step(ctx context.Context, needs Needs) (worked bool, err error) {
	s.step.Lock()
	defer s.step.Unlock()
	if s.opt.Vault != nil { // others make and end keys, too
		if err := s.read(ctx); err != nil {
			return false, err
		}
	}
	if worked, err = s.make(ctx); err != nil || s.opt.Keep < 0 {
		return worked, err
	}
	now := s.opt.Clock.Now()
	s.mu.Lock()
	var over []Record
	for _, r := range s.known {
		if s.keys[r.Serial] != nil && !now.Before(r.Until.Add(s.opt.Keep)) {
			over = append(over, r)
		}
	}
	s.mu.Unlock()
	for _, r := range over {
		why, err := needs(ctx, r)
		if err != nil {
			return worked, err
		}
		if why != "" {
			continue
		}
		if err := s.end(ctx, &r); err != nil {
			return worked, err
		}
		worked = true
	}
	return worked, nil
}

// end destroys a key. Repeating it is harmless.
func (s *Set) end(ctx context.Context, r *Record) error {
	if err := s.opt.Failpoints.Hit(failBeforeDestroy); err != nil {
		return err
	}
	if err := s.opt.Book.EndDataKey(ctx, r.Serial); err != nil {
		return fmt.Errorf("datakey: end a key: %w", err)
	}
	if err := s.opt.Failpoints.Hit(failAfterEnd); err != nil {
		return err
	}
	if err := s.shred(ctx, r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.keys[r.Serial].secret[:])
	delete(s.keys, r.Serial)
	i, _ := s.find(r.Serial)
	s.known[i].Ended = true
	s.opt.Log.Info("data key destroyed: nothing of its time will be released any more", "serial", r.Serial, "from", r.From, "until", r.Until)
	return nil
}

// shred destroys a key that the book says has ended. One that is gone is no error: another
// replica may have been first.
func (s *Set) shred(ctx context.Context, r *Record) error {
	err := s.place.destroy(ctx, r.name())
	if err != nil && !(s.opt.Vault != nil && errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("datakey: destroy a key: %w", err)
	}
	return nil
}

// Missing are the keys that have not ended and whose files were lost or damaged when the
// set was opened.
func (s *Set) Missing() (list []status.DataKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.known {
		if !r.Ended && s.keys[r.Serial] == nil {
			list = append(list, status.DataKey{File: s.place.call(r.name()), From: r.From, Until: r.Until})
		}
	}
	return list
}

// GiveUp ends the keys whose files are lost or damaged, with giveUp, and says which they
// are. Nothing of their time is released any more; the set can be opened again where the
// newest is among them. No other process may use the set.
func GiveUp(ctx context.Context, opt Options, giveUp bool) (lost []status.DataKey, err error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	s := &Set{opt: opt, place: opt.place()}
	if s.id, s.known, err = opt.Book.DataKeys(ctx); err != nil {
		return nil, fmt.Errorf("datakey: %w", err)
	}
	for _, r := range s.known {
		name := s.place.call(r.name())
		if r.Ended {
			continue
		}
		// Of one that is of another store nothing is known: that is for a person to put
		// right.
		f, err := s.readFile(ctx, r.name())
		if err == nil && f.set != s.id {
			return nil, fmt.Errorf("%w: %s is of another store; put the keys of this one there", ErrDamaged, name)
		}
		if err == nil {
			continue
		}
		lost = append(lost, status.DataKey{File: name, From: r.From, Until: r.Until})
		if !giveUp {
			continue
		}
		if err := opt.Book.EndDataKey(ctx, r.Serial); err != nil {
			return nil, fmt.Errorf("datakey: give a key up: %w", err)
		}
		if err := s.shred(ctx, &r); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return lost, nil
}

// Over says whether the key of a time has ended: nothing of it is released any more.
func (s *Set) Over(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.known {
		if r := &s.known[i]; r.holds(at) {
			return r.Ended
		}
	}
	return false
}

// Kept is how many keys there are, and the ends of the times of the first and the last.
func (s *Set) Kept() (n int, first, last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.known {
		if s.keys[r.Serial] == nil {
			continue
		}
		if n++; n == 1 {
			first = r.Until
		}
		last = r.Until
	}
	return n, first, last
}

// Audit lists, in words, which keys are lost or damaged; none is good.
func (s *Set) Audit(ctx context.Context) (faults []string, err error) {
	s.step.Lock()
	defer s.step.Unlock()
	s.mu.Lock()
	known := slices.Clone(s.known)
	s.mu.Unlock()
	names, err := s.place.names(ctx)
	if err != nil {
		return nil, fmt.Errorf("datakey: %w", err)
	}
	for i := range known {
		r := &known[i]
		if r.Ended {
			if slices.Contains(names, r.name()) {
				faults = append(faults, fmt.Sprintf("the file of data key %d, which has ended, is there", r.Serial))
			}
			continue
		}
		if f, err := s.readFile(ctx, r.name()); err != nil || f.set != s.id || f.Record != *r {
			faults = append(faults, fmt.Sprintf("the file of data key %d, of the time from %s to %s, is lost or damaged, or was destroyed "+
				"after this copy of the data was made: put it back, or nothing of that time is released", r.Serial, r.From.Format(time.RFC3339), r.Until.Format(time.RFC3339)))
		}
	}
	return faults, nil
}
