package keyset

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset/vault"
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
	// Vault is where the keys are; default the directory Dir of FS.
	Vault vault.Vault
	// FS holds the keys; an aggregator's own file system. Required without Vault.
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
	if o.FS == nil && o.Vault == nil {
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

	vault   vault.Vault
	aside   atomic.Int64 // what the vault's clock is ahead of this replica's, in nanoseconds
	step    sync.Mutex   // held while keys are made and destroyed; guards the next five; taken before mu
	serial  uint64       // the highest ever used, also in vain
	version uint64       // of the state that this set has
	resigns bool         // at the next beat
	dirty   bool         // secrets may lie there that nothing names
	unsure  bool         // the last attempt to save failed: the vault may hold that state or the one before

	mu   sync.Mutex
	keys []*key // by serial; destroyed ones too, while their ids are taken
	life string // of this replica, in which it has taken over the keys; see package vault
}

// A key is a record in this life of the process. Set.mu guards it.
type key struct {
	record
	pair   *sealed.KeyPair // nil: destroyed
	over   bool            // its time is over: no new work may use it, whatever the clock says from now on
	ending bool            // it is being destroyed, which may yet fail: no work of whatever age begins with it
	holds  int             // work under way that may use it
	why    string          // what needed it when it was last asked for, or what it waits for
}

// view is what readers get without a lock. Immutable.
type view struct {
	ring *sealed.Keyring // all that lives: of the set first, newest first, then the operator's
	list []byte          // encoded HpkeConfigList
}

// Every is how often an aggregator calls [Set.Step].
const Every = 10 * time.Second

// New is [Open] by a schedule, or [Fixed] with the configured keys where there is none.
func New(ctx context.Context, by *Schedule, opt Options) (*Set, error) {
	if by == nil {
		return Fixed(opt.Configured)
	}
	opt.Schedule = *by
	return Open(ctx, opt)
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

// Open reads the keys, finishes what an earlier life began to destroy, and makes a key of
// each suite that has none. Where replicas share the keys, it waits until one is offered: no
// longer than ctx lasts. It fails with [ErrDamaged] where a living key is not there.
func Open(ctx context.Context, opt Options) (*Set, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	s := &Set{opt: opt, vault: opt.Vault, dirty: true}
	if s.vault == nil {
		d := opt.directory()
		if err := d.Make(); err != nil {
			return nil, fmt.Errorf("keyset: %w", err)
		}
		s.vault = d
	}
	// From here on no key is offered without this replica, which has none yet. Before it
	// could read those that there are it does not want to be the maker.
	s.resigns = true
	turn, err := s.beat(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.read(ctx, turn.Alone); err != nil {
		return nil, err
	}
	if turn.Alone {
		_, err = s.rotate(ctx, turn, func(*record) bool { return false })
		return s, err
	}
	return s, s.join(ctx)
}

// read takes over what there is when the set is opened. A set that is alone makes the state
// of a new vault, and cleans up.
func (s *Set) read(ctx context.Context, alone bool) error {
	records, version, err := s.readState(ctx)
	if err != nil {
		return err
	}
	if version == 0 {
		if !alone {
			return nil
		}
		return s.begin(ctx)
	}
	if err := s.take(ctx, records, version); err != nil || !alone {
		return err
	}
	return s.clean(ctx)
}

// take makes a state that was read the one of this set, and reads the keys that are new in
// it. s.step must be held, or s not yet shared.
func (s *Set) take(ctx context.Context, records []record, version uint64) error {
	s.mu.Lock()
	there := make(map[uint64]bool)
	for _, k := range s.keys {
		there[k.serial] = k.pair != nil
	}
	s.mu.Unlock()
	pairs := make(map[uint64]*sealed.KeyPair)
	for i := range records {
		r := &records[i]
		s.serial = max(s.serial, r.serial)
		if !r.lives() || there[r.serial] {
			continue
		}
		pair, err := s.readPair(ctx, r)
		if err != nil {
			return err
		}
		if s.configured(r.id) {
			return fmt.Errorf("keyset: the configured key %d has the id of one of ours: %w", r.id, sealed.ErrKey)
		}
		pairs[r.serial] = pair
	}
	s.adopt(records, pairs)
	s.version, s.unsure = version, false
	return nil
}

// now is the time as the state keeps it: keys outlive the process, and with it any
// monotonic clock. Replicas go by the vault's clock.
func (s *Set) now() time.Time {
	return s.opt.Clock.Now().Add(time.Duration(s.aside.Load())).Round(0).UTC()
}

func (s *Set) configured(id uint8) bool { return s.opt.Configured != nil && s.opt.Configured.Has(id) }

// Cover has the set make keys of further suites, after those that it has, and take promises
// as long as promise. It ends nothing, and again is harmless. A set of the operator's keys
// fails with [ErrNotCovered] where it has none of a suite.
func (s *Set) Cover(ctx context.Context, promise time.Duration, suites ...sealed.Suite) error {
	if s.fixed {
		for _, suite := range suites {
			if !slices.ContainsFunc(s.opt.Configured.Keys(), func(k *sealed.KeyPair) bool { return k.Public().Suite().KEM == suite.KEM }) {
				return fmt.Errorf("%w: none is of %s", ErrNotCovered, kemName(suite.KEM))
			}
		}
		return nil
	}
	s.step.Lock()
	defer s.step.Unlock()
	next := s.opt.Schedule
	for _, suite := range suites {
		if !slices.Contains(next.Suites, suite) {
			next.Suites = append(slices.Clone(next.Suites), suite)
		}
	}
	next.Promise = max(next.Promise, promise)
	if err := next.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotCovered, err)
	}
	s.mu.Lock()
	s.opt.Suites, s.opt.Promise = next.Suites, next.Promise // the rest is read without a lock
	s.mu.Unlock()
	turn, err := s.follow(ctx)
	if err != nil || !turn.Maker {
		return err // the maker covers it when it takes the task
	}
	if _, err = s.rotate(ctx, turn, func(*record) bool { return false }); errors.Is(err, vault.ErrStale) {
		return nil // the next step makes the key
	}
	return err
}

// ErrNotCovered: the service's keys cannot serve a task.
var ErrNotCovered = errors.New("keyset: no key for it")

// List is the encoded HpkeConfigList to offer, best first, and how long it may be used.
// It is only read.
func (s *Set) List() (list []byte, maxAge time.Duration) { return s.view.Load().list, s.opt.MaxAge }

// Life is that of the replica now: what [Set.Keyring] has from then on are the keys that any
// other replica offered before, while that life goes on. It is empty where the keys are one
// process's.
func (s *Set) Life() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// Keyring opens whatever was ever sealed to a key that lives.
func (s *Set) Keyring() *sealed.Keyring { return s.view.Load().ring }

// A Hold keeps keys from being destroyed until it is released. It is for one piece of work.
type Hold struct {
	set  *Set
	keys []*key // nil once released; Set.mu guards them
	ids  [ids]bool
	ring *sealed.Keyring
	life string
}

// Life is that of the replica when the work began: its commit looks whether it goes on. It
// is empty where the keys are one process's.
func (h *Hold) Life() string { return h.life }

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
	h := &Hold{set: s, life: s.life}
	for _, k := range s.keys {
		if k.pair != nil && !k.over && !k.ended(now, s.opt.accepts) {
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
	h := &Hold{set: s, life: s.life}
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
			if k.suite == suite && k.superseded.IsZero() && !k.offered.IsZero() {
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
		k.over = k.over || r.closed > 0
		if !r.lives() {
			k.pair = nil
		}
		s.keys = append(s.keys, k)
	}
	s.publish()
}

// clean destroys secrets that nothing names, if there may be any. s.step must be held, or s
// not yet shared.
func (s *Set) clean(ctx context.Context) error {
	if !s.dirty {
		return nil
	}
	records := s.records()
	if s.unsure { // no secret may go that the state in the vault names
		if err := s.save(ctx, records); err != nil {
			return err
		}
	}
	if err := s.sweep(ctx, records); err != nil {
		return err
	}
	s.dirty = false
	return nil
}

// rotate makes a key of each suite that has no current one, or one that is due, offers
// those that every replica holds, and ends the current ones of other suites. s.step must be
// held, or s not yet shared.
func (s *Set) rotate(ctx context.Context, turn vault.Turn, due func(*record) bool) (worked bool, err error) {
	now := s.now()
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
	for i := range records {
		if r := &records[i]; r.current() && !slices.Contains(s.opt.Suites, r.suite) {
			r.superseded, worked = now, true
		}
	}
	offered, err := s.offer(records, turn.Peers, now)
	if err != nil {
		return false, err
	}
	pairs := make(map[uint64]*sealed.KeyPair)
	made := len(records)
	for _, suite := range s.opt.Suites {
		newest := -1
		for i := range records {
			if r := &records[i]; r.current() && r.suite == suite {
				newest = i
			}
		}
		if newest >= 0 && (records[newest].offered.IsZero() || !due(&records[newest])) {
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
		if pairs[r.serial], err = s.makePair(ctx, &r); err != nil {
			return false, err
		}
		if err := s.opt.Failpoints.Hit(failAfterFile); err != nil {
			return false, err
		}
		if turn.Alone {
			r.offered = now
			if newest >= 0 {
				records[newest].superseded = now
			}
		}
		records = append(records, r)
	}
	if !worked && !offered && len(records) == made {
		return false, nil
	}
	if err := s.save(ctx, records); err != nil {
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
	return true, s.clean(ctx)
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
