package signed

import (
	"errors"
	"testing"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

func statement(epoch uint32, revision uint16, from, until int, digest byte) Statement {
	return Statement{[32]byte{1}, epoch, revision, day(from), day(until), [32]byte{digest}}
}

// TestSaidOnce: of one epoch a party says one thing, and nothing of the past or over
// another epoch's time; restarts change nothing.
func TestSaidOnce(t *testing.T) {
	fsys := disktest.NewMem(1)
	open := func() *Record {
		t.Helper()
		r, err := OpenRecord(fsys, "signed")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for i, c := range []struct {
		s    Statement
		want error
	}{
		{statement(5, 0, 0, 7, 1), nil},
		{statement(5, 0, 0, 7, 1), nil}, // the same again
		{statement(5, 0, 0, 7, 2), ErrSigned},
		{statement(5, 0, 1, 7, 1), ErrSigned},
		{statement(4, 0, -7, 0, 3), ErrSigned},
		{statement(6, 0, 6, 13, 3), ErrSigned}, // two at one time
		{statement(5, 1, 0, 6, 4), ErrSigned},
		{statement(5, 1, 2, 7, 4), nil}, // an emergency
		{statement(5, 0, 0, 7, 1), ErrSigned},
		{statement(5, 1, 2, 7, 5), ErrSigned},
		{statement(6, 0, 7, 14, 6), nil},
		{statement(6, 0, 7, 14, 7), ErrSigned},
		// an emergency that reaches back into epoch 5
		{statement(6, 1, 6, 14, 8), ErrSigned},
		{Statement{[32]byte{2}, 1, 0, day(0), day(1), [32]byte{9}}, nil}, // another deployment
		{statement(6, 0, 7, 14, 6), nil},
		{Statement{[32]byte{2}, 1, 0, time.Unix(-5, 0), day(1), [32]byte{9}}, ErrSigned},
	} {
		for range 2 { // the second by the next life, after a loss of power
			if err := open().Say(c.s); !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
				t.Fatalf("statement %d: %v, want %v", i, err, c.want)
			}
			fsys = fsys.Crash()
		}
	}
	if s, ok, err := open().Last([32]byte{1}); err != nil || !ok || s != statement(6, 0, 7, 14, 6) {
		t.Errorf("%+v, %v, %v", s, ok, err)
	}
	if _, ok, err := open().Last([32]byte{3}); ok || err != nil {
		t.Errorf("a deployment that nothing was said of: %v, %v", ok, err)
	}
}

// TestSaidAtFailingDisk: whatever write fails, and whether the power goes then or not, no
// second digest is let through beside one that was.
func TestSaidAtFailingDisk(t *testing.T) {
	failed := 0
	for at := 0; ; at++ {
		for _, cut := range []bool{false, true} {
			fsys := disktest.NewMem(uint64(at))
			r, err := OpenRecord(fsys, "signed")
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Say(statement(1, 0, 0, 7, 1)); err != nil {
				t.Fatal(err)
			}
			n, bad := 0, errors.New("no")
			fsys.Inject(func(disktest.Op, string) error {
				if n++; n == at+1 {
					return bad
				}
				return nil
			})
			said := map[byte]bool{}
			if r.Say(statement(2, 0, 7, 14, 2)) == nil {
				said[2] = true
			} else {
				failed++
			}
			done := n <= at
			fsys.Inject(nil)
			if cut {
				fsys = fsys.Crash()
				if r, err = OpenRecord(fsys, "signed"); err != nil {
					t.Fatal(err)
				}
			}
			for _, digest := range []byte{3, 2} {
				if r.Say(statement(2, 0, 7, 14, digest)) == nil {
					said[digest] = true
				}
			}
			if len(said) != 1 {
				t.Errorf("operation %d fails, power cut %v: %d digests were signed", at, cut, len(said))
			}
			if r.Say(statement(1, 0, 0, 7, 1)) == nil {
				t.Errorf("operation %d fails, power cut %v: an old epoch is signed", at, cut)
			}
			if done && cut {
				if failed < 4 {
					t.Errorf("only %d failures were played", failed)
				}
				return
			}
		}
	}
}

func TestRecordDamaged(t *testing.T) {
	fsys := disktest.NewMem(1)
	r, err := OpenRecord(fsys, "signed")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Say(statement(1, 0, 0, 7, 1)); err != nil {
		t.Fatal(err)
	}
	file, err := disk.ReadFile(fsys, "signed", int64(maxRecord))
	if err != nil {
		t.Fatal(err)
	}
	for i := range file {
		changed := append([]byte(nil), file...)
		changed[i] ^= 1
		for _, content := range [][]byte{changed, file[:i]} {
			if err := disk.WriteFile(fsys, "signed", content); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenRecord(fsys, "signed"); !errors.Is(err, ErrRecord) {
				t.Fatalf("byte %d: %v", i, err)
			}
			if err := r.Say(statement(9, 0, 90, 97, 1)); !errors.Is(err, ErrRecord) {
				t.Fatalf("byte %d: signed on: %v", i, err)
			}
		}
	}
}
