package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
)

// named is an Acknowledger in memory.
type named struct {
	mu     sync.Mutex
	bodies *payloadtest.Mem
	slices []Slice
	calls  int
	lives  []string           // of the calls
	shut   map[uint64]Refusal // by batch bucket
	err    error
	wait   chan struct{} // where it is not nil a call waits for it
}

func (r *named) Acknowledge(ctx context.Context, life, object string, body [][]byte, list []Slice) ([]Refusal, error) {
	if r.wait != nil {
		<-r.wait
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.lives = append(r.lives, life)
	if r.err != nil {
		return nil, r.err
	}
	if body != nil {
		if err := r.bodies.Put(ctx, object, body...); err != nil {
			return nil, err
		}
	}
	refused := make([]Refusal, len(list))
	for i, s := range list {
		if refused[i] = r.shut[s.Bucket]; refused[i] == 0 {
			r.slices = append(r.slices, s)
		}
	}
	return refused, nil
}

func newNamed() *named {
	return &named{bodies: payloadtest.NewMem(), shut: make(map[uint64]Refusal)}
}

// upload is n reports of a task and batch bucket.
func upload(task byte, bucket uint64, first, n, size int) (entries []Entry) {
	for i := range n {
		entries = append(entries, Entry{
			TaskID: TaskID{task}, Bucket: bucket, ReportID: ReportID{byte(first + i), byte((first + i) >> 8)},
			Report: []byte(strings.Repeat("r", size)),
		})
	}
	return entries
}

func intake(t *testing.T, to Acknowledger, opt IntakeOptions) *Intake {
	t.Helper()
	in, err := NewIntake(to, opt)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// TestIntakeGathers: uploads of many tasks that come within the delay are one object and
// one transaction, and each is answered when that is over.
func TestIntakeGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNamed()
		in := intake(t, r, IntakeOptions{})
		begin := time.Now()
		var wg sync.WaitGroup
		for task := range 10 {
			wg.Go(func() {
				if refused, err := in.Put(t.Context(), upload(byte(task), 10, 0, 3, 20)); refused != nil || err != nil {
					t.Errorf("%v, %v", refused, err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begin); r.calls != 1 || len(r.slices) != 10 || took != 5*time.Millisecond {
			t.Errorf("%d transactions, %d slices, %v", r.calls, len(r.slices), took)
		}
		for i, s := range r.slices {
			reports, err := OpenSlices(t.Context(), r.bodies, r.slices[i:i+1])
			if err != nil || reports.Len() != 3 || s.Came != begin.Unix() || !strings.HasPrefix(s.Object, RowFolder) {
				t.Errorf("%+v: %v", s, err)
			}
		}
		if err := in.Close(); err != nil || in.InFlight() != 0 {
			t.Error(err, in.InFlight())
		}
		if _, err := in.Put(t.Context(), upload(1, 10, 0, 1, 20)); !errors.Is(err, errEnded) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestIntakeLives: uploads of two lives of the replica are two group commits, each of its own.
func TestIntakeLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNamed()
		in := intake(t, r, IntakeOptions{})
		var wg sync.WaitGroup
		for _, life := range []string{"a", "a", "b"} {
			wg.Go(func() {
				all := upload(1, 10, 0, 2, 20)
				all[0].Life, all[1].Life = life, life
				if _, err := in.Put(t.Context(), all); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		slices.Sort(r.lives)
		if !slices.Equal(r.lives, []string{"a", "b"}) {
			t.Errorf("group commits of %q", r.lives)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestIntakeFull: a group commit that is full does not wait, and what comes while all turns
// are taken is one.
func TestIntakeFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNamed()
		r.wait = make(chan struct{})
		in := intake(t, r, IntakeOptions{CommitReports: 4, Commits: 1, Delay: time.Hour})
		var wg sync.WaitGroup
		put := func(entries []Entry) {
			wg.Go(func() {
				if _, err := in.Put(t.Context(), entries); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		put(upload(1, 10, 0, 4, 20))
		put(upload(2, 10, 0, 2, 20))
		put(upload(3, 10, 0, 2, 20))
		close(r.wait)
		wg.Wait()
		if r.calls != 2 || len(r.slices) != 3 {
			t.Errorf("%d transactions, %d slices", r.calls, len(r.slices))
		}
	})
}

// TestIntakeRefuses: reports of a batch bucket that takes none are refused by name, and
// the others of the same upload are kept.
func TestIntakeRefuses(t *testing.T) {
	r := newNamed()
	r.shut[11] = 7
	in := intake(t, r, IntakeOptions{})
	entries := append(upload(1, 10, 0, 2, 20), append(upload(1, 11, 2, 2, 20), upload(1, 12, 4, 1, 20)...)...)
	refused, err := in.Put(t.Context(), entries)
	if err != nil || fmt.Sprint(refused) != "[0 0 7 7 0]" || len(r.slices) != 2 {
		t.Errorf("refused %v, %v; %d slices", refused, err, len(r.slices))
	}
}

// TestIntakeStores: what is large is an object, which is durable before it is named; where
// it cannot be put nothing is named, and the client is to come again.
func TestIntakeStores(t *testing.T) {
	r, store := newNamed(), payloadtest.NewMem()
	faults := payloadtest.NewFaults(1)
	in := intake(t, r, IntakeOptions{Objects: faults.Wrap(store), RowBytes: 1000})
	put := func(size int) error {
		_, err := in.Put(t.Context(), upload(1, 10, 0, 4, size))
		return err
	}
	if err := put(100); err != nil || len(r.slices) != 1 || !strings.HasPrefix(r.slices[0].Object, RowFolder) {
		t.Fatalf("a small one: %v, %v", r.slices, err)
	}
	if err := put(1000); err != nil || len(r.slices) != 2 || strings.HasPrefix(r.slices[1].Object, RowFolder) {
		t.Fatalf("a large one: %v, %v", r.slices, err)
	}
	if _, err := OpenSlices(t.Context(), store, r.slices[1:]); err != nil {
		t.Fatal(err)
	}
	store.Limit(100)
	if err := put(1000); !errors.Is(err, ErrBusy) || !errors.Is(err, payload.ErrFull) || r.calls != 2 {
		t.Errorf("no room: %v, %d transactions", err, r.calls)
	}
	r.err = errors.New("the database is gone")
	if err := put(100); !errors.Is(err, r.err) {
		t.Errorf("%v", err)
	}
}

// TestIntakeLimits: reports that are too large, and more than may be in flight, are refused
// at once.
func TestIntakeLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNamed()
		r.wait = make(chan struct{})
		in := intake(t, r, IntakeOptions{MaxReport: 100, MaxInFlight: 1000})
		if _, err := in.Put(t.Context(), upload(1, 10, 0, 1, 101)); !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := in.Put(t.Context(), upload(1, 10, 0, 4, 100)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if _, err := in.Put(t.Context(), upload(1, 10, 4, 4, 100)); !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
		close(r.wait)
		wg.Wait()
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, opt := range []IntakeOptions{{Commits: -1}, {CommitBytes: payload.MaxObject}} {
		if _, err := NewIntake(newNamed(), opt); err == nil {
			t.Errorf("%+v passed", opt)
		}
	}
}
