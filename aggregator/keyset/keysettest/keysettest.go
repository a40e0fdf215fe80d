// Package keysettest runs sets of HPKE keys on a vault of any kind: the life of a key, and,
// where replicas share the vault, what they owe one another while some are slow, dead, wrong
// about the time, or cut off in mid-change.
package keysettest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// A Harness has the vaults of one test.
type Harness interface {
	// Open opens a handle on the same secrets.
	Open(t *testing.T) vault.Vault
	// Shared says whether several handles may be used side by side.
	Shared() bool
	// Advance has time pass, for the vault and for Clock.
	Advance(d time.Duration)
	// Clock is a clock that is that much ahead of the vault's.
	Clock(ahead time.Duration) disk.Clock
}

// Run runs the suite. Each test has a harness of its own.
func Run(t *testing.T, harness func(t *testing.T) Harness) {
	for _, test := range []struct {
		name   string
		shared bool
		run    func(t *testing.T, w *world)
	}{
		{"Life", false, life},
		{"OfferedWhenHeld", true, offeredWhenHeld},
		{"DeadReplica", true, deadReplica},
		{"MakerDies", true, makerDies},
		{"MakerFails", true, makerFails},
		{"TwoMakers", true, twoMakers},
		{"ClockOff", true, clockOff},
		{"DestroyedWhenClosed", true, destroyedWhenClosed},
		{"CutOff", true, cutOff},
		{"StartAtOnce", true, startAtOnce},
		{"PromisesKept", true, promisesKept},
		{"AnswersLost", false, answersLost},
	} {
		t.Run(test.name, func(t *testing.T) {
			if h := harness(t); h.Shared() || !test.shared {
				test.run(t, &world{T: t, h: h})
			}
		})
	}
}

// A key is current for 10 minutes, taken for 5 more, and then ended.
var schedule = keyset.Schedule{Period: 10 * time.Minute, MaxAge: 4 * time.Minute, Overlap: time.Minute}

type world struct {
	*testing.T
	h Harness
}

// A replica is one process.
type replica struct {
	w *world
	*keyset.Set
	fail *disk.Failpoints
}

func (w *world) options(ahead time.Duration) keyset.Options {
	return keyset.Options{Schedule: schedule, Vault: w.h.Open(w.T), Clock: w.h.Clock(ahead), Failpoints: new(disk.Failpoints)}
}

// replica starts one, whose clock is that much ahead.
func (w *world) replica(ahead time.Duration) *replica {
	w.Helper()
	opt := w.options(ahead)
	s, err := keyset.Open(w.Context(), opt)
	if err != nil {
		w.Fatal(err)
	}
	return &replica{w, s, opt.Failpoints}
}

func unneeded(context.Context, uint8, time.Time) (string, error) { return "", nil }

func (r *replica) step() {
	r.w.Helper()
	if _, err := r.Step(r.w.Context(), unneeded); err != nil {
		r.w.Fatal(err)
	}
}

// offered is the one configuration that a replica offers.
func (r *replica) offered() dap.HpkeConfig {
	r.w.Helper()
	body, _ := r.List()
	list, err := dap.ReadHpkeConfigList(body)
	if err != nil || len(list) != 1 {
		r.w.Fatalf("%d are offered, %v", len(list), err)
	}
	return list[0]
}

func (r *replica) offers(want dap.HpkeConfig) {
	r.w.Helper()
	if got := r.offered(); got.ID != want.ID || !bytes.Equal(got.Key, want.Key) {
		r.w.Fatalf("key %d is offered, want %d", got.ID, want.ID)
	}
}

// serves wants a replica to take uploads to a key, and to open them.
func (r *replica) serves(c dap.HpkeConfig) {
	r.w.Helper()
	ct, err := dap.Seal(c, []byte("info"), nil, []byte("text"))
	if err != nil {
		r.w.Fatal(err)
	}
	h := r.Accepting()
	defer h.Release()
	if !h.Has(c.ID) {
		r.w.Fatalf("key %d is offered somewhere, and not taken here", c.ID)
	}
	if text, err := r.Keyring().Open(ct.ConfigID, ct.Enc, []byte("info"), nil, ct.Payload); err != nil || string(text) != "text" {
		r.w.Fatalf("an upload to key %d does not open: %v", c.ID, err)
	}
}

// state is how a replica calls a key.
func (r *replica) state(id uint8) (state, why string) {
	for _, k := range r.Status() {
		if k.ID == id {
			return k.State, k.Why
		}
	}
	return "", ""
}

// pass has time go by, up to which all replicas live, and the first of them is the maker.
func (w *world) pass(d time.Duration, replicas ...*replica) {
	w.Helper()
	w.h.Advance(d - time.Second)
	for _, r := range replicas {
		r.step()
	}
	w.h.Advance(time.Second)
}

func (r *replica) sound() {
	r.w.Helper()
	if faults, err := r.Audit(r.w.Context()); err != nil || len(faults) > 0 {
		r.w.Errorf("audit: %v, %q", err, faults)
	}
}

// living is how many secrets the vault has.
func (w *world) living(want int) {
	w.Helper()
	names, err := w.h.Open(w.T).Names(w.Context())
	if err != nil || len(names) != want {
		w.Errorf("the vault has %q, %v; want %d", names, err, want)
	}
}

// waiting is the key that is made and not offered.
func (r *replica) waiting() (id uint8, why string) {
	r.w.Helper()
	for _, k := range r.Status() {
		if k.State == status.KeyWaiting {
			return k.ID, k.Why
		}
	}
	r.w.Fatal("no key waits")
	return 0, ""
}

// life: a key is offered, followed, closed and destroyed, and one that is destroyed is not
// in the vault.
func life(t *testing.T, w *world) {
	a := w.replica(0)
	first := a.offered()
	a.serves(first)
	w.h.Advance(schedule.Period)
	for range 2 { // where there may be replicas, it is made first and then offered
		a.step()
	}
	second := a.offered()
	if second.ID == first.ID || bytes.Equal(second.Key, first.Key) {
		t.Fatal("no new key")
	}
	a.serves(first)
	a.serves(second)
	w.living(2)
	w.h.Advance(schedule.MaxAge + schedule.Overlap)
	for range 2 {
		a.step()
	}
	if state, _ := a.state(first.ID); state != status.KeyDestroyed {
		t.Errorf("the first key is %s", state)
	}
	a.offers(second)
	w.living(1)
	a.sound()
}

// offeredWhenHeld: a key is offered by nobody before each replica has it, and whoever is
// asked takes it then.
func offeredWhenHeld(t *testing.T, w *world) {
	a, b, c := w.replica(0), w.replica(0), w.replica(0)
	first := a.offered()
	for _, r := range []*replica{b, c} {
		r.offers(first)
		r.serves(first)
	}
	w.pass(schedule.Period, a, b, c)
	a.step() // makes it
	for range 3 {
		a.step()
		b.step()
		a.offers(first)
		b.offers(first)
	}
	if _, why := a.waiting(); !strings.Contains(why, "does not hold it yet") {
		t.Errorf("why: %q", why)
	}
	c.step()
	a.step()
	second := a.offered()
	if second.ID == first.ID {
		t.Fatal("all hold it, and it is not offered")
	}
	for _, r := range []*replica{a, b, c} { // b and c have not heard yet that it is offered
		r.serves(second)
		r.serves(first)
	}
	b.step()
	c.step()
	b.offers(second)
	c.offers(second)
	b.sound()
	c.sound()
}

// deadReplica: a replica that is silent holds a key up for its lease and no longer.
func deadReplica(t *testing.T, w *world) {
	a, dead := w.replica(0), w.replica(0)
	first := a.offered()
	w.h.Advance(schedule.Period - vault.Lease/2)
	a.step()
	dead.step()
	w.h.Advance(vault.Lease / 2)
	a.step()
	w.h.Advance(vault.Lease/2 - time.Second)
	a.step()
	a.offers(first)
	w.h.Advance(2 * time.Second)
	a.step()
	second := a.offered()
	if second.ID == first.ID {
		t.Fatal("a dead replica holds a key up")
	}
	// It was not dead, but cut off.
	dead.offers(first)
	dead.step()
	dead.offers(second)
	dead.serves(second)
}

// makerDies: whatever a maker leaves behind, the next one offers one new key, and the vault
// has no other.
func makerDies(t *testing.T, w *world) {
	lost := errors.New("power")
	for _, point := range []string{"keys.before-make", "keys.after-file", "keys.after-make"} {
		a, b := w.replica(0), w.replica(0) // a is the maker
		w.h.Advance(schedule.Period)
		for range 2 {
			a.step()
			b.step()
		}
		first := a.offered()
		w.pass(schedule.Period, a, b)
		a.fail.Arm(point, 0, func() error { return lost })
		if _, err := a.Step(t.Context(), unneeded); !errors.Is(err, lost) {
			t.Fatalf("%s: %v", point, err)
		}
		b.step()
		b.offers(first)
		w.h.Advance(vault.Lease + time.Second)
		for range 3 {
			b.step()
		}
		second := b.offered()
		if second.ID == first.ID {
			t.Fatalf("%s: no new key is offered", point)
		}
		b.serves(first)
		b.serves(second)
		w.living(2)
		w.h.Advance(schedule.MaxAge + schedule.Overlap)
		for range 2 {
			b.step()
		}
		b.sound()
		w.living(1)
		w.h.Advance(vault.Lease + time.Second)
	}
}

// makerFails: a maker that cannot make keys, and lives, leaves them to another one.
func makerFails(t *testing.T, w *world) {
	a, b := w.replica(0), w.replica(0)
	first := a.offered()
	w.pass(schedule.Period, a, b)
	broken := errors.New("no wrapping key")
	a.fail.Arm("keys.before-make", 0, func() error { return broken })
	for range 2 {
		if _, err := a.Step(t.Context(), unneeded); err != nil && !errors.Is(err, broken) {
			t.Fatal(err)
		}
	}
	b.step()
	a.step()
	b.step()
	if a.step(); a.offered().ID == first.ID {
		t.Error("no new key")
	}
	b.offers(a.offered())
}

// twoMakers: a maker that is cut off in the middle of making, until another one has made and
// offered a key, changes nothing when it goes on.
func twoMakers(t *testing.T, w *world) {
	a, b := w.replica(0), w.replica(0)
	first := a.offered()
	w.h.Advance(schedule.Period)
	a.step() // makes
	b.step()
	a.step() // offers
	second := a.offered()
	w.h.Advance(schedule.Period)
	a.fail.Arm("keys.after-file", 0, func() error {
		a.fail.Disarm("keys.after-file")
		w.h.Advance(vault.Lease + time.Second)
		for range 3 {
			b.step()
		}
		return nil
	})
	a.step()
	third := b.offered()
	if second.ID == first.ID || third.ID == second.ID {
		t.Fatal("no new key")
	}
	for range 2 {
		b.step()
		a.step()
	}
	for _, r := range []*replica{a, b} {
		r.offers(third)
		r.serves(third)
		r.serves(second)
		r.sound()
	}
	w.living(2) // the first is over by now
	var wg sync.WaitGroup
	for range 3 {
		w.h.Advance(schedule.Period)
		for _, r := range []*replica{a, b, a, b, a, b} {
			wg.Go(func() {
				if _, err := r.Step(t.Context(), unneeded); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for range 3 {
			a.step()
			b.step()
		}
		a.offers(b.offered())
		a.sound()
		b.sound()
	}
}

// clockOff: a replica whose clock is days off makes keys when they are due, as the vault's
// clock has it, and neither ends one early nor keeps one.
func clockOff(t *testing.T, w *world) {
	for _, off := range []time.Duration{-72 * time.Hour, 72 * time.Hour} {
		a, wrong := w.replica(0), w.replica(off)
		first := a.offered()
		wrong.offers(first)
		w.h.Advance(vault.Lease + time.Second)
		wrong.step() // the maker, by now
		wrong.offers(first)
		wrong.serves(first)
		if n := len(wrong.Status()); n != len(a.Status()) {
			t.Errorf("%v: it knows %d keys, the other %d", off, n, len(a.Status()))
		}
		w.h.Advance(schedule.Period)
		for range 3 {
			wrong.step()
			a.step()
		}
		second := a.offered()
		if second.ID == first.ID {
			t.Fatalf("%v: no new key when it is due", off)
		}
		w.h.Advance(schedule.MaxAge + schedule.Overlap - time.Second)
		for range 2 {
			wrong.step()
			a.step()
		}
		a.serves(first)
		wrong.serves(first)
		w.h.Advance(2 * time.Second)
		for range 3 {
			wrong.step()
			a.step()
		}
		for _, r := range []*replica{a, wrong} {
			if state, _ := r.state(first.ID); state != status.KeyDestroyed {
				t.Errorf("%v: the first key is %s", off, state)
			}
			r.sound()
		}
		w.h.Advance(vault.Lease + time.Second)
		// so that both are dead for those that follow
	}
}

// destroyedWhenClosed: a key stays while a replica has work under way that may use it, or
// has not closed it.
func destroyedWhenClosed(t *testing.T, w *world) {
	a, b := w.replica(0), w.replica(0)
	first := a.offered()
	upload := b.Accepting()
	w.pass(schedule.Period, a, b)
	for range 2 {
		a.step()
		b.step()
	}
	a.step()
	if a.offered().ID == first.ID {
		t.Fatal("no new key")
	}
	w.pass(schedule.MaxAge+schedule.Overlap, a, b)
	for range 4 {
		a.step()
		b.step()
	}
	a.step()
	state, why := a.state(first.ID)
	if state != status.KeyRetiring || !strings.Contains(why, "under way at replica") {
		t.Fatalf("a key that another replica uses is %s, %q", state, why)
	}
	late := b.Accepting()
	if late.Has(first.ID) {
		t.Error("work begins with a key that is closed")
	}
	late.Release()
	upload.Release()
	a.step() // it does not know yet
	if state, _ := a.state(first.ID); state != status.KeyRetiring {
		t.Fatalf("it is %s before the other one said that it is done", state)
	}
	b.step()
	a.step()
	if state, _ := a.state(first.ID); state != status.KeyDestroyed {
		t.Errorf("a key that nobody uses is %s", state)
	}
	b.step()
	if state, _ := b.state(first.ID); state != status.KeyDestroyed {
		t.Errorf("at the other it is %s", state)
	}
	w.living(1)
}

// life is that of work which a replica begins now.
func (r *replica) life() string {
	h := r.Accepting()
	defer h.Release()
	return h.Life()
}

// cutOff: what a replica had begun when the others held it dead, and destroyed a key that it
// uses, is of a life that is over; what it begins then has the keys of the others.
func cutOff(t *testing.T, w *world) {
	a, b := w.replica(0), w.replica(0)
	first := b.offered()
	upload := b.Accepting()
	if life := upload.Life(); life == "" || life == a.life() || life != b.life() {
		t.Fatalf("the life of work is %q", life)
	}
	w.h.Advance(schedule.Period)
	for range 2 {
		a.step()
	}
	w.h.Advance(schedule.MaxAge + schedule.Overlap)
	for range 3 {
		a.step()
	}
	if state, _ := a.state(first.ID); state != status.KeyDestroyed {
		t.Fatalf("a key that a dead replica uses is %s", state)
	}
	if b.life() != upload.Life() {
		t.Error("a replica that has not heard of its death has another life")
	}
	b.step()
	late := b.Accepting()
	defer late.Release()
	if late.Life() == upload.Life() || late.Has(first.ID) {
		t.Error("work of before and after is of one life, or has a key that is destroyed")
	}
	upload.Release()
	b.step()
	b.sound()
}

// startAtOnce: replicas that start together on nothing offer one key.
func startAtOnce(t *testing.T, w *world) {
	const replicas = 3
	var wg sync.WaitGroup
	sets := make([]*replica, replicas)
	options := make([]keyset.Options, replicas)
	for i := range sets {
		options[i] = w.options(0)
	}
	for i := range sets {
		wg.Go(func() {
			s, err := keyset.Open(t.Context(), options[i])
			if err != nil {
				t.Error(err)
				return
			}
			sets[i] = &replica{w, s, nil}
		})
	}
	wg.Wait()
	if slices.Contains(sets, nil) {
		return
	}
	for _, r := range sets {
		r.step()
		r.offers(sets[0].offered())
		r.serves(sets[0].offered())
	}
	w.living(1)
}

// promisesKept: a list that any replica has signed is a promise of all, also where the maker
// has changed the keys since that replica last looked.
func promisesKept(t *testing.T, w *world) {
	now := w.h.Clock(0).Now()
	signer := func() *signed.Signer {
		return signedtest.Signer(t, signed.Generate(), now.Add(-time.Hour), 25*time.Hour)
	}
	s := signer()
	d := keyset.Deployment{ID: [32]byte{3}, Epoch: 10 * time.Minute, Leader: "https://leader.example/", Helper: "https://helper.example/",
		Relay: "https://relay.example/", Roots: ohttp.Roots{Leader: s.Root(), Helper: signer().Root(), Gateway: signer().Root()}}
	signing := keyset.Signing{Signer: s, Role: signed.Leader, Deployments: []keyset.Deployment{d}, Held: 5 * time.Minute}
	var replicas []*replica
	for range 2 {
		opt := w.options(0)
		opt.Promise = signing.PromiseFor(opt.Overlap)
		set, err := keyset.Open(t.Context(), opt)
		if err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, &replica{w, set, opt.Failpoints})
	}
	a, b := replicas[0], replicas[1]
	n, err := keyset.NewNotary(b.Set, signing, disktest.NewMem(1))
	if err != nil {
		t.Fatal(err)
	}
	first := a.offered()
	w.pass(schedule.Period, a, b)
	a.step() // makes a key, of which b knows nothing
	now = w.h.Clock(0).Now()
	until := now.Add(9 * time.Minute).Truncate(time.Second)
	if _, err := n.ListFor(t.Context(), d.ID, now.Truncate(time.Second), until); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.step()
		a.step()
	}
	if a.offered().ID == first.ID {
		t.Fatal("no new key")
	}
	last := until.Add(schedule.Overlap + signing.Held - 2*time.Second)
	w.pass(last.Sub(w.h.Clock(0).Now()), a, b)
	for range 2 {
		a.step()
		b.step()
	}
	a.serves(first)
	b.serves(first)
	w.pass(5*time.Second, a, b)
	for range 3 {
		a.step()
		b.step()
	}
	if state, _ := a.state(first.ID); state != status.KeyDestroyed {
		t.Errorf("after the promise the key is %s", state)
	}
}

// deaf is a vault whose answers to a change are lost, before it or after it.
type deaf struct {
	vault.Vault
	before, after bool
}

var errNoAnswer = errors.New("no answer")

func (d *deaf) Save(ctx context.Context, state []byte, after uint64) error {
	if d.before {
		return errNoAnswer
	}
	if err := d.Vault.Save(ctx, state, after); err != nil || !d.after {
		return err
	}
	return errNoAnswer
}

// answersLost: a change whose answer is lost took place or did not; the steps after it find
// out, and no key that was offered is lost.
func answersLost(t *testing.T, w *world) {
	opt := w.options(0)
	d := &deaf{Vault: opt.Vault}
	opt.Vault = d
	s, err := keyset.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	a := &replica{w, s, opt.Failpoints}
	for _, after := range []bool{false, true} {
		first := a.offered()
		w.h.Advance(schedule.Period)
		for d.before, d.after = !after, after; d.before || d.after; d.before, d.after = false, false {
			if _, err := a.Step(t.Context(), unneeded); !errors.Is(err, errNoAnswer) {
				t.Fatalf("after %v: %v", after, err)
			}
			a.serves(first)
		}
		for range 3 {
			a.step()
		}
		second := a.offered()
		if second.ID == first.ID {
			t.Errorf("after %v: no new key", after)
		}
		a.serves(first)
		a.serves(second)
		w.living(2)
		a.sound()
		w.h.Advance(schedule.MaxAge + schedule.Overlap)
		d.before, d.after = !after, after // of the end of the first
		if _, err := a.Step(t.Context(), unneeded); !errors.Is(err, errNoAnswer) {
			t.Fatalf("after %v: %v", after, err)
		}
		d.before, d.after = false, false
		for range 3 {
			a.step()
		}
		w.living(1)
		a.offers(second)
		a.sound()
	}
}
