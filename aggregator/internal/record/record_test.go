package record

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

var someone = Identity{Role: dap.RoleHelper, Party: "https://helper.example/x y\"", ID: [16]byte{1, 2, 15: 3}}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestMark: what was written last is read again, and nothing goes back.
func TestMark(t *testing.T) {
	mem := disktest.NewMem(1)
	if _, err := Open(mem); !errors.Is(err, ErrNone) {
		t.Fatalf("an empty disk: %v", err)
	}
	must[*Record](t)(Begin(mem, someone))
	want := Mark{State: Begun}
	for i := range uint64(5) {
		r := must[*Record](t)(Open(mem))
		if r.Identity != someone || r.Mark != want {
			t.Fatalf("read %+v %+v, want %+v", r.Identity, r.Mark, want)
		}
		want = Mark{State: InUse, Epoch: uint32(i / 3), Age: 10 * i, Releases: i, Total: [32]byte{byte(i)}}
		if err := r.Write(want); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	r := must[*Record](t)(Open(mem))
	for what, m := range map[string]Mark{
		"age": {InUse, want.Epoch, want.Age - 1, want.Releases, want.Total}, "releases": {InUse, want.Epoch, want.Age, want.Releases - 1, want.Total},
		"epoch": {InUse, want.Epoch - 1, want.Age + 9, want.Releases + 9, want.Total}, "state": {Begun, want.Epoch, want.Age, want.Releases, want.Total},
	} {
		if err := r.Write(m); !errors.Is(err, ErrBack) {
			t.Errorf("%s goes back: %v", what, err)
		}
	}
	if err := r.Write(Mark{State: InUse, Epoch: want.Epoch + 1}); err != nil {
		t.Errorf("a new epoch: %v", err)
	}
	r.Close()
}

// TestMarkOutlivesPowerLoss: a write that is torn anywhere leaves the mark before, or is
// done.
func TestMarkOutlivesPowerLoss(t *testing.T) {
	for seed := range uint64(400) {
		mem := disktest.NewMem(seed)
		r := must[*Record](t)(Begin(mem, someone))
		old := Mark{State: InUse, Age: 5, Releases: 1 + seed%2}
		if err := r.Write(old); err != nil {
			t.Fatal(err)
		}
		if seed%3 == 0 {
			old.Age++
			if err := r.Write(old); err != nil {
				t.Fatal(err)
			}
		}
		next := Mark{State: InUse, Age: 9, Releases: 7, Total: [32]byte{1}}
		mem.Inject(func(op disktest.Op, _ string) error {
			if op == disktest.OpSync {
				return disktest.ErrPowerLoss
			}
			return nil
		})
		if err := r.Write(next); err == nil {
			t.Fatal("a failed sync was not reported")
		}
		r = must[*Record](t)(Open(mem.Crash()))
		if r.Mark != old && r.Mark != next {
			t.Errorf("seed %d: read %+v", seed, r.Mark)
		}
		r.Close()
	}
}

// TestDamagedMark: every flipped bit is found, and leaves the mark before, or none.
func TestDamagedMark(t *testing.T) {
	mem := disktest.NewMem(1)
	r := must[*Record](t)(Begin(mem, someone))
	for i := range uint64(2) {
		if err := r.Write(Mark{State: InUse, Age: i + 1}); err != nil {
			t.Fatal(err)
		}
	}
	whole := must[[]byte](t)(disk.ReadFile(mem, Name, 1<<20))
	for bit := 0; bit < 8*len(whole); bit += 7 {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		if err := disk.WriteFile(mem, Name, b); err != nil {
			t.Fatal(err)
		}
		want := uint64(2) // in the first place
		if bit < 8*place {
			want = 1
		}
		if r := must[*Record](t)(Open(mem)); r.Age != want {
			t.Fatalf("bit %d: age %d, want %d", bit, r.Age, want)
		} else {
			r.Close()
		}
	}
	for _, b := range [][]byte{nil, whole[:place-1], make([]byte, 2*place), append(bytes.Clone(whole), 0)} {
		if err := disk.WriteFile(mem, Name, b); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(mem); err == nil {
			t.Errorf("%d bytes were read", len(b))
		}
	}
}

// TestIdentity: the file beside a database has one spelling, and says whose it is.
func TestIdentity(t *testing.T) {
	mem := disktest.NewMem(1)
	if _, err := ReadIdentity(mem); !errors.Is(err, ErrNoIdentity) {
		t.Fatalf("an empty disk: %v", err)
	}
	for _, id := range []Identity{someone, {dap.RoleLeader, "x", [16]byte{255}}} {
		if err := WriteIdentity(mem, id); err != nil {
			t.Fatal(err)
		}
		if got := must[Identity](t)(ReadIdentity(mem)); got != id {
			t.Errorf("read %+v, want %+v", got, id)
		}
	}
	text := must[[]byte](t)(disk.ReadFile(mem, beside, 1<<20))
	if !strings.Contains(string(text), "role leader\n") {
		t.Errorf("no person can read %q", text)
	}
	for bit := range 8 * len(text) {
		b := bytes.Clone(text)
		b[bit/8] ^= 1 << (bit % 8)
		if err := disk.WriteFile(mem, beside, b); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadIdentity(mem); !errors.Is(err, ErrNoIdentity) {
			t.Fatalf("bit %d: %v", bit, err)
		}
	}
	if err := disk.WriteFile(mem, beside, append(bytes.Clone(text), '\n')); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadIdentity(mem); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("a line more: %v", err)
	}
}

func TestLongParty(t *testing.T) {
	if _, err := Begin(disktest.NewMem(1), Identity{dap.RoleLeader, strings.Repeat("x", maxParty+1), [16]byte{}}); err == nil {
		t.Error("a name that fits no place was taken")
	}
	r := must[*Record](t)(Begin(disktest.NewMem(1), Identity{dap.RoleLeader, strings.Repeat("x", maxParty), [16]byte{}}))
	r.Close()
}
