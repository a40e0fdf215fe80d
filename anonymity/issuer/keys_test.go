package issuer

import (
	"errors"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/internal/orders"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/signed"
)

const testEpoch = 24 * time.Hour

func newTest(t *testing.T, keys *disktest.Mem, now func() time.Time) *Issuer {
	t.Helper()
	x, err := New(Options{Role: signed.Leader, Deployment: [32]byte{9}, Epoch: testEpoch, Keys: keys, Register: disktest.NewMem(2),
		Terms: func(uint32) (Terms, bool) { return Terms{}, false }, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// TestKeys: each epoch has one key, for one issuer, and none again once it was destroyed; what
// of a key's file is not as it was written is refused.
func TestKeys(t *testing.T) {
	mem := disktest.NewMem(1)
	make := func(epoch uint32) error {
		_, err := MakeKey(mem, signed.Leader, [32]byte{9}, epoch)
		return err
	}
	for _, epoch := range []uint32{100, 101, 102} {
		if err := make(epoch); err != nil {
			t.Fatal(err)
		}
	}
	if err := make(101); !errors.Is(err, ErrKeyExists) {
		t.Errorf("a second key: %v", err)
	}
	for _, role := range []signed.Role{0, signed.Gateway, signed.Attester, signed.Hop2 + 1} {
		if _, err := MakeKey(mem, role, [32]byte{9}, 1); err == nil {
			t.Errorf("the %v has a key of an issuer", role)
		}
	}
	x := newTest(t, mem, time.Now)
	seen := map[arc.KeyID]bool{}
	for _, epoch := range []uint64{100, 101, 102, 101} {
		_, id, err := x.Verifier(t.Context(), [32]byte{9}, epoch)
		if err != nil {
			t.Fatal(err)
		}
		seen[id] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d keys for three epochs", len(seen))
	}
	files := disktest.FilesOf(t, mem)
	good := files["101.issuer"]
	for name, b := range map[string][]byte{"cut": good[:len(good)-1], "longer": append(append([]byte{}, good...), 0), "another epoch's": files["100.issuer"]} {
		bad := disktest.NewMem(3)
		files.With("101.issuer", b).Put(t, bad)
		if _, _, err := newTest(t, bad, time.Now).Verifier(t.Context(), [32]byte{9}, 101); !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := disktest.NewMem(4)
	if _, err := MakeKey(other, signed.Helper, [32]byte{9}, 101); err != nil {
		t.Fatal(err)
	}
	if _, _, err := newTest(t, other, time.Now).Verifier(t.Context(), [32]byte{9}, 101); !errors.Is(err, ErrKey) {
		t.Errorf("the helper's: %v", err)
	}
}

// TestHopsHaveIssuers: a credential of the issuer beside a hop of the shuffler holds for the
// presentations of that hop, and for those of no other role.
func TestHopsHaveIssuers(t *testing.T) {
	const epoch = 101
	hops := map[arc.Role]*arc.Verifier{}
	shown := map[arc.Role]arc.LimitedItem{}
	for role, signs := range map[arc.Role]signed.Role{arc.Hop1: signed.Hop1, arc.Hop2: signed.Hop2} {
		mem := disktest.NewMem(1)
		public, err := MakeKey(mem, signs, [32]byte{9}, epoch)
		if err != nil {
			t.Fatal(err)
		}
		x, err := New(Options{Role: signs, Deployment: [32]byte{9}, Epoch: testEpoch, Keys: mem, Register: disktest.NewMem(2),
			Terms: func(uint32) (Terms, bool) { return Terms{}, false }})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		var id arc.KeyID
		if hops[role], id, err = x.Verifier(t.Context(), [32]byte{9}, epoch); err != nil || id != public.ID() {
			t.Fatal("another key,", err)
		}
		private, err := readKey(mem, signs, [32]byte{9}, epoch)
		if err != nil {
			t.Fatal(err)
		}
		pending := arc.NewPending(arc.NewRequestContext(role, [32]byte{9}, epoch, id))
		answer, err := private.Respond(pending.Request())
		if err != nil {
			t.Fatal(err)
		}
		credential, err := pending.Finalize(public, answer)
		if err != nil {
			t.Fatal(err)
		}
		context, binding := arc.NewPresentationContext(role, [32]byte{1}, 7, id), arc.Bind(role, []byte("layer"), []byte("onion"))
		all, err := credential.NewPresentationState(context, 3).Present(func([]byte) error { return nil }, binding)
		if err != nil {
			t.Fatal(err)
		}
		shown[role] = arc.LimitedItem{Base: arc.NewTagBase(context), Binding: binding, Presentation: all[0]}
	}
	for role, item := range shown {
		for at, v := range hops {
			if err := v.VerifyLimited(item, 3); (err == nil) != (at == role) {
				t.Errorf("what is shown to %d, at %d: %v", role, at, err)
			}
		}
	}
}

// TestMissingKeys: of epochs before the first key, and of those whose keys were destroyed,
// nothing can hold; a key that should be there is waited for.
func TestMissingKeys(t *testing.T) {
	mem := disktest.NewMem(1)
	now := time.Unix(0, 0)
	x := newTest(t, mem, func() time.Time { return now })
	verify := func(deployment byte, epoch uint64) error {
		_, _, err := x.Verifier(t.Context(), [32]byte{deployment}, epoch)
		return err
	}
	if err := verify(9, 5); err == nil || errors.Is(err, ErrNoKey) {
		t.Errorf("no keys at all: %v", err)
	}
	for _, epoch := range []uint32{100, 101, 103} {
		if _, err := MakeKey(mem, signed.Leader, [32]byte{9}, epoch); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		deployment byte
		epoch      uint64
		gone       bool
	}{{9, 99, true}, {8, 100, true}, {9, 1<<32 + 100, true}, {9, 102, false}, {9, 104, false}} {
		if err := verify(c.deployment, c.epoch); err == nil || errors.Is(err, ErrNoKey) != c.gone {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := verify(9, 100); err != nil {
		t.Fatal(err)
	}
	// The last round of epoch 100 may end with epoch 101, and reports of it come for two days.
	for _, c := range []struct {
		at   int64 // epochs
		last uint32
		any  bool
	}{{102, 0, false}, {103, 0, false}, {104, 100, true}, {104, 0, false}, {105, 101, true}} {
		now = time.Unix(c.at*86400, 0)
		if last, any, err := x.Retire(t.Context()); err != nil || last != c.last || any != c.any {
			t.Errorf("at the beginning of %d: %d, %v, %v; want %d, %v", c.at, last, any, err, c.last, c.any)
		}
	}
	for _, epoch := range []uint32{100, 101, 50} {
		if err := verify(9, uint64(epoch)); !errors.Is(err, ErrNoKey) {
			t.Errorf("%d: %v", epoch, err)
		}
		if _, err := MakeKey(mem, signed.Leader, [32]byte{9}, epoch); !errors.Is(err, ErrKeyExists) {
			t.Errorf("a key of epoch %d is made again: %v", epoch, err)
		}
	}
	for name, b := range disktest.FilesOf(t, mem) {
		if name == "100.issuer" || name == "101.issuer" {
			t.Errorf("%s is still there, %d bytes", name, len(b))
		}
	}
	if err := verify(9, 103); err != nil {
		t.Error(err)
	}
}

// TestCountOutlivesItsKey: how many credentials of an epoch were given out is said when
// its key and register are gone, and where that is not kept nothing is said: 0 would call
// every report forged.
func TestCountOutlivesItsKey(t *testing.T) {
	keys, register := disktest.NewMem(1), disktest.NewMem(2)
	now := time.Unix(101*86400, 0)
	open := func() *Issuer {
		t.Helper()
		x, err := New(Options{Role: signed.Leader, Deployment: [32]byte{9}, Epoch: testEpoch, Keys: keys, Register: register, Now: func() time.Time { return now },
			Terms: func(epoch uint32) (Terms, bool) { return Terms{Begin: time.Unix(int64(epoch)*86400, 0)}, true }})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x := open()
	for _, epoch := range []uint32{99, 100, 101} {
		if _, err := MakeKey(keys, signed.Leader, [32]byte{9}, epoch); err != nil {
			t.Fatal(err)
		}
		for n := range epoch - 98 {
			if _, entered, err := x.register.Enter(t.Context(), epoch, [32]byte{byte(n)}, 10); !entered || err != nil {
				t.Fatal(entered, err)
			}
		}
	}
	check := func(epoch uint32, want uint64) {
		t.Helper()
		if n, err := x.Count(t.Context(), epoch); n != want || err != nil {
			t.Errorf("epoch %d: %d, %v; want %d", epoch, n, err, want)
		}
	}
	check(100, 2)
	now = time.Unix(104*86400, 0)
	if last, any, err := x.Retire(t.Context()); last != 100 || !any || err != nil {
		t.Fatal(last, any, err)
	}
	for range 2 {
		check(99, 1)
		check(100, 2)
		check(101, 3)
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		x = open()
	}
	if _, err := register.Stat("100" + registerSuffix); err == nil {
		t.Error("the register of epoch 100 is still there")
	}
	files := disktest.FilesOf(t, register)
	files.With("100"+orders.CountSuffix, files["99"+orders.CountSuffix]).Put(t, register)
	if n, err := x.Count(t.Context(), 100); !errors.Is(err, orders.ErrCount) {
		t.Errorf("another epoch's count: %d, %v", n, err)
	}
	if err := register.Remove("99" + orders.CountSuffix); err != nil {
		t.Fatal(err)
	}
	if n, err := x.Count(t.Context(), 99); err == nil {
		t.Errorf("a count that is lost: %d", n)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestKeyOfItsFile: a key that was used is used again only as long as its file has it.
func TestKeyOfItsFile(t *testing.T) {
	mem, other := disktest.NewMem(1), disktest.NewMem(2)
	for _, dir := range []*disktest.Mem{mem, other} {
		if _, err := MakeKey(dir, signed.Leader, [32]byte{9}, 100); err != nil {
			t.Fatal(err)
		}
	}
	x := newTest(t, mem, time.Now)
	first, err := x.readKey(100)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := x.readKey(100); err != nil || again != first {
		t.Errorf("the same file is parsed again: %v", err)
	}
	b, err := disk.ReadFile(other, keyName(100), 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.WriteFile(mem, keyName(100), b); err != nil {
		t.Fatal(err)
	}
	if next, err := x.readKey(100); err != nil || next.PublicKey().ID() == first.PublicKey().ID() {
		t.Errorf("another file has the same key: %v", err)
	}
	if err := disk.Remove(mem, keyName(100)); err != nil {
		t.Fatal(err)
	}
	if _, err := x.readKey(100); !errors.Is(err, ErrNoKey) {
		t.Errorf("without its file: %v", err)
	}
}

// meanwhile is a directory in which something happens once while a file of a key is read.
type meanwhile struct {
	*disktest.Mem
	do func()
}

type readFirst struct {
	disk.File
	then func()
}

func (f readFirst) Close() error { f.then(); return f.File.Close() }

func (m *meanwhile) Open(name string) (disk.File, error) {
	f, err := m.Mem.Open(name)
	if do := m.do; err == nil && do != nil && IsKeyFile(name) && name != goneName {
		m.do = nil
		return readFirst{f, do}, nil
	}
	return f, err
}

// TestKeyReadWhileDestroyed: a key that goes while somebody reads it is not kept in memory
// and verifies nothing, then or later.
func TestKeyReadWhileDestroyed(t *testing.T) {
	keys, now := &meanwhile{Mem: disktest.NewMem(1)}, time.Unix(100*86400, 0)
	public, err := MakeKey(keys, signed.Leader, [32]byte{9}, 100)
	if err != nil {
		t.Fatal(err)
	}
	var x *Issuer
	retire := func() {
		now = time.Unix(110*86400, 0)
		if last, any, err := x.Retire(t.Context()); err != nil || !any || last != 100 {
			t.Error(last, any, err)
		}
	}
	retires := false // while the manifest is looked at, which comes after the key is read
	x, err = New(Options{Role: signed.Leader, Deployment: [32]byte{9}, Epoch: testEpoch, Keys: keys, Register: disktest.NewMem(2), Now: func() time.Time { return now },
		Terms: func(uint32) (Terms, bool) {
			if retires {
				retires = false
				retire()
			}
			return Terms{Key: [arc.PublicKeySize]byte(public.Append(nil))}, true
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	files := disktest.FilesOf(t, keys.Mem)
	for _, late := range []bool{false, true} {
		files.Put(t, keys.Mem)
		now, x.destroyed = time.Unix(100*86400, 0), -1
		if retires = late; !late {
			keys.do = retire
		}
		if _, _, err := x.Verifier(t.Context(), [32]byte{9}, 100); !late && !errors.Is(err, ErrNoKey) {
			t.Errorf("it verifies: %v", err)
		}
		if len(x.keys)+len(x.verifiers) > 0 {
			t.Errorf("manifest %v: %d keys and %d verifiers are kept", late, len(x.keys), len(x.verifiers))
		}
		if _, _, err := x.Verifier(t.Context(), [32]byte{9}, 100); !errors.Is(err, ErrNoKey) {
			t.Errorf("manifest %v: it verifies on: %v", late, err)
		}
	}
}
