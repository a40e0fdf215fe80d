// Package logbook is a device's side of a transparency log: it fetches the one bundle
// that everybody fetches, verifies it offline by a policy of the device's own, and gives
// what holds: the recipes, the manifests with the keys of gateway, servers and issuers,
// and for how many devices there are credentials of an epoch. A device with a recipe that
// names a log (recipe.Recipe.Log) takes none of these from anywhere else
// (client.Options.Log).
//
// All fetch the same file, each at times that were drawn once and are fixed from then on:
// neither depends on anything that the device does or is asked ([Logbook.Due]). A checkpoint
// is on the disk before it is used. A log that went back, shows two trees or fell silent is
// refused, and the two checkpoints of a fork are kept as evidence.
package logbook

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// Options make a [Logbook].
type Options struct {
	// Recipe is one of the deployment's that names the log. Required.
	Recipe *recipe.Recipe
	// Anchors are the keys that came with the software, the attester's among them where the
	// recipe counts devices. Required.
	Anchors *signed.Anchors
	// Policy came with the software too: the log, the witnesses, and which of them must
	// sign. Required.
	Policy *tlog.Policy
	// FS keeps what was seen, and no one else uses it. Required.
	FS disk.FS
	// Fetch fetches the bundle, which is the same for everybody: [tlog.MaxBundle] bytes at
	// most. Nothing of the device is in what it asks for. Required.
	Fetch func(context.Context) ([]byte, error)
	// Tiles reads files of the log by their path, for a device that was away for longer than
	// the bundle reaches back, or is handed a bundle that is made to look so: which it asks
	// for says for how long, and who answers sees the device. Nil, as devices should have it:
	// such a device goes on from a size before the one that it saw last ([tlog.Memory]) and keeps
	// both checkpoints, or follows the log no more ([tlog.ErrGap]).
	Tiles func(context.Context) func(path string) ([]byte, error)
	// Every is how far fetches are apart, a second or more; zero is six hours.
	Every time.Duration
	// Now is the device's clock; nil is time.Now.
	Now func() time.Time
}

const (
	memoryFile = "memory"
	bundleFile = "bundle"
	timesFile  = "times"
	timesMagic = "starling log times v1"
	// Two signed checkpoints each: those that prove a fork, and those of which a proof that
	// nobody has signed says that there is one.
	forkFile  = "fork.evidence"
	doubtFile = "doubt.evidence"
	// Those of the last long absence, between which nothing is proved.
	gapFile      = "gap.evidence"
	defaultEvery = 6 * time.Hour
	again        = 5 * time.Minute
)

// Errors to branch on with errors.Is, beside those of package tlog for a bundle.
var (
	// ErrState: what the device kept is damaged, or cannot be written. Do not delete it: a
	// device that forgets what it saw can be shown an older log.
	ErrState = errors.New("logbook: what was seen of the log cannot be used")
	// ErrPolicy: the policy does not know the recipe's log, or asks no witness.
	ErrPolicy = errors.New("logbook: the device's policy is not for this log")
	// ErrNothing: nothing that holds was fetched yet.
	ErrNothing = errors.New("logbook: nothing of the log was seen yet")
	// ErrNoManifest: the log holds no manifest of this time.
	ErrNoManifest = errors.New("logbook: the log holds no manifest of this time")
	// ErrNotHeld: the log does not hold the recipe.
	ErrNotHeld = errors.New("logbook: the log does not hold the recipe")
)

// A Logbook is what a device has seen of a log. Safe for concurrent use, by one process.
type Logbook struct {
	o          Options
	deployment [32]byte
	every      time.Duration

	fetching sync.Mutex // over a fetch and what comes of it
	mu       sync.Mutex
	memory   tlog.Memory
	offset   time.Duration // of the fetches' times
	asked    time.Time     // when a fetch was begun last; that of 1970 is none
	held     *held
	why      error // there is none
}

// held is a bundle that was found good.
type held struct {
	*tlog.Opened
	content *logged.Content
}

// Open reads what the device has seen, and asks nobody. It fails with [ErrState] and
// [ErrPolicy], and as [recipe.Recipe.CheckAnchors].
func Open(o Options) (*Logbook, error) {
	switch {
	case o.Recipe == nil || o.Recipe.Log == nil:
		return nil, errors.New("logbook: no recipe that names a log")
	case o.Policy == nil || o.FS == nil || o.Fetch == nil:
		return nil, errors.New("logbook: no policy, directory or fetch")
	case o.Every != 0 && o.Every < time.Second:
		return nil, fmt.Errorf("logbook: fetches every %v", o.Every)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Every == 0 {
		o.Every = defaultEvery
	}
	if err := o.Recipe.CheckAnchors(o.Anchors); err != nil {
		return nil, err
	}
	deployment, err := o.Recipe.Deployment()
	if err != nil {
		return nil, err
	}
	origin := o.Recipe.Log.Origin
	if !slices.ContainsFunc(o.Policy.Logs(), func(p tlog.Party) bool { return p.Key.Name() == origin }) {
		return nil, fmt.Errorf("%w: it does not know %s", ErrPolicy, origin)
	}
	if !o.Policy.Witnessed() {
		return nil, fmt.Errorf("%w: it asks no witness, and then the log may show each device another", ErrPolicy)
	}
	l := &Logbook{o: o, deployment: deployment, every: o.Every}
	if err := l.readTimes(); err != nil {
		return nil, err
	}
	b, err := disk.ReadFile(o.FS, memoryFile, tlog.MaxMemory)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		l.memory, err = tlog.ReadMemory(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	if l.memory.Checkpoint.Origin != origin {
		return nil, fmt.Errorf("%w: %w: %s", ErrState, tlog.ErrOrigin, l.memory.Checkpoint.Origin)
	}
	// The bundle is only for not having to fetch one after each start: it is verified again,
	// and one that is damaged or behind the memory is none.
	b, err = disk.ReadFile(o.FS, bundleFile, tlog.MaxBundle)
	if err == nil {
		_, l.held, err = l.read(b, nil)
	}
	l.why = err
	return l, nil
}

// times are when the device fetches.
func (l *Logbook) times(c *wire.Coder) {
	c.Const(timesMagic, "not the times of fetches, version 1")
	seconds := uint64(l.offset / time.Second)
	c.Uint64(&seconds, "offset")
	c.Check(seconds < uint64(l.every/time.Second), "an offset behind the time between two fetches")
	l.offset = time.Duration(seconds) * time.Second
	c.Seconds(&l.asked, "asked")
}

func (l *Logbook) readTimes() error {
	b, err := disk.ReadFile(l.o.FS, timesFile, 1<<10)
	if err == nil {
		if wire.Read(b, ErrState, l.times) == nil {
			return nil
		}
		err = fs.ErrNotExist // damaged, or of another distance: any instant is as good as any other
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	n, err := rand.Int(rand.Reader, big.NewInt(int64(l.every/time.Second)))
	if err != nil {
		return fmt.Errorf("logbook: %w", err)
	}
	l.offset, l.asked = time.Duration(n.Int64())*time.Second, time.Unix(0, 0).UTC()
	return l.writeTimes()
}

func (l *Logbook) writeTimes() error {
	b, err := wire.Append(nil, ErrState, l.times)
	if err == nil {
		err = disk.WriteFile(l.o.FS, timesFile, b)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	return nil
}

// Due is when the device fetches next: the first of its times after it did so last, with or
// without an answer. They are as far apart as [Options.Every] says, from an instant that was
// drawn once; so nothing that the device wants moves one. A device that has nothing of the log
// that holds fetches at once, and again five minutes later.
func (l *Logbook) Due() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		return l.asked.Add(again)
	}
	return l.after(l.asked)
}

// after is the first of the device's times after t.
func (l *Logbook) after(t time.Time) time.Time {
	due := t.Add(-l.offset).Truncate(l.every).Add(l.offset)
	if !due.After(t) {
		due = due.Add(l.every)
	}
	return due.UTC()
}

// read verifies a bundle against what was seen, and writes nothing. It asks for tiles if
// nothing else leads from there to the bundle.
func (l *Logbook) read(b []byte, tiles func(path string) ([]byte, error)) (next tlog.Memory, h *held, err error) {
	x, err := tlog.ReadBundle(b)
	if err != nil {
		return next, nil, err
	}
	var further func(old int64, c *tlog.Checkpoint) ([]tlog.Hash, error)
	if tiles != nil {
		further = func(old int64, c *tlog.Checkpoint) ([]tlog.Hash, error) { return tlog.NewTree(c, tiles).Continue(old) }
	}
	opened, next, err := x.Open(l.o.Policy, l.memory, l.o.Now(), further)
	if err != nil {
		return next, nil, err
	}
	if opened.Origin != l.o.Recipe.Log.Origin {
		return next, nil, fmt.Errorf("%w: the recipe names %s, and this is %s", tlog.ErrOrigin, l.o.Recipe.Log.Origin, opened.Origin)
	}
	content, err := logged.Judge{Anchors: l.o.Anchors}.Read(opened.Entries)
	if err != nil {
		return next, nil, err
	}
	return next, &held{opened, content}, nil
}

// Refresh fetches the bundle, verifies it and writes down what was seen, before it is used.
// The caller calls it at the times of [Logbook.Due]. After a failure the device goes on with
// what it had, as long as that holds. It fails as Fetch, as [tlog.Bundle.Open], where an
// owner has not signed an entry, and with [ErrState].
func (l *Logbook) Refresh(ctx context.Context) error {
	l.fetching.Lock()
	defer l.fetching.Unlock()
	l.mu.Lock()
	l.asked = l.o.Now().UTC().Truncate(time.Second)
	err := l.writeTimes()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	b, err := l.o.Fetch(ctx)
	if err != nil {
		return fmt.Errorf("logbook: fetch: %w", err)
	}
	var tiles func(path string) ([]byte, error)
	if l.o.Tiles != nil {
		tiles = l.o.Tiles(ctx)
	}
	next, h, err := l.read(b, tiles)
	if fork := new(tlog.ForkError); errors.As(err, &fork) {
		err = errors.Join(err, l.keep(fork))
	}
	if err != nil {
		return fmt.Errorf("logbook: %w", err)
	}
	if h.Left != nil {
		if err := disk.WriteFile(l.o.FS, gapFile, slices.Concat(h.Left, []byte("\n"), next.Note)); err != nil {
			return fmt.Errorf("%w: %w", ErrState, err)
		}
	}
	// First what may never go back. A bundle behind it is found out by the next start.
	if err := disk.WriteFile(l.o.FS, memoryFile, next.Append(nil)); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	l.mu.Lock()
	l.memory, l.held, l.why = next, h, nil
	l.mu.Unlock()
	if err := disk.WriteFile(l.o.FS, bundleFile, b); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	return nil
}

// keep keeps the two checkpoints of a fork, one behind the other, to show to others: one pair
// that proves it, and one that whoever handed the bundle out may have made look like one.
func (l *Logbook) keep(fork *tlog.ForkError) error {
	name := doubtFile
	if fork.Proved {
		name = forkFile
	}
	if _, err := l.o.FS.Stat(name); err == nil {
		return nil
	}
	if err := disk.WriteFile(l.o.FS, name, slices.Concat(fork.Seen, []byte("\n"), fork.Given)); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	return nil
}

// now is what holds at this time.
func (l *Logbook) now() (*held, time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.o.Now()
	switch h := l.held; {
	case h == nil && l.why != nil:
		return nil, now, fmt.Errorf("%w: %w", ErrNothing, l.why)
	case h == nil:
		return nil, now, ErrNothing
	case now.Add(tlog.Skew).Before(l.memory.Time):
		return nil, now, fmt.Errorf("logbook: %w", tlog.ErrClock)
	case now.Sub(h.End) > tlog.MaxAge:
		return nil, now, &tlog.StaleError{Time: h.End, Now: now}
	default:
		return h, now, h.Fresh(now)
	}
}

// Manifest implements [ohttp.Source]: the deployment's manifest of this time, as the log
// holds it. Whether it is signed is for client.Manifests. It fails with [ErrNothing],
// [ErrNoManifest], [tlog.ErrClock] and [tlog.ErrStale].
func (l *Logbook) Manifest(context.Context) (*ohttp.Manifest, error) {
	h, now, err := l.now()
	if err != nil {
		return nil, err
	}
	var found *ohttp.Manifest
	manifests := l.manifests(h)
	for _, m := range manifests {
		if m.ValidAt(now) == nil && (found == nil || after(m, found)) {
			found = m
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: of deployment %s, of which it holds %d of other times%s", ErrNoManifest, hex.EncodeToString(l.deployment[:4]), len(manifests), h.skipped())
	}
	return found, nil
}

// manifests are the deployment's, in the order of the log: those that leader, helper and
// gateway have signed, or on a path without these two the recipe's gateway alone.
func (l *Logbook) manifests(h *held) (all []*ohttp.Manifest) {
	list := h.content.Manifests
	if !l.o.Recipe.Path.Proofs() {
		list = h.content.Fronts
	}
	for _, m := range list {
		if m.Deployment == l.deployment && (l.o.Recipe.Path.Proofs() || m.Signatures[0].Signature.Delegation.Root == l.o.Recipe.GatewayKey()) {
			all = append(all, m)
		}
	}
	return all
}

// ErrNoKey: the log holds no key of a party for a round.
var ErrNoKey = errors.New("logbook: the log holds no key of that party for that round")

// ShuffleKeys is the signed key list of a hop or an analyzer, of one round, by its owner's
// root key: the log holds one, which is that of all devices. It fails with [ErrNoKey], and as
// [Logbook.Coming].
func (l *Logbook) ShuffleKeys(recipe [32]byte, role onion.Role, round uint64, root signed.PublicKey) ([]byte, error) {
	h, _, err := l.now()
	if err != nil {
		return nil, err
	}
	b := h.content.ShuffleKeys(recipe, role, round, root)
	if b == nil {
		return nil, fmt.Errorf("%w: of %v, round %d%s", ErrNoKey, role, round, h.skipped())
	}
	return b, nil
}

// skipped says that what is missing may be there for a later version.
func (h *held) skipped() string {
	if n := h.content.Skipped; n > 0 {
		return fmt.Sprintf(", and %d entries for a later version of this software", n)
	}
	return ""
}

func after(a, b *ohttp.Manifest) bool {
	return a.Epoch > b.Epoch || a.Epoch == b.Epoch && a.Revision > b.Revision
}

// Coming are the deployment's manifests of epochs that have not begun, the soonest first and
// the last revision of each: those for which a device visits (credentials.Wallet.Visit).
//
// An epoch has the issuers that its first manifest in the log names which names any. A
// revision with others is none to visit for; and once a manifest with issuers has begun,
// its epoch has, whatever revision comes: whoever visited after the count would be one of
// few, and be told the number of all. It fails as [Logbook.Manifest], but for
// [ErrNoManifest].
func (l *Logbook) Coming() (all []*ohttp.Manifest, err error) {
	h, now, err := l.now()
	if err != nil {
		return nil, err
	}
	last := make(map[uint32]*ohttp.Manifest)
	begun := make(map[uint32]bool)
	for _, m := range l.manifests(h) {
		if !now.Before(m.NotBefore) {
			begun[m.Epoch] = begun[m.Epoch] || m.Issuers != nil
			continue
		}
		if known := last[m.Epoch]; (known == nil || after(m, known)) && l.issues(h, m) {
			last[m.Epoch] = m
		}
	}
	for _, m := range last {
		if !begun[m.Epoch] {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *ohttp.Manifest) int { return int(int64(a.Epoch) - int64(b.Epoch)) })
	return all, nil
}

// issues says whether a manifest's issuers are those of its epoch: of the first of the
// log's that names some. One that names none is as good as another only where none does.
func (l *Logbook) issues(h *held, m *ohttp.Manifest) bool {
	for _, x := range l.manifests(h) {
		if x.Epoch == m.Epoch && x.Issuers != nil {
			return m.Issuers != nil && x.Issuers.Leader == m.Issuers.Leader && x.Issuers.Helper == m.Issuers.Helper && x.Issuers.Attester == m.Issuers.Attester &&
				slices.Equal(x.Issuers.Admission, m.Issuers.Admission)
		}
	}
	return true
}

// Cohort is for how many devices there are credentials of a manifest's epoch, as the owners
// of both issuers and of the attester say in the log; false as long as one of them has not,
// and for a manifest with other issuers than its epoch has ([Logbook.Coming]).
// It fails as [Logbook.Coming].
func (l *Logbook) Cohort(m *ohttp.Manifest) (c arc.Cohort, ok bool, err error) {
	h, _, err := l.now()
	if err != nil || !l.issues(h, m) {
		return c, false, err
	}
	if l.o.Recipe.Path.Proofs() {
		c, ok = h.content.Cohort(m)
	} else if p := l.o.Recipe.Parties(); len(p) > 2 {
		c, ok = h.content.HopsCohort(m, p[0].Key, p[1].Key)
	}
	return c, ok, nil
}

// Holds says whether the log holds a recipe now. It fails with [ErrNotHeld], and as
// [Logbook.Coming].
func (l *Logbook) Holds(id recipe.ID) error {
	h, _, err := l.now()
	if err != nil {
		return err
	}
	if _, ok := h.content.Recipes[id]; !ok {
		return fmt.Errorf("%w %s%s", ErrNotHeld, hex.EncodeToString(id[:8]), h.skipped())
	}
	return nil
}

// Counted says whether the owners of a recipe's leader and helper have logged how many devices
// have the attributes that it asks for. It fails with [logged.ErrNotCounted], and as
// [Logbook.Coming].
func (l *Logbook) Counted(r *recipe.Recipe) error {
	h, _, err := l.now()
	if err != nil {
		return err
	}
	return h.content.Counted(r)
}

// A Seen is how far a device has followed the log.
type Seen struct {
	// Size is how many entries it had, and Time when witnesses last said so.
	Size int64
	Time time.Time
	// Begin and End bound the period whose set of entries is held; zero is none.
	Begin, End time.Time
	Recipes    int
	Manifests  int
}

// Seen says how far the device has followed the log.
func (l *Logbook) Seen() (s Seen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Size, s.Time = l.memory.Checkpoint.Size, l.memory.Time
	if l.held != nil {
		s.Begin, s.End = l.held.Begin, l.held.End
		s.Recipes, s.Manifests = len(l.held.content.Recipes), len(l.held.content.Manifests)+len(l.held.content.Fronts)
	}
	return s
}
