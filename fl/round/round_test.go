package round_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

const (
	rounds = 4   // of a training
	places = 257 // parameters; a round adds one to the place of its number, so that none is there twice
	units  = 10  // seconds of a round
	grace  = 5 * time.Second
)

// world is a training, what its servers release, and what its devices were shown.
type world struct {
	t       *testing.T
	key     *signed.PrivateKey
	recipe  *recipe.Recipe
	session *session.Session
	options func(*round.Options) // changes those of each opening
	site    site
	record  *disktest.Mem
	fail    *disk.Failpoints

	newest *round.Controller // that was opened
	paused *round.Controller // shows what it had announced until it hears of another
	life   context.Context   // of it
	die    context.CancelFunc

	mu     sync.Mutex
	answer func(batch dap.Interval) (*round.Sum, error) // in place of the sum; nil for that
	giveUp func() (bool, error)
	asked  map[uint64]int             // how often, by round
	seen   map[uint64]session.Hash    // announcements that devices were shown, by round
	last   *session.Announcement      // the newest of them
	after  map[session.Hash][]float32 // parameters of each model
}

func newWorld(t *testing.T, change func(*session.Terms)) *world {
	t.Helper()
	return newWorldAt(t, newMem(t), change)
}

func newWorldAt(t *testing.T, at site, change func(*session.Terms)) *world {
	t.Helper()
	w := &world{t: t, key: signed.Generate(), site: at, record: disktest.NewMem(2), fail: new(disk.Failpoints),
		asked: map[uint64]int{}, seen: map[uint64]session.Hash{}, after: map[session.Hash][]float32{}}
	t.Cleanup(w.close)
	terms := session.Terms{Layout: []session.Tensor{{Name: "w", Shape: []uint32{places}}}, Algorithm: session.FedSGD, LocalSteps: 1,
		Clipping: session.Clipping{Norm: 0.5}, Rounds: rounds}
	if change != nil {
		change(&terms)
	}
	hash, err := terms.Hash()
	if err != nil {
		t.Fatal(err)
	}
	q, err := recipe.NewVector(uint32(terms.Entries()), 1, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.recipe, err = account.New(account.Options{Name: "Training", Query: q, Leader: "https://leader.example/", Helper: "https://helper.example/", TimePrecision: 1,
		RoundUnits: units, Grace: grace, MinBatch: 10, Rounds: terms.Rounds, Epsilon: recipe.Decimal{Coefficient: 4},
		Training: &recipe.Training{Controller: w.key.Public(), Terms: hash}})
	if err != nil {
		t.Fatal(err)
	}
	if w.session, err = session.Of(w.recipe, terms); err != nil {
		t.Fatal(err)
	}
	return w
}

func place(r uint64) int { return int(r % places) }

// Collect implements [round.Source]: a round's sum moves the parameter of its place by -1.
func (w *world) Collect(ctx context.Context, batch dap.Interval) (*round.Sum, error) {
	r := uint64(batch.Start) / units
	if now, over := time.Now(), time.Unix(int64(r+1)*units, 0).Add(grace); now.Before(over) || batch.Duration != units {
		w.t.Errorf("round %d is asked for at %v, %v before its end: %+v", r, now, over.Sub(now), batch)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[r]++
	if w.answer != nil {
		if s, err := w.answer(batch); s != nil || err != nil {
			return s, err
		}
	}
	return w.sum(r), nil
}

func (w *world) sum(r uint64) *round.Sum {
	values := make([]float64, w.session.Terms.Entries())
	values[place(r)] = 1 * 100 / w.session.Terms.Clipping.Norm // a cohort of 100
	return &round.Sum{Values: values, Reports: 90}
}

// GiveUp implements [round.Source].
func (w *world) GiveUp(context.Context, dap.Interval) (bool, error) {
	if w.giveUp != nil {
		return w.giveUp()
	}
	return true, nil
}

func (w *world) open() (*round.Controller, error) {
	w.close()
	w.life, w.die = context.WithCancel(context.Background())
	store, err := w.site.open(w.life, w.fail)
	if err != nil {
		return nil, err
	}
	o := round.Options{Session: w.session, Recipe: w.recipe, Key: w.key, Store: store, Record: w.record, Source: w, Cohort: 100,
		Optimizer: optimizer.Config{Kind: optimizer.SGD, Rate: 1}, Failpoints: w.fail}
	if w.options != nil {
		w.options(&o)
	}
	w.newest, err = round.Open(w.life, o)
	return w.newest, err
}

// close closes the controller that was opened last. One that is cut off cannot say more.
func (w *world) close() {
	if w.newest != nil {
		w.newest.Close()
		w.newest = nil
	}
}

// look is a device that asks for the newest announcement, and for its model.
func (w *world) look(c *round.Controller) {
	b := c.Announcement()
	if b == nil {
		return
	}
	a, err := session.ReadAnnouncement(b)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if h, ok := w.seen[a.Round]; ok && h == a.Hash() && c == w.paused {
		return
	}
	if err := w.session.Follow(w.last, a); err != nil {
		w.t.Fatalf("a device sees round %d: %v", a.Round, err)
	}
	if h, ok := w.seen[a.Round]; ok && h != a.Hash() {
		w.t.Fatalf("two announcements of round %d", a.Round)
	}
	blob, err := c.Model(a.Model)
	if errors.Is(err, disktest.ErrPowerLoss) {
		return
	}
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := w.session.ReadModel(a, blob)
	if err != nil {
		w.t.Fatal(err)
	}
	w.seen[a.Round], w.last, w.after[a.Hash()] = a.Hash(), a, m.Parameters
}

// published is what devices were shown last.
func (w *world) published(context.Context) (*session.Announcement, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, nil
}

// run runs a controller while a device looks at it every second.
func (w *world) run(c *round.Controller) error {
	ctx, cancel := context.WithCancel(w.life)
	var crew sync.WaitGroup
	crew.Go(func() {
		for ctx.Err() == nil {
			w.look(c)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second / 2):
			}
		}
	})
	err := c.Run(ctx)
	cancel()
	crew.Wait()
	return err
}

// ran is a controller that was opened and has run to its end.
func (w *world) ran() *round.Controller {
	w.t.Helper()
	c, err := w.open()
	if err == nil {
		err = w.run(c)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// check holds a training that is over to what was announced and released: each round that
// was collected moved its own parameter once, and no other did.
func (w *world) check(c *round.Controller) *round.Status {
	s, err := c.Status()
	if err != nil {
		w.t.Fatal(err)
	}
	got, _, err := c.Parameters()
	if err != nil {
		w.t.Fatal(err)
	}
	want := make([]float32, places)
	for i, r := range s.Rounds {
		if r.Index != uint32(i) || i > 0 && r.Round <= s.Rounds[i-1].Round {
			w.t.Errorf("round %d after %d", r.Round, s.Rounds[max(0, i-1)].Round)
		}
		if r.State == "collected" && r.Stepped {
			want[place(r.Round)]--
		}
		if r.State == "announced" || !r.Stepped {
			w.t.Errorf("round %d was lost: %+v", i, r)
		}
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-6 {
			w.t.Errorf("parameter %d is %v, want %v", i, got[i], want[i])
		}
	}
	return s
}

func TestRounds(t *testing.T) {
	each(t, func(t *testing.T, at site) {
		w := newWorldAt(t, at, nil)
		c := w.ran()
		s := w.check(c)
		if s.Stepped != rounds || s.Skipped != 0 || s.Begun != rounds || len(w.seen) != rounds || s.Ended == "" {
			t.Errorf("%+v, %d were shown", s, len(w.seen))
		}
		for r, n := range w.asked {
			if n != 1 {
				t.Errorf("round %d was asked for %d times", r, n)
			}
		}
		// Opened again it is over.
		c = w.ran()
		w.check(c)
		mean, err := c.Mean(1)
		if err != nil || math.Abs(float64(mean[place(s.Rounds[1].Round)])-1) > 1e-6 {
			t.Errorf("%v, %v", mean, err)
		}
		if _, err := c.Mean(rounds); !errors.Is(err, round.ErrNone) {
			t.Error(err)
		}
	})
}

// TestUnasked: nothing is announced while it is not known what is published; what others
// publish says nothing.
func TestUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, asked := newWorld(t, nil), 0
		w.options = func(o *round.Options) {
			o.Published = []round.Published{{Where: "relay", Ask: func(context.Context) (*session.Announcement, error) {
				switch asked++; asked {
				case 1, 2:
					return nil, errors.New("down")
				case 3:
					return nil, nil
				}
				hash, err := w.session.Hash()
				if err != nil {
					t.Fatal(err)
				}
				a := session.Announcement{Session: hash, Index: 3, Round: 1 << 40, Previous: session.Hash{1}}
				a.Sign(signed.Generate())
				return &a, nil
			}}}
		}
		c := w.ran()
		if s := w.check(c); s.Stepped != rounds || asked < rounds+2 {
			t.Errorf("%+v, asked %d times", s, asked)
		}
	})
}

// TestServers: what leader and helper may do to a round, and what becomes of it.
func TestServers(t *testing.T) {
	down := errors.New("down")
	for name, tc := range map[string]struct {
		answer  func(w *world, r uint64, n int) (*round.Sum, error)
		giveUp  func() (bool, error)
		skipped int
		reason  string
	}{
		"too few": {func(w *world, r uint64, n int) (*round.Sum, error) {
			if len(w.asked) == 2 {
				return nil, &round.TooFewError{Reports: 3}
			}
			return nil, nil
		}, nil, 1, "too few reports"},
		"nobody ever": {func(*world, uint64, int) (*round.Sum, error) { return nil, &round.TooFewError{} }, nil, rounds, "too few reports"},
		"down for a minute": {func(w *world, r uint64, n int) (*round.Sum, error) {
			if len(w.asked) == 2 && n < 6 {
				return nil, down
			}
			return nil, nil
		}, nil, 0, ""},
		"down for good": {func(w *world, r uint64, n int) (*round.Sum, error) {
			if len(w.asked) == 2 {
				return nil, down
			}
			return nil, nil
		}, func() (bool, error) { return false, down }, 1, "no sum in time"},
		"withdrawn": {func(w *world, r uint64, n int) (*round.Sum, error) {
			if len(w.asked) == 2 {
				return nil, down
			}
			return nil, nil
		}, nil, 1, "no sum in time"},
		"just in time": {func(w *world, r uint64, n int) (*round.Sum, error) {
			if len(w.asked) == 2 && time.Now().Before(time.Unix(int64(r+1)*units, 0).Add(grace+time.Hour)) {
				return nil, down
			}
			return nil, nil
		}, func() (bool, error) { return false, nil }, 0, ""},
		"a short sum": {func(w *world, r uint64, n int) (*round.Sum, error) {
			if len(w.asked) == 2 {
				return &round.Sum{Values: make([]float64, places-1)}, nil
			}
			return nil, nil
		}, nil, 1, "no sum in time"},
		"no numbers": {func(w *world, r uint64, n int) (*round.Sum, error) {
			if len(w.asked) == 2 && n == 1 {
				return &round.Sum{Values: slices.Repeat([]float64{math.NaN()}, places)}, nil
			}
			return nil, nil
		}, nil, 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, nil)
			w.answer = func(b dap.Interval) (*round.Sum, error) {
				r := uint64(b.Start) / units
				return tc.answer(w, r, w.asked[r])
			}
			w.giveUp = tc.giveUp
			c, err := w.open()
			if err != nil {
				t.Fatal(err)
			}
			if err := w.run(c); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			s := w.check(c)
			if s.Skipped != tc.skipped || s.Stepped != rounds-tc.skipped {
				t.Errorf("%s: %+v", name, s)
			}
			for i, r := range s.Rounds {
				if r.State == "skipped" && (r.Reason != tc.reason || tc.skipped == 1 && i != 1) {
					t.Errorf("%s: %+v", name, r)
				}
			}
		})
	}
}

// TestTwoSums: servers that release two sums of a round are found out where the first was
// written down and not yet taken.
func TestTwoSums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.fail.Arm("round.after-sum-before-journal", 1, func() error { return errPower })
		c, err := w.open()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.run(c); !errors.Is(err, errPower) {
			t.Fatal(err)
		}
		w.fail.Disarm("round.after-sum-before-journal")
		w.answer = func(b dap.Interval) (*round.Sum, error) {
			s := w.sum(uint64(b.Start) / units)
			s.Values[0] += 0.5
			return s, nil
		}
		if c, err = w.open(); err != nil {
			t.Fatal(err)
		}
		var two *round.ContradictionError
		if err := w.run(c); !errors.As(err, &two) {
			t.Error(err)
		}
	})
}

// TestMiniBatches: a step takes the sums of two rounds, one skipped among them or not; models
// of one step have the same parameters. Rounds follow each other without a pause.
func TestMiniBatches(t *testing.T) {
	for _, skip := range []int{0, 1, 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, nil)
			w.options = func(o *round.Options) { o.Batch, o.Ahead, o.Optimizer.Rate = 2, 4, 2 }
			w.answer = func(dap.Interval) (*round.Sum, error) {
				if len(w.asked) <= skip {
					return nil, &round.TooFewError{}
				}
				return nil, nil
			}
			c := w.ran()
			s, err := c.Status()
			if err != nil {
				t.Fatal(err)
			}
			if s.Skipped != skip || len(w.seen) != rounds {
				t.Errorf("%d skipped: %+v", skip, s)
			}
			got, _, err := c.Parameters()
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range s.Rounds {
				want := -1.0
				switch {
				case i < skip:
					want = 0
				case skip == 1 && i == 1:
					want = -2 // the mean of one
				}
				if p := got[place(r.Round)]; math.Abs(float64(p)-want) > 1e-6 {
					t.Errorf("%d skipped: parameter of round %d is %v, want %v", skip, i, p, want)
				}
				if i > 0 && r.Round != s.Rounds[i-1].Round+1 {
					t.Errorf("round %d after %d", r.Round, s.Rounds[i-1].Round)
				}
			}
			first, second := w.after[w.seen[s.Rounds[0].Round]], w.after[w.seen[s.Rounds[1].Round]]
			if !slices.Equal(first, second) {
				t.Error("two models of one step differ")
			}
		})
	}
}

// TestSlots: of a recipe with slots each slot is a batch, announced and collected by itself,
// one after the other, as devices that drew one come to it; one with fewer reports than are
// released about is skipped, by itself.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		o := account.Options{Name: "Slots", Query: w.recipe.Query, Leader: "https://leader.example/", Helper: "https://helper.example/", TimePrecision: 1, Grace: grace,
			Participation: recipe.DonationTime{Rate: recipe.Rational{Num: 1, Den: 2}, Slots: rounds, Length: units}, Rate: &recipe.Rate{Devices: 20000, Units: rounds * units},
			Relay: &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}, MinBatch: 500, Epsilon: recipe.Decimal{Coefficient: 4},
			Training: w.recipe.Training}
		var err error
		if w.recipe, err = account.New(o); err != nil {
			t.Fatal(err)
		}
		if w.session, err = session.Of(w.recipe, w.session.Terms); err != nil {
			t.Fatal(err)
		}
		w.options = func(o *round.Options) { o.Ahead = 3 }
		first := uint64(0) // of the slots that are collected
		w.answer = func(b dap.Interval) (*round.Sum, error) {
			slot := uint64(b.Start) / units
			if first == 0 {
				first = slot
			}
			if slot == first+1 {
				return nil, &round.TooFewError{Reports: 19}
			}
			return w.sum(slot), nil
		}
		c := w.ran()
		s := w.check(c)
		if s.Stepped != rounds-1 || s.Skipped != 1 {
			t.Errorf("%+v", s)
		}
		for i, r := range s.Rounds {
			if few := i == 1; few != (r.State == "skipped") || few != (r.Reason == "too few reports") || few && r.Reports != 19 {
				t.Errorf("slot %d: %+v", i, r)
			}
			if i > 0 && r.Round != s.Rounds[i-1].Round+1 {
				t.Errorf("slot %d after %d", r.Round, s.Rounds[i-1].Round)
			}
		}
	})
}

// TestAdaptive: the clipping norm moves by what the last coordinate says, and devices are
// shown the one that they are to use.
func TestAdaptive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(x *session.Terms) { x.Clipping.Adaptive = &session.Adaptive{Quantile: 0.5, Rate: 0.2, Weight: 0.1} })
		w.answer = func(b dap.Interval) (*round.Sum, error) {
			s := w.sum(uint64(b.Start) / units)
			s.Values[len(s.Values)-1] = 0.1 * 100 // all were no longer
			return s, nil
		}
		c := w.ran()
		_, clip, err := c.Parameters()
		if want := 0.5 * math.Exp(-0.2*0.5*rounds); err != nil || math.Abs(clip-want) > 1e-9 {
			t.Errorf("norm %v, want %v; %v", clip, want, err)
		}
	})
}

// TestAverage: the mean of the models after the last steps.
func TestAverage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.options = func(o *round.Options) { o.Average = 0.5 }
		c, err := w.open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Average(); !errors.Is(err, round.ErrNone) {
			t.Errorf("before the first: %v", err)
		}
		if err := w.run(c); err != nil {
			t.Fatal(err)
		}
		s := w.check(c)
		mean, err := c.Average()
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []float64{-1, -1, -1, -0.5} { // of the models after the third step and the fourth
			if got := mean[place(s.Rounds[i].Round)]; math.Abs(float64(got)-want) > 1e-6 {
				t.Errorf("of round %d the mean has %v, want %v", i, got, want)
			}
		}
	})
}

// TestManual: rounds that another process begins, with models of its own.
func TestManual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.options = func(o *round.Options) { o.Manual = true }
		c, err := w.open()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Hour)
		if c.Announcement() != nil {
			t.Fatal("a round began by itself")
		}
		mine := make([]float32, places)
		mine[256] = 5
		for i := range uint32(rounds) {
			index, err := c.Begin(ctx, mine)
			if err != nil || index != i {
				t.Fatalf("%d, %v", index, err)
			}
			want := round.ErrBusy
			if i == rounds-1 {
				want = round.ErrEnded
			}
			if _, err := c.Begin(ctx, nil); !errors.Is(err, want) {
				t.Fatal(err)
			}
			w.look(c)
			if got := w.after[w.last.Hash()]; !slices.Equal(got, mine) {
				t.Fatalf("round %d is of another model", i)
			}
			time.Sleep(2*units*time.Second + grace)
			r, err := c.Round(i)
			if err != nil || !r.Stepped {
				t.Fatalf("%+v, %v", r, err)
			}
			mean, err := c.Mean(i)
			if err != nil {
				t.Fatal(err)
			}
			for j := range mine {
				mine[j] -= 2 * mean[j]
			}
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := c.Begin(ctx, nil); err == nil {
			t.Error("a round after the last")
		}
		c.Close()
		if mine[256] != 5 {
			t.Error("a parameter that nobody moved")
		}
		// A model that is none begins nothing.
		w = newWorld(t, nil)
		w.options = func(o *round.Options) { o.Manual = true }
		if c, err = w.open(); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel = context.WithCancel(context.Background())
		defer cancel()
		go func() { ended <- c.Run(ctx) }()
		for _, bad := range [][]float32{make([]float32, 3), {float32(math.NaN())}, slices.Repeat([]float32{float32(math.Inf(1))}, places)} {
			if _, err := c.Begin(ctx, bad); !errors.Is(err, session.ErrModel) {
				t.Error(err)
			}
		}
		cancel()
		<-ended
	})
}

// TestDamage: a directory whose files are damaged, or of another training, is refused.
func TestDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.ran()
		files := disktest.FilesOf(t, w.site.(*mem).fs)
		tried := 0
		for name, b := range files {
			if len(b) == 0 {
				continue
			}
			bad := slices.Clone(b)
			bad[len(bad)/2] ^= 0x10
			w.site = &mem{disktest.NewMem(4)}
			files.With(name, bad).Put(t, w.site.(*mem).fs)
			c, err := w.open()
			if err == nil {
				_, err = c.Status()
				for i := range uint32(rounds) {
					if _, e := c.Mean(i); e != nil {
						err = errors.Join(err, e)
					}
				}
				c.Close()
			}
			if !errors.Is(err, round.ErrJournal) {
				t.Errorf("%s damaged: %v", name, err)
			}
			tried++
		}
		if tried < 2*rounds+2 {
			t.Errorf("only %d files", tried)
		}
		w.site = &mem{disktest.NewMem(6)}
		files.Put(t, w.site.(*mem).fs)
		w.options = func(o *round.Options) { o.Optimizer.Kind = optimizer.Adam }
		if _, err := w.open(); !errors.Is(err, optimizer.ErrConfig) {
			t.Errorf("another optimizer: %v", err)
		}
		other := newWorld(t, nil)
		other.site = &mem{disktest.NewMem(5)}
		files.Put(t, other.site.(*mem).fs)
		if _, err := other.open(); !errors.Is(err, round.ErrJournal) {
			t.Errorf("another training's: %v", err)
		}
	})
}

// TestOptions: what does not fit together is refused.
func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*round.Options){
		"no key":           func(o *round.Options) { o.Key = nil },
		"another key":      func(o *round.Options) { o.Key = signed.Generate() },
		"no cohort":        func(o *round.Options) { o.Cohort = 0 },
		"a cohort of NaN":  func(o *round.Options) { o.Cohort = math.NaN() },
		"no optimizer":     func(o *round.Options) { o.Optimizer = optimizer.Config{} },
		"a short model":    func(o *round.Options) { o.Initial = make([]float32, 2) },
		"an average":       func(o *round.Options) { o.Average = 1.5 },
		"negative":         func(o *round.Options) { o.Late = -1 },
		"another recipe":   func(o *round.Options) { r := *o.Recipe; r.MinBatch++; o.Recipe = &r },
		"another training": func(o *round.Options) { s := *o.Session; s.Terms.Rounds++; o.Session = &s },
	} {
		w := newWorld(t, nil)
		w.options = change
		if c, err := w.open(); err == nil {
			t.Errorf("%s: taken", name)
			c.Close()
		}
	}
}

// TestDiverged: a step that leaves the numbers ends the training, and does so again.
func TestDiverged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.answer = func(dap.Interval) (*round.Sum, error) {
			return &round.Sum{Values: slices.Repeat([]float64{1e300}, places)}, nil
		}
		for range 2 {
			c, err := w.open()
			if err != nil {
				t.Fatal(err)
			}
			var gone *round.DivergedError
			if err := w.run(c); !errors.As(err, &gone) || gone.Index != 0 {
				t.Error(err)
			}
		}
	})
}
