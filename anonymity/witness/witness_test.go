package witness_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
	"github.com/starling-agg/starling/anonymity/witness"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// A bench is a log, and a witness that follows it.
type bench struct {
	*tlogtest.Log
	o    witness.Options
	w    *witness.Witness
	note map[int64][]byte
}

func newBench(t testing.TB, fsys disk.FS) *bench {
	b := &bench{Log: tlogtest.New(t, "log.example"), note: make(map[int64][]byte)}
	b.o = witness.Options{Keys: []*tlog.Secret{tlogtest.Secret(t, "w.example", tlog.CosignEd), tlogtest.Secret(t, "w.example", tlog.CosignMLDSA)}, FS: fsys,
		Now: func() time.Time { return now }}
	b.o.Logs = []*tlog.Key{b.Key.Key()}
	b.start(t)
	return b
}

func (b *bench) start(t testing.TB) {
	t.Helper()
	var err error
	if b.w, err = witness.New(b.o); err != nil {
		t.Fatal(err)
	}
}

// grow appends entries that differ by a seed, up to a size, and keeps the signed checkpoint
// of each size.
func (b *bench) grow(t testing.TB, seed byte, size int64) {
	for b.Size() < size {
		b.Add(t, tlog.Entry{Kind: tlog.KindRelease, Body: []byte{seed, byte(b.Size())}})
		b.note[b.Size()] = b.Sign(t, now)
	}
}

// submission is one from a size to a size.
func (b *bench) submission(t testing.TB, old, size int64) *tlog.Submission {
	t.Helper()
	proof, err := tlog.ProveContinued(size, min(old, size), b)
	if err != nil {
		t.Fatal(err)
	}
	return &tlog.Submission{Old: old, Proof: proof, Note: b.note[size]}
}

func (b *bench) post(body []byte) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	b.w.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/add-checkpoint", bytes.NewReader(body)))
	return rec
}

// submit sends a submission and returns the status.
func (b *bench) submit(t testing.TB, old, size int64) int {
	t.Helper()
	rec := b.post(b.submission(t, old, size).Append(nil))
	if rec.Code == http.StatusOK {
		_, n, _, err := tlog.OpenCosigned(slices.Concat(b.note[size], rec.Body.Bytes()), b.o.Logs, []*tlog.Key{b.o.Keys[0].Key(), b.o.Keys[1].Key()})
		if err != nil || n != 2 {
			t.Fatalf("%d signatures, %v, in %s", n, err, rec.Body)
		}
	}
	return rec.Code
}

// TestAddCheckpoint: each answer that tlog-witness names, in a walk through one log.
func TestAddCheckpoint(t *testing.T) {
	b := newBench(t, disktest.NewMem(1))
	b.grow(t, 0, 12)
	for i, c := range []struct {
		old, size int64
		want      int
	}{
		{1, 5, 409}, {0, 5, 200}, {0, 5, 409}, {5, 5, 200}, {3, 7, 409}, {5, 7, 200}, {7, 5, 400}, {5, 12, 409}, {7, 12, 200}, {12, 12, 200},
	} {
		if got := b.submit(t, c.old, c.size); got != c.want {
			t.Errorf("%d: from %d to %d: %d, want %d", i, c.old, c.size, got, c.want)
		}
	}
	rec := b.post(b.submission(t, 3, 12).Append(nil))
	if rec.Code != 409 || rec.Body.String() != "12\n" || rec.Header().Get("Content-Type") != "text/x.tlog.size" {
		t.Errorf("%d %q %v", rec.Code, rec.Body, rec.Header())
	}
	twin := &bench{Log: &tlogtest.Log{Key: b.Key}, note: make(map[int64][]byte), o: b.o, w: b.w}
	twin.grow(t, 1, 14)
	stranger := &bench{Log: tlogtest.New(t, "log.example"), note: make(map[int64][]byte)}
	stranger.grow(t, 0, 12)
	unknown := &bench{Log: tlogtest.New(t, "other.example"), note: make(map[int64][]byte)}
	unknown.grow(t, 0, 12)
	b.grow(t, 0, 14)
	good := b.submission(t, 12, 14)
	wrong := *good
	wrong.Proof = slices.Clone(good.Proof)
	wrong.Proof[0][0] ^= 1
	bad := strings.Replace(string(good.Append(nil)), "\u2014 log.example ", "\u2014 log.example AAAA", 1)
	for name, c := range map[string]struct {
		body []byte
		want int
	}{
		"another tree of the same size": {twin.submission(t, 12, 12).Append(nil), 422},
		"another tree that is longer":   {twin.submission(t, 12, 14).Append(nil), 422},
		"a wrong proof":                 {wrong.Append(nil), 422},
		"no proof":                      {(&tlog.Submission{Old: 12, Note: good.Note}).Append(nil), 422},
		"a proof where none is needed":  {(&tlog.Submission{Old: 12, Proof: good.Proof, Note: b.note[12]}).Append(nil), 422},
		"another key":                   {stranger.submission(t, 12, 12).Append(nil), 403},
		"a key id of nobody":            {[]byte(bad), 403},
		"a signature that does not hold": {func() []byte {
			b := good.Append(nil)
			at := len(b) - 20
			b[at] = map[bool]byte{true: 'B', false: 'A'}[b[at] == 'A']
			return b
		}(), 403},
		"an unknown log":     {unknown.submission(t, 0, 12).Append(nil), 404},
		"nothing":            {nil, 400},
		"a checkpoint alone": {good.Note, 400},
		"too long":           {append(good.Append(nil), make([]byte, tlog.MaxSubmission)...), 413},
	} {
		if got := b.post(c.body); got.Code != c.want {
			t.Errorf("%s: %d, want %d", name, got.Code, c.want)
		}
	}
	if got := b.submit(t, 12, 14); got != 200 {
		t.Errorf("after all that: %d", got)
	}
	s := b.w.Status()
	if len(s.Forks) != 1 || s.Logs[0].Size != 14 || s.Outcomes["signed"] != 6 {
		t.Errorf("%+v", s)
	}
	evidence, err := disk.ReadFile(b.o.FS, s.Forks[0], 1<<20)
	if err != nil || !bytes.Contains(evidence, b.note[12][:60]) || !bytes.Contains(evidence, twin.note[12][:60]) {
		t.Errorf("evidence %q, %v", evidence, err)
	}
	for _, c := range []struct {
		method, path string
		want         int
	}{{"GET", "/add-checkpoint", 405}, {"GET", "/", 404}, {"POST", "/sign-subtree", 404}, {"GET", "/" + strings.Repeat("0", 64) + "/checkpoint", 404}} {
		rec := httptest.NewRecorder()
		b.w.ServeHTTP(rec, httptest.NewRequest(c.method, c.path, nil))
		if rec.Code != c.want {
			t.Errorf("%s %s: %d", c.method, c.path, rec.Code)
		}
	}
}

// TestShow: a monitor gets the last checkpoint with the witness's signatures, and the log's.
func TestShow(t *testing.T) {
	b := newBench(t, disktest.NewMem(1))
	b.grow(t, 0, 3)
	sum := sha256.Sum256([]byte("log.example"))
	path := "/" + hex.EncodeToString(sum[:]) + "/checkpoint"
	get := func() *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		b.w.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		return rec
	}
	if rec := get(); rec.Code != 404 {
		t.Errorf("before any: %d", rec.Code)
	}
	b.submit(t, 0, 3)
	for range 2 {
		rec := get()
		c, n, _, err := tlog.OpenCosigned(rec.Body.Bytes(), b.o.Logs, []*tlog.Key{b.o.Keys[0].Key()})
		if err != nil || n != 1 || c.Size != 3 {
			t.Errorf("%d %s, %v", rec.Code, rec.Body, err)
		}
		b.start(t)
	}
}

// A ledger is what a witness has signed, as those who asked it know: for each size one root.
type ledger map[int64]tlog.Hash

// TestWitnessKilled: power is lost at each call of the disk while a log and its twin, who
// share a key, ask by turns. Over all lives the witness has signed one tree only.
func TestWitnessKilled(t *testing.T) {
	signed := 0
	for at := range 14 {
		for seed := range uint64(8) {
			mem := disktest.NewMem(seed)
			b := newBench(t, mem)
			b.grow(t, 0, 10)
			twin := &bench{Log: &tlogtest.Log{Key: b.Key}, note: make(map[int64][]byte), o: b.o}
			twin.grow(t, 1, 10)
			given := make(ledger)
			ask := func() {
				for i, from := range []*bench{b, twin, b, twin, b} {
					from.w = b.w
					old, size := b.w.Status().Logs[0].Size, int64(2*i+1)
					if size < old {
						size = old
					}
					if from.submit(t, old, size) != http.StatusOK {
						continue
					}
					c, err := tlog.TextOf(from.note[size])
					if err != nil {
						t.Fatal(err)
					}
					signed++
					given[size] = c.Root
				}
			}
			n := 0
			mem.Inject(func(disktest.Op, string) error { // under the lock of mem
				if n++; n > at {
					return disktest.ErrPowerLoss
				}
				return nil
			})
			ask()
			mem.Cut()
			b.o.FS = mem.Crash()
			b.start(t)
			ask()
			ours, theirs := 0, 0
			for size, root := range given {
				mine, err1 := tlog.TextOf(b.note[size])
				other, err2 := tlog.TextOf(twin.note[size])
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				switch root {
				case mine.Root:
					ours++
				case other.Root:
					theirs++
				}
			}
			if ours > 0 && theirs > 0 {
				t.Fatalf("call %d, seed %d: it has signed both trees: %v", at, seed, given)
			}
			if ours+theirs == 0 {
				t.Errorf("call %d, seed %d: it signs nothing any more", at, seed)
			}
		}
	}
	if signed < 200 {
		t.Errorf("only %d signatures", signed)
	}
}

// TestDurableFirst: at each failpoint of a signature, whoever got it finds the witness as
// far after a loss of power.
func TestDurableFirst(t *testing.T) {
	for _, point := range witness.Failpoints() {
		for seed := range uint64(8) {
			mem, points := disktest.NewMem(seed), new(disk.Failpoints)
			b := newBench(t, mem)
			b.o.Failpoints = points
			b.start(t)
			b.grow(t, 0, 4)
			if got := b.submit(t, 0, 2); got != 200 {
				t.Fatal(got)
			}
			points.Arm(point, 0, func() error { mem.Cut(); return disktest.ErrPowerLoss })
			if got := b.submit(t, 2, 4); got != 500 {
				t.Errorf("%s: %d", point, got)
			}
			b.o.FS, b.o.Failpoints = mem.Crash(), nil
			b.start(t)
			if size := b.w.Status().Logs[0].Size; size != 2 && size != 4 || point == witness.Failpoints()[1] && size != 4 {
				t.Errorf("%s, seed %d: it remembers %d", point, seed, size)
			}
			if got := b.submit(t, b.w.Status().Logs[0].Size, 4); got != 200 {
				t.Errorf("%s, seed %d: then %d", point, seed, got)
			}
		}
	}
}

// TestDiskFull: a write that fails signs nothing, and the next one works, without a
// restart.
func TestDiskFull(t *testing.T) {
	mem := disktest.NewMem(1)
	b := newBench(t, mem)
	b.grow(t, 0, 4)
	b.submit(t, 0, 2)
	full := true
	mem.Inject(func(op disktest.Op, _ string) error {
		if full && op == disktest.OpWrite {
			return errors.New("no space left on device")
		}
		return nil
	})
	if got := b.submit(t, 2, 4); got != 500 || b.w.Trouble() == nil {
		t.Errorf("%d, trouble %v", got, b.w.Trouble())
	}
	full = false
	if got := b.submit(t, 2, 4); got != 200 || b.w.Trouble() != nil {
		t.Errorf("%d, trouble %v", got, b.w.Trouble())
	}
}

// TestRaces: a hundred requests at once, for many sizes, of a log and its twin: one tree.
func TestRaces(t *testing.T) {
	b := newBench(t, disktest.NewMem(1))
	b.grow(t, 0, 20)
	twin := &bench{Log: &tlogtest.Log{Key: b.Key}, note: make(map[int64][]byte), o: b.o, w: b.w}
	twin.grow(t, 1, 20)
	var all sync.WaitGroup
	var mu sync.Mutex
	given := map[*bench]int{}
	for i := range 100 {
		from := []*bench{b, twin}[i%2]
		all.Go(func() {
			for range 5 {
				old := b.w.Status().Logs[0].Size
				size := min(20, old+int64(i%3))
				if size == 0 {
					continue
				}
				if from.post(from.submission(t, old, size).Append(nil)).Code == 200 {
					mu.Lock()
					given[from]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if (given[b] > 0) == (given[twin] > 0) {
		t.Errorf("%d signatures for one, %d for the other", given[b], given[twin])
	}
}

// TestStateRefused: a witness does not go on from a record that is damaged, of another
// witness, or without its own signature.
func TestStateRefused(t *testing.T) {
	mem := disktest.NewMem(1)
	b := newBench(t, mem)
	b.grow(t, 0, 4)
	b.submit(t, 0, 4)
	files := disktest.FilesOf(t, mem)
	if len(files) != 1 {
		t.Fatalf("%d files", len(files))
	}
	for name, file := range files {
		for what, content := range map[string][]byte{
			"cut": file[:len(file)/2], "empty": {}, "without its signature": b.note[4], "another size": bytes.Replace(file, []byte("\n4\n"), []byte("\n3\n"), 1),
		} {
			fresh := disktest.NewMem(2)
			files.With(name, content).Put(t, fresh)
			o := b.o
			o.FS = fresh
			if _, err := witness.New(o); !errors.Is(err, witness.ErrState) {
				t.Errorf("%s: %v", what, err)
			}
		}
		o := b.o
		o.Keys = []*tlog.Secret{tlogtest.Secret(t, "v.example", tlog.CosignEd)}
		if _, err := witness.New(o); !errors.Is(err, witness.ErrState) {
			t.Errorf("another witness: %v", err)
		}
		o = b.o
		o.Logs = []*tlog.Key{tlogtest.New(t, "log.example").Key.Key()}
		if _, err := witness.New(o); !errors.Is(err, witness.ErrState) {
			t.Errorf("another key of the log: %v", err)
		}
	}
	for name, change := range map[string]func(*witness.Options){
		"no key": func(o *witness.Options) { o.Keys = nil }, "no log": func(o *witness.Options) { o.Logs = nil }, "no directory": func(o *witness.Options) { o.FS = nil },
		"a log's key": func(o *witness.Options) { o.Keys = []*tlog.Secret{tlogtest.Secret(t, "w", tlog.Ed25519)} },
	} {
		o := b.o
		change(&o)
		if _, err := witness.New(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if text := fmt.Sprintf("%+v", b.o.Keys); !strings.Contains(text, "redacted") {
		t.Errorf("keys print as %s", text)
	}
}
