package keyset

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

// Failpoints of this package: a crash at each must neither lose a key that is needed nor
// bring one back.
const (
	failBeforeMake     = "keys.before-make"
	failAfterFile      = "keys.after-file"      // a new key's file is durable, no state names it
	failAfterMake      = "keys.after-make"      // the state names it
	failBeforeDestroy  = "keys.before-destroy"  // nothing needs the key, the state says that it lives
	failAfterDestroy   = "keys.after-destroy"   // the state says that it is destroyed, the file is whole
	failAfterOverwrite = "keys.after-overwrite" // the file holds zeros
	failAfterRemove    = "keys.after-remove"
)

// FailpointNames lists the failpoints of this package.
func FailpointNames() []string {
	return []string{
		failBeforeMake, failAfterFile, failAfterMake, failBeforeDestroy, failAfterDestroy, failAfterOverwrite, failAfterRemove,
	}
}

// Options make a [Set].
type Options struct {
	Schedule
	// FS holds the keys; an aggregator's own file system. Required.
	FS disk.FS
	// Dir is the directory in it, which is the set's alone; default "keys".
	Dir string
	// Known says that keys were made here before: a directory without any is then
	// damaged, and not new.
	Known bool
	// Configured are keys of the operator's own, taken but not offered. Optional.
	Configured *sealed.Keyring
	// Clock is the time; default the system's.
	Clock disk.Clock
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
	// Log gets an event for each key that is made, ends or is destroyed; default none.
	Log *slog.Logger
}

// Validate fills in defaults and reports what is missing.
func (o *Options) Validate() error {
	if o.Dir == "" {
		o.Dir = "keys"
	}
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		return errors.New("keyset: no file system")
	}
	if err := disk.CheckName(o.Dir); err != nil {
		return err
	}
	return o.Schedule.Validate()
}

// A Set is the keys of one aggregator. Make one with [Open] or [Fixed]. Safe for
// concurrent use.
type Set struct {
	opt   Options
	fixed bool
	view  atomic.Pointer[view]

	step   sync.Mutex // held while keys are made and destroyed; guards the next three; taken before mu
	serial uint64     // the highest ever used, also in vain
	dirty  bool       // files may lie there that nothing names
	unsure bool       // the last attempt to save failed: the disk may hold that state or the one before

	mu   sync.Mutex
	keys []*key // by serial; destroyed ones too, while their ids are taken
}

// A key is a record in this life of the process. Set.mu guards it.
type key struct {
	record
	pair   *sealed.KeyPair // nil: destroyed
	closed bool            // its time is over: no new work may use it, whatever the clock says from now on
	ending bool            // it is being destroyed, which may yet fail: no work of whatever age begins with it
	holds  int             // work under way that may use it
	why    string          // what needed it when it was last asked for
}

// view is what readers get without a lock. Immutable.
type view struct {
	ring *sealed.Keyring // all that lives: of the set first, newest first, then the operator's
	list []byte          // encoded HpkeConfigList
}

// Every is how often an aggregator calls [Set.Step].
const Every = 10 * time.Second

// New is [Open] by a schedule, or [Fixed] with the configured keys where there is none.
func New(by *Schedule, opt Options) (*Set, error) {
	if by == nil {
		return Fixed(opt.Configured)
	}
	opt.Schedule = *by
	return Open(opt)
}

// Fixed is a set of the operator's keys, best first: offered and taken for as long as the
// service runs.
func Fixed(keys *sealed.Keyring) (*Set, error) {
	s := &Set{fixed: true, opt: Options{Configured: keys, Clock: disk.SystemClock, Schedule: Schedule{MaxAge: DefaultMaxAge}}}
	var list dap.HpkeConfigList
	for _, k := range keys.Keys() {
		list = append(list, dap.NewHpkeConfig(k))
	}
	body, err := list.Append(nil)
	if err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	s.view.Store(&view{keys, body})
	return s, nil
}

// Open reads the keys in a directory, finishes what an earlier life began to destroy, and
// makes a key of each suite that has none. It fails with [ErrDamaged] where a living key
// is not there.
func Open(opt Options) (*Set, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	s := &Set{opt: opt, dirty: true}
	if err := disk.MakeDirs(opt.FS, opt.Dir); err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	records, found, err := s.readState()
	if err == nil && !found {
		err = s.begin()
	}
	if err != nil {
		return nil, err
	}
	for i := range records {
		k := &key{record: records[i]}
		if k.lives() {
			if k.pair, err = s.readPair(&k.record); err != nil {
				return nil, err
			}
			if s.configured(k.id) {
				return nil, fmt.Errorf("keyset: the configured key %d has the id of one of ours: %w", k.id, sealed.ErrKey)
			}
		}
		s.keys = append(s.keys, k)
		s.serial = max(s.serial, k.serial)
	}
	if err := s.clean(); err != nil {
		return nil, err
	}
	s.publish()
	now := s.now()
	_, err = s.rotate(now, func(k *record) bool { return false })
	return s, err
}

// now is the time as the state keeps it: keys outlive the process, and with it any
// monotonic clock.
func (s *Set) now() time.Time { return s.opt.Clock.Now().Round(0).UTC() }

func (s *Set) configured(id uint8) bool { return s.opt.Configured != nil && s.opt.Configured.Has(id) }

// List is the encoded HpkeConfigList to offer, best first, and how long it may be used.
// It is only read.
func (s *Set) List() (list []byte, maxAge time.Duration) { return s.view.Load().list, s.opt.MaxAge }

// Keyring opens whatever was ever sealed to a key that lives.
func (s *Set) Keyring() *sealed.Keyring { return s.view.Load().ring }

// A Hold keeps keys from being destroyed until it is released. It is for one piece of work.
type Hold struct {
	set  *Set
	keys []*key // nil once released; Set.mu guards them
	ids  [ids]bool
	ring *sealed.Keyring
}

// Has says whether the work may use the key of that id.
func (h *Hold) Has(id uint8) bool { return h.ids[id] || h.set.configured(id) }

// take adds a key. Set.mu must be held.
func (h *Hold) take(k *key) {
	k.holds++
	h.keys, h.ids[k.id] = append(h.keys, k), true
}

// Keyring has the keys that [Set.Opening] found.
func (h *Hold) Keyring() *sealed.Keyring { return h.ring }

// Release ends the work. Again is harmless.
func (h *Hold) Release() {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	for _, k := range h.keys {
		k.holds--
	}
	h.keys = nil
}

// Accepting holds the keys that uploads may be sealed to now, until the uploads are
// durable or refused.
func (s *Set) Accepting() *Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	h := &Hold{set: s}
	for _, k := range s.keys {
		if k.pair != nil && !k.closed && !k.ended(now, s.opt.accepts) {
			h.take(k)
		}
	}
	return h
}

// Opening holds the keys for a job that came at a given time: those whose life had not
// ended then, and that are still there.
func (s *Set) Opening(at time.Time) *Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &Hold{set: s}
	all := true
	for _, k := range s.keys {
		switch {
		case k.pair == nil:
		case k.ending || k.ended(at, s.opt.life):
			all = false
		default:
			h.take(k)
		}
	}
	if h.ring = s.view.Load().ring; !all {
		h.ring = s.ring(h.keys)
	}
	return h
}

// ended says whether a key had been followed by another, and a time in its life had come
// that the schedule gives for it.
func (k *key) ended(at time.Time, when func(*record) time.Time) bool {
	return !k.superseded.IsZero() && !at.Before(when(&k.record))
}

// ring makes a key ring, the newest key first and then the operator's.
func (s *Set) ring(keys []*key) *sealed.Keyring {
	var pairs []*sealed.KeyPair
	for _, k := range slices.Backward(keys) {
		pairs = append(pairs, k.pair)
	}
	if s.opt.Configured != nil {
		pairs = append(pairs, s.opt.Configured.Keys()...)
	}
	ring, err := sealed.NewKeyring(pairs...)
	if err != nil {
		panic("keyset: internal error: " + err.Error()) // ids are distinct
	}
	return ring
}

// publish shows readers what lives. The list is empty in no set that has been opened.
// s.mu must be held, or s not yet shared.
func (s *Set) publish() {
	var living []*key
	var list dap.HpkeConfigList
	for _, k := range s.keys {
		if k.pair != nil {
			living = append(living, k)
		}
	}
	for _, suite := range s.opt.Suites {
		for _, k := range living {
			if k.suite == suite && k.superseded.IsZero() {
				list = append(list, dap.NewHpkeConfig(k.pair))
			}
		}
	}
	body, err := list.Append(nil)
	if err != nil && len(list) > 0 {
		panic("keyset: internal error: " + err.Error())
	}
	s.view.Store(&view{s.ring(living), body})
}

// records is a copy to change and save. s.step must be held.
func (s *Set) records() []record {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := make([]record, len(s.keys))
	for i, k := range s.keys {
		records[i] = k.record
	}
	return records
}

// adopt makes saved records what everyone sees. pairs are the new keys, by serial.
func (s *Set) adopt(records []record, pairs map[uint64]*sealed.KeyPair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := make(map[uint64]*key)
	for _, k := range s.keys {
		old[k.serial] = k
	}
	s.keys = nil
	for _, r := range records {
		k := old[r.serial]
		if k == nil {
			k = &key{pair: pairs[r.serial]}
		}
		k.record = r
		if !r.lives() {
			k.pair = nil
		}
		s.keys = append(s.keys, k)
	}
	s.publish()
}

// clean destroys files that nothing names, if there may be any. s.step must be held, or s
// not yet shared.
func (s *Set) clean() error {
	if !s.dirty {
		return nil
	}
	records := s.records()
	if s.unsure { // no file may go that the state on the disk names
		if err := s.save(records); err != nil {
			return err
		}
	}
	if err := s.sweep(records); err != nil {
		return err
	}
	s.dirty = false
	return nil
}

// rotate makes a key of each suite that has no current one, or one that is due, and ends
// the current ones of other suites. s.step must be held, or s not yet shared.
func (s *Set) rotate(now time.Time, due func(*record) bool) (worked bool, err error) {
	records := s.records()
	// A clock that was far ahead must not keep keys, or ids, until that time comes.
	for i := range records {
		for _, t := range []*time.Time{&records[i].superseded, &records[i].destroyed} {
			if t.After(now) {
				*t, worked = now, true
			}
		}
		if most := now.Add(s.opt.Promise); records[i].promised.After(most) {
			records[i].promised, worked = most, true
		}
	}
	pairs := make(map[uint64]*sealed.KeyPair)
	made := len(records)
	for i := range made {
		if r := &records[i]; r.lives() && r.superseded.IsZero() && !slices.Contains(s.opt.Suites, r.suite) {
			r.superseded, worked = now, true
		}
	}
	for _, suite := range s.opt.Suites {
		i := slices.IndexFunc(records, func(r record) bool { return r.lives() && r.superseded.IsZero() && r.suite == suite })
		if i >= 0 && !due(&records[i]) {
			continue
		}
		if err := s.opt.Failpoints.Hit(failBeforeMake); err != nil {
			return false, err
		}
		id, err := s.nextID(records)
		if err != nil {
			return false, err
		}
		s.serial++
		r := record{serial: s.serial, id: id, suite: suite, created: now}
		s.dirty = true // until the state names it
		if pairs[r.serial], err = s.makePair(&r); err != nil {
			return false, err
		}
		if err := s.opt.Failpoints.Hit(failAfterFile); err != nil {
			return false, err
		}
		if i >= 0 {
			records[i].superseded = now
		}
		records, worked = append(records, r), true
	}
	if !worked {
		return false, nil
	}
	if err := s.save(records); err != nil {
		return false, err
	}
	s.adopt(records, pairs)
	if len(records) > made {
		if err := s.opt.Failpoints.Hit(failAfterMake); err != nil {
			return true, err
		}
	}
	for _, r := range records[made:] {
		s.opt.Log.Info("HPKE key made", "key", r.id, "kem", kemName(r.suite.KEM))
	}
	return true, s.clean()
}

// due says whether a current key has had its time, or was made by a clock that was far
// ahead.
func (s *Set) due(now time.Time) func(*record) bool {
	return func(r *record) bool {
		age := now.Sub(r.created)
		return age >= s.opt.Period || -age > s.opt.Period
	}
}

// errNoID: every config id is that of a key that lives, or died a short while ago.
var errNoID = errors.New("keyset: no config id is free; keys that should have ended are still needed")

// nextID is the one after the last given out, so that an id comes back as late as it can;
// the first is random, lest a service that lost its directory begins with the ids that it
// had.
func (s *Set) nextID(records []record) (uint8, error) {
	var taken [ids]bool
	for _, r := range records {
		taken[r.id] = true
	}
	var first [1]byte
	if n := len(records); n > 0 {
		first[0] = records[n-1].id + 1
	} else {
		rand.Read(first[:])
	}
	for i := range ids {
		if id := first[0] + uint8(i); !taken[id] && !s.configured(id) {
			return id, nil
		}
	}
	return 0, errNoID
}

func kemName(kem uint16) string {
	switch kem {
	case sealed.KEMX25519:
		return "x25519"
	case sealed.KEMXWing:
		return "x-wing"
	case sealed.KEMP256:
		return "p-256"
	}
	return fmt.Sprintf("%#04x", kem)
}
