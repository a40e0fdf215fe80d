package logged

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/signed"
)

// FollowOptions are what a [Follower] goes by.
type FollowOptions struct {
	// Origin is the name of the log, one of Policy's. Required.
	Origin string
	Policy *tlog.Policy // required
	Judge  Judge
	// FS is a directory of its own, which remembers the log. Required.
	FS disk.FS
	// Fetch reads the log's bundle, and Tiles its tiles; see [Remote]. Tiles is optional.
	Fetch func(context.Context) ([]byte, error)
	Tiles func(context.Context) func(path string) ([]byte, error)
	// Manifests are those of which it is asked how many devices there are, verified.
	Manifests func() []*ohttp.Manifest
	Now       func() time.Time // default time.Now
}

// A Follower knows what the owners of both issuers and of the attester have had logged of
// how many devices have credentials, for a party that serves: it never waits for the log
// but in [Follower.Refresh], and what it has found good once it goes by until the log
// shows more, over starts too. Safe for concurrent use.
type Follower struct {
	o        FollowOptions
	fetching sync.Mutex // held while a bundle is fetched and looked at

	mu     sync.Mutex // of what follows
	memory tlog.Memory
	known  map[saidOf]uint64
	seen   time.Time // when a bundle was found good last, by the own clock; zero: never
	why    error     // none was since; nil if the last was good
	since  time.Time // of why
}

// saidOf names who says how many devices there are of an epoch.
type saidOf struct {
	epoch uint32
	role  signed.Role
}

// ErrSaid: an owner says another number than before, of which a log takes one.
var ErrSaid = errors.New("logged: an owner says another number of devices than before")

// ErrFollower: what was remembered cannot be read.
var ErrFollower = errors.New("logged: what was remembered of the log cannot be read")

const (
	memoryFile = "memory"
	knownFile  = "known"
	// Two signed checkpoints each: of a fork that is proved, and of what whoever handed the
	// bundle out may have made look like one.
	forkFile  = "fork"
	doubtFile = "doubt"

	knownMagic = "starling followed cohorts v1\n"
	maxKnown   = 1 << 12 // numbers that are kept, of the newest epochs
)

// Follow reads what was remembered, and asks nobody. It fails with [ErrFollower] and with
// [tlog.ErrOrigin].
func Follow(o FollowOptions) (*Follower, error) {
	if !slices.ContainsFunc(o.Policy.Logs(), func(p tlog.Party) bool { return p.Key.Name() == o.Origin }) {
		return nil, fmt.Errorf("%w: the policy does not know %s", tlog.ErrOrigin, o.Origin)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	f := &Follower{o: o, known: make(map[saidOf]uint64)}
	b, err := disk.ReadFile(o.FS, memoryFile, tlog.MaxMemory)
	if err == nil {
		f.memory, err = tlog.ReadMemory(b)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrFollower, err)
	}
	if len(f.memory.Note) > 0 && f.memory.Checkpoint.Origin != o.Origin {
		return nil, fmt.Errorf("%w: %s", tlog.ErrOrigin, f.memory.Checkpoint.Origin)
	}
	if b, err = disk.ReadFile(o.FS, knownFile, 1<<20); err == nil {
		content, ok := wire.CutSum(b)
		if !ok {
			return nil, fmt.Errorf("%w: wrong checksum of %s", ErrFollower, knownFile)
		}
		err = wire.Read(content, ErrFollower, f.code)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrFollower, err)
	}
	return f, nil
}

// code reads and writes what is known: opaque magic; uint64 seen; {uint32 epoch; uint8
// role; uint64 devices} known<0..2^24-1>, in rising order.
func (f *Follower) code(c *wire.Coder) {
	type item struct {
		saidOf
		n uint64
	}
	var list []item
	for _, k := range slices.SortedFunc(maps.Keys(f.known), saidOf.compare) {
		list = append(list, item{k, f.known[k]})
	}
	c.Const(knownMagic, "no cohorts of version 1")
	c.Seconds(&f.seen, "seen")
	c.Nested24("known", func() {
		wire.Items(c, &list, func(i int, x *item) {
			c.Check(i < maxKnown, "too many numbers")
			c.Uint32(&x.epoch, "epoch")
			role := uint8(x.role)
			c.Uint8(&role, "role")
			x.role = signed.Role(role)
			c.Uint64(&x.n, "devices")
			c.Check(i == 0 || list[i-1].compare(x.saidOf) < 0, "numbers do not rise")
		})
	})
	if !c.Writing() && c.Err() == nil {
		for _, x := range list {
			f.known[x.saidOf] = x.n
		}
	}
}

func (k saidOf) compare(o saidOf) int {
	return cmp.Or(cmp.Compare(k.epoch, o.epoch), cmp.Compare(k.role, o.role))
}

// Refresh fetches the bundle, verifies it against what was seen before, and takes in what
// it says. Where it fails what was known holds on. It fails as Fetch and as
// [tlog.Bundle.Open] do, where an owner has not signed an entry, and with [ErrSaid].
func (f *Follower) Refresh(ctx context.Context) error {
	f.fetching.Lock()
	defer f.fetching.Unlock()
	err := f.refresh(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.why == nil {
		f.since = f.o.Now().UTC().Truncate(time.Second)
	}
	f.why = err
	return err
}

func (f *Follower) refresh(ctx context.Context) error {
	b, err := f.o.Fetch(ctx)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	x, err := tlog.ReadBundle(b)
	if err != nil {
		return err
	}
	var further func(old int64, c *tlog.Checkpoint) ([]tlog.Hash, error)
	if f.o.Tiles != nil {
		further = func(old int64, c *tlog.Checkpoint) ([]tlog.Hash, error) {
			return tlog.NewTree(c, f.o.Tiles(ctx)).Continue(old)
		}
	}
	now := f.o.Now()
	opened, next, err := x.Open(f.o.Policy, f.memory, now, further) // f.memory is written under fetching alone
	if fork := new(tlog.ForkError); errors.As(err, &fork) {
		name := doubtFile
		if fork.Proved {
			name = forkFile
		}
		if _, missing := f.o.FS.Stat(name); missing != nil { // the first pair is kept, to show to others
			err = errors.Join(err, disk.WriteFile(f.o.FS, name, slices.Concat(fork.Seen, []byte("\n"), fork.Given)))
		}
	}
	if err != nil {
		return err
	}
	if opened.Origin != f.o.Origin {
		return fmt.Errorf("%w: %s is followed, and this is %s", tlog.ErrOrigin, f.o.Origin, opened.Origin)
	}
	content, err := f.o.Judge.Read(opened.Entries)
	if err != nil {
		return err
	}
	if err := disk.WriteFile(f.o.FS, memoryFile, next.Append(nil)); err != nil {
		return err
	}
	known, err := f.take(next, content, f.o.Manifests(), now)
	return errors.Join(err, disk.WriteFile(f.o.FS, knownFile, known))
}

// take takes in what a good bundle says, and returns the file of what is known then.
func (f *Follower) take(next tlog.Memory, content *Content, manifests []*ohttp.Manifest, now time.Time) (known []byte, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memory, f.seen = next, now.UTC().Truncate(time.Second)
	for _, m := range manifests {
		for role, n := range content.Said(m) {
			k := saidOf{m.Epoch, role}
			if before, ok := f.known[k]; ok && before != n {
				err = fmt.Errorf("%w: the %v's of epoch %d said %d, and now %d", ErrSaid, role, m.Epoch, before, n)
				continue
			}
			f.known[k] = n
		}
	}
	if all := slices.SortedFunc(maps.Keys(f.known), saidOf.compare); len(all) > maxKnown {
		for _, k := range all[:len(all)-maxKnown] {
			delete(f.known, k)
		}
	}
	return wire.AppendSum(wire.MustAppend(nil, f.code), 0), err
}

// Said is what owners have said of an epoch, by their roles, as far as it is known.
func (f *Follower) Said(epoch uint32) map[signed.Role]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	said := make(map[signed.Role]uint64)
	for _, role := range []signed.Role{signed.Leader, signed.Helper, signed.Attester} {
		if n, ok := f.known[saidOf{epoch, role}]; ok {
			said[role] = n
		}
	}
	return said
}

// Epochs are those of which something was said, the newest first.
func (f *Follower) Epochs() []uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []uint32
	for k := range f.known {
		list = append(list, k.epoch)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	slices.Reverse(list)
	return list
}

// State says when a bundle was found good last (zero: never), and since when none was, and
// why; nil where the last was good.
func (f *Follower) State() (seen, since time.Time, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen, f.since, f.why
}

// Run refreshes until ctx ends, at once and then every so often, and gives up a turn after a
// while; changed is told when the log begins to fail, and with nil when it is good again.
func (f *Follower) Run(ctx context.Context, every, patience time.Duration, changed func(error)) {
	failing := false
	for t := time.NewTicker(every); ; {
		turn, done := context.WithTimeout(ctx, patience)
		err := f.Refresh(turn)
		done()
		if ctx.Err() == nil && (err != nil) != failing {
			failing = err != nil
			changed(err)
		}
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}
