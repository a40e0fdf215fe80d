package sender

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/clienttest"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// options answer a recipe of counts by such a participation.
func options(t *testing.T, p recipe.Participation, to client.Doer) Options {
	t.Helper()
	o := account.Options{
		Name: "test", Query: recipe.Count{}, MinBatch: 20, Leader: "https://leader.example/v1", Helper: "https://helper.example/",
		Noise: recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 16, Den: 1}, Share: recipe.DrawsAll}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6},
		Participation: p, Rounds: 1,
	}
	if d, ok := p.(recipe.DonationTime); ok {
		o.RoundUnits = uint64(d.Slots) * uint64(d.Length)
	}
	if p != (recipe.Always{}) {
		o.Rate = &recipe.Rate{Devices: 20_000, Units: 24}
		o.Dummies = &recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 8}, Senders: 5000, Allowance: 720}
		if p == coins {
			o.Dummies.Allowance = 1500
		}
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := recipe.Open(b, account.Prover)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Client: client.Options{Checked: checked, AnyKeys: true, HTTP: to, Attempts: 1}}
}

var (
	half   = recipe.Rational{Num: 1, Den: 2}
	coins  = recipe.Bernoulli{Rate: half}
	nights = recipe.DonationTime{Rate: half, Slots: 4, Length: 6} // rounds of a day
)

// home is a person's, of a limit that nothing here reaches.
func home(dir string) Home {
	return Home{Dir: dir, Limits: participate.LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1}}
}

func answers(n int) []client.Value {
	values := make([]client.Value, n)
	for i := range values {
		values[i] = client.Bool(i%2 == 0)
	}
	return values
}

// breaking fails every upload after the first so many.
type breaking struct {
	*clienttest.Servers
	after int
}

func (s *breaking) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && s.Counts().Uploads >= s.after {
		return nil, errors.New("the line is down")
	}
	return s.Servers.Do(r)
}

// TestSend: every value becomes one report; what the leader refuses is counted, and where
// it goes away it is said how many were sent before.
func TestSend(t *testing.T) {
	servers := clienttest.New(t)
	o := options(t, recipe.Always{}, servers)
	send := func(n int) (*Sent, error) {
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		return s.Send(t.Context(), answers(n))
	}
	sent, err := send(3)
	if err != nil || sent.Values != 3 || sent.RefusedReports() != 0 || servers.Counts().Reports != 3 {
		t.Errorf("sent %+v of %+v: %v", sent, servers.Counts(), err)
	}
	servers.Refuse = dap.BatchCollected
	if sent, err = send(3); err != nil || sent.Refused[dap.BatchCollected] != 3 || sent.RefusedReports() != 3 {
		t.Errorf("refused %+v: %v", sent, err)
	}
	for after, before := range map[int]int{0: 0, 1: chunk} {
		o.Client.HTTP = &breaking{clienttest.New(t), after}
		part := new(PartError)
		if _, err := send(before + 1); err == nil || errors.As(err, &part) != (before > 0) || part.Sent != before || !strings.Contains(err.Error(), "the line is down") {
			t.Errorf("broken after %d requests: %v", after, err)
		}
	}
}

// TestPerson: a person's round is decided once, whatever process asks for it, and one
// process at a time.
func TestPerson(t *testing.T) {
	servers := clienttest.New(t)
	o, h := options(t, coins, servers), home(filepath.Join(t.TempDir(), "ann"))
	h.Counter = filepath.Join(t.TempDir(), "counter")
	ctx := t.Context()
	p, err := OpenPerson(ctx, o, h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPerson(ctx, o, h); !errors.As(err, new(*BusyError)) || !strings.Contains(err.Error(), h.Dir) {
		t.Errorf("opened twice: %v", err)
	}
	d, err := p.Decide(ctx, client.Bool(true))
	if err != nil {
		t.Fatal(err)
	}
	uploads := d.Uploads()
	if err := d.Send(ctx); err != nil || (servers.Counts().Reports == 1) != uploads {
		t.Errorf("%d reports, decided %v: %v", servers.Counts().Reports, uploads, err)
	}
	spent := p.Ledger().Spent()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.Counter); err != nil {
		t.Error(err)
	}
	if p, err = OpenPerson(ctx, o, h); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Decide(ctx, client.Bool(true)); !errors.Is(err, participate.ErrDecided) || p.Ledger().Spent() != spent {
		t.Errorf("decided again: %v, spent %v and then %v", err, spent, p.Ledger().Spent())
	}
}

// TestPersonWithoutHome: a directory that is none is said, before anything is asked, and
// what was opened before it is left to others.
func TestPersonWithoutHome(t *testing.T) {
	servers := clienttest.New(t)
	o, dir := options(t, coins, servers), t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bad, good := home(file), home(filepath.Join(dir, "ann"))
	outside := good
	outside.Counter = filepath.Join(file, "counter")
	for name, h := range map[string]Home{"home": bad, "counter": outside} {
		if _, err := OpenPerson(t.Context(), o, h); !errors.As(err, new(*DirError)) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := OpenPerson(t.Context(), o, good)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil || len(servers.Counts().Asked) != 0 {
		t.Errorf("asked for %v: %v", servers.Counts().Asked, err)
	}
}

// TestPersonInTime: where devices donate at a random time, nothing is sent before that
// time, the wait ends with the round whatever was drawn, and a device that starts again
// goes on with the same time.
func TestPersonInTime(t *testing.T) {
	servers, dir := clienttest.New(t), t.TempDir()
	o := options(t, nights, servers)
	synctest.Test(t, func(t *testing.T) {
		const people = 14 // of whom nobody has a slot with a probability of 1e-7
		ctx, begun, drawn := t.Context(), time.Now(), 0
		for i := range people {
			name := filepath.Join(dir, string(rune('a'+i)))
			p, err := OpenPerson(ctx, o, home(name))
			if err != nil {
				t.Fatal(err)
			}
			first, err := p.Decide(ctx, client.Bool(true))
			if err != nil {
				t.Fatal(err)
			}
			from, _, ok := first.Slot()
			if ok {
				drawn++
			}
			before := servers.Counts().Reports
			if due, err := p.SendDue(ctx, first); due || err != nil || servers.Counts().Reports != before {
				t.Fatalf("sent before its time: %v", err)
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := p.SendInTime(ended, first, true); !errors.As(err, new(*WaitError)) || !errors.Is(err, context.Canceled) {
				t.Errorf("a wait that was ended: %v", err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if p, err = OpenPerson(ctx, o, home(name)); err != nil {
				t.Fatal(err)
			}
			again, err := p.Decide(ctx, client.Bool(true))
			if err != nil {
				t.Fatal(err)
			}
			if f, _, slot := again.Slot(); slot != ok || !f.Equal(from) {
				t.Errorf("drawn for %v, %v, and again for %v, %v", from, ok, f, slot)
			}
			_, end := again.Round()
			if sent, err := p.SendInTime(ctx, again, true); sent != nil || err != nil || !time.Now().Equal(end) {
				t.Errorf("ended at %v, the round at %v: %v, %v", time.Now(), end, sent, err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if n := servers.Counts().Reports; drawn == 0 || n > drawn || time.Since(begun) < people*24*time.Hour {
			t.Errorf("%d reports of %d slots in %v", n, drawn, time.Since(begun))
		}
	})
}

// gathering is a way through a relay whose gateway answers no upload before a number of
// them have come, as a window does that has not ended.
type gathering struct {
	*clienttest.Servers
	together int
	fail     int // the upload, counted from 1, that breaks off

	mu   sync.Mutex
	came int
	full chan struct{}
}

func (g *gathering) Source() ohttp.Source {
	return ohttp.Pin(new(ohttp.Manifest))
}

func (g *gathering) Pace(context.Context) (int, time.Duration, error) { return 1, time.Second, nil }

func (g *gathering) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		g.mu.Lock()
		g.came++
		n := g.came
		if n == g.together {
			close(g.full)
		}
		g.mu.Unlock()
		select {
		case <-g.full:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		if n == g.fail {
			return nil, errors.New("the connection broke")
		}
	}
	return g.Servers.Do(r)
}

// TestSendThroughRelay: answers of many people wait together for the gateway, which
// answers at the end of its window, and not one after the other; the first that fails
// ends it.
func TestSendThroughRelay(t *testing.T) {
	const n, together = 50, 30
	for _, fail := range []int{0, together} {
		servers := clienttest.New(t)
		o := options(t, recipe.Always{}, nil)
		o.Client.HTTP, o.Client.Via = nil, &gathering{Servers: servers, together: together, fail: fail, full: make(chan struct{})}
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := s.Send(t.Context(), answers(n))
		if got := servers.Counts().Reports; fail == 0 && (err != nil || sent.Values != n || got != n) || fail != 0 && (err == nil || got >= n) {
			t.Errorf("upload %d breaks off: %+v, %d reports, %v", fail, sent, got, err)
		}
	}
}

// TestCrowd: each made-up device decides by its own coin, and the first that fails ends it.
func TestCrowd(t *testing.T) {
	const n = 200 // none or all report once in 2^199
	servers := clienttest.New(t)
	if err := Crowd(t.Context(), options(t, coins, servers), answers(n)); err != nil {
		t.Fatal(err)
	}
	if got := servers.Counts().Reports; got == 0 || got >= n {
		t.Errorf("%d of %d devices reported", got, n)
	}
	if err := Crowd(t.Context(), options(t, coins, &breaking{servers, 0}), answers(n)); err == nil {
		t.Error("sent without a line")
	}
	synctest.Test(t, func(t *testing.T) {
		servers, begun := clienttest.New(t), time.Now()
		if err := Crowd(t.Context(), options(t, nights, servers), answers(n)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); servers.Counts().Reports == 0 || took < 24*time.Hour || took > 48*time.Hour {
			t.Errorf("%d reports in %v", servers.Counts().Reports, took)
		}
	})
}
