package recipe_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// calendar are day, week and four weeks of an answer with three buckets.
func calendar() account.Options {
	return account.Options{
		Name: "symptoms", Query: Histogram{Length: 3}, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 50,
		TimePrecision: 86400, Epsilon: Decimal{Coefficient: 1},
		Views: &Views{Round: "day", Keep: 7, Wider: []View{{Name: "week", Rounds: 7}, {Name: "month", Rounds: 28}}},
	}
}

func viewed(t *testing.T, o account.Options) *Recipe {
	t.Helper()
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The bytes of views are read as they were written, in one spelling, and are what
// docs/data-model.md says.
func TestViewsWire(t *testing.T) {
	r := viewed(t, calendar())
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := again.Append(nil); err != nil || !bytes.Equal(back, b) {
		t.Errorf("%x came back as %x, %v", b, back, err)
	}
	if again.Views.Round != "day" || again.Views.Keep != 7 || len(again.Views.Wider) != 2 || again.Views.Wider[1] != r.Views.Wider[1] {
		t.Errorf("%+v", again.Views)
	}
	at := bytes.Index(b, []byte("\x00\x12\x00"))
	if at < 0 || string(b[at+4:at+12]) != "\x03day\x00\x00\x00\x07" {
		t.Fatalf("the extension is not where it should be in %x", b)
	}
	for n := range len(b) - at - 4 {
		cut := bytes.Clone(b[:len(b)-n-1])
		if _, err := Read(cut); err == nil {
			t.Errorf("%d bytes less are read", n+1)
		}
	}
	many := viewed(t, calendar())
	for len(many.Views.Wider) < MaxViews {
		many.Views.Wider = append(many.Views.Wider, View{Name: "x", Rounds: 56, Parameter: Rational{Num: 1, Den: 1}})
	}
	if b, err = many.Append(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(b); !errors.Is(err, ErrMalformed) {
		t.Errorf("%d views are read: %v", MaxViews+1, err)
	}
}

// What views cost together is what the accountant says of one release of each, or less: the
// claim holds, its certificate proves it, and one view more costs more.
func TestViewsAccounted(t *testing.T) {
	o := calendar()
	o.Views.Wider[1].Parameter = Rational{Num: 4000, Den: 1}
	for _, c := range []struct {
		name string
		set  func(*account.Options)
	}{
		{"equal noise", func(o *account.Options) { o.Views.Wider[1].Parameter = Rational{} }},
		{"noise of its own", func(*account.Options) {}},
		{"noise that is stated", func(o *account.Options) {
			o.Noise, o.Views.Wider[1].Parameter = EachDraws(Rational{Num: 400, Den: 1}), Rational{}
		}},
		{"half", func(o *account.Options) { o.Share, o.HonestServers = DrawsHalf, 2 }},
		{"laplace", func(o *account.Options) {
			o.Kind, o.Views.Wider[1].Parameter = account.LaplaceNoise, Rational{Num: 40, Den: 1}
		}},
		{"pure", func(o *account.Options) {
			o.Kind, o.Pure, o.Views.Wider[1].Parameter = account.LaplaceNoise, true, Rational{Num: 40, Den: 1}
		}},
		{"unit", func(o *account.Options) { o.Unit = &Unit{Name: "visit", Records: 1, Reduce: FirstRecord, PerPerson: 2} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := o
			v := *o.Views
			v.Wider = append([]View(nil), v.Wider...)
			o.Views = &v
			c.set(&o)
			r := viewed(t, o)
			g, err := account.Guarantee(r)
			if err != nil {
				t.Fatal(err)
			}
			claim := r.Claim.(ApproxDP)
			var list []release.Release
			for _, v := range r.Granularities() {
				m, err := v.Noise.Mechanism(r.Query.Contribution(), r.HonestServers(claim))
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, release.One(m))
			}
			want, err := accountant.Epsilon(list, claim.Delta.FloatDown(), release.ReplaceOne)
			if err != nil || g.Epsilon < want.Epsilon*(1-1e-9) || g.Epsilon > 1 {
				t.Errorf("the guarantee is %v, the accountant says %v (%v)", g.Epsilon, want.Epsilon, err)
			}
			certificate, err := account.Certify(r)
			if err != nil {
				t.Fatal(err)
			}
			proved, err := r.CheckCertificate(certificate)
			if err != nil || proved.Epsilon < want.Epsilon || proved.Epsilon > 1 {
				t.Errorf("the certificate proves %v of %v, %v", proved, want, err)
			}
			one := *r
			one.Views = nil
			if alone, err := account.Guarantee(&one); err != nil || !(alone.Epsilon < g.Epsilon) {
				t.Errorf("three views cost %v, a round alone %v, %v", g.Epsilon, alone, err)
			}
			if _, err := one.CheckCertificate(certificate); err == nil {
				t.Error("a certificate of three views is one of a round alone")
			}
		})
	}
}

// A person who is in several rounds may have several reports in one batch of a wider view.
// The guarantee is no better than of the sum of all of them.
func TestViewsOfManyRounds(t *testing.T) {
	for _, rounds := range []uint32{2, 7, 10, 40} {
		o := calendar()
		o.Rounds = rounds
		r := viewed(t, o)
		g, err := account.Guarantee(r)
		if err != nil {
			t.Fatal(err)
		}
		// Replacing one answer changes two buckets by one: squared distance 2.
		var rho float64
		for _, v := range r.Granularities() {
			variance := v.Noise.Parameter().Float()
			for left := rounds; left > 0; {
				k := min(left, v.Rounds)
				rho += float64(k*k) * 2 / (2 * variance)
				left -= k
			}
		}
		want, err := accountant.Epsilon([]release.Release{release.One(release.ZCDP{Rho: rho})}, 1e-9, release.ReplaceOne)
		if err != nil || g.Epsilon < want.Epsilon*(1-1e-9) || g.Epsilon > 1 {
			t.Errorf("%d rounds: the guarantee is %v, of reports that meet as they may %v, %v", rounds, g.Epsilon, want.Epsilon, err)
		}
		certificate, err := account.Certify(r)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Certified(certificate).Prove(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []uint32{1, rounds/2 + 1, rounds} {
			part, err1 := p.After(n)
			exact, err2 := account.LossAfter(r, n)
			if err := errors.Join(err1, err2); err != nil || part.Epsilon < exact.Epsilon*(1-1e-5) || math.IsInf(part.Epsilon, 1) {
				t.Errorf("%d of %d rounds cost %v by the certificate, %v by the accountant, %v", n, rounds, part, exact, err)
			}
		}
	}
}

// What is not accounted for is refused, field by field.
func TestViewsRefused(t *testing.T) {
	for want, set := range map[string]func(*account.Options){
		"recipe: views is 1,":                          func(o *account.Options) { o.Views.Wider = nil },
		"recipe: views[1].rounds is 1,":                func(o *account.Options) { o.Views.Wider[0].Rounds = 1 },
		"recipe: views[2].rounds is 30, which":         func(o *account.Options) { o.Views.Wider[1].Rounds = 30 },
		"recipe: views[2].rounds is 7, which":          func(o *account.Options) { o.Views.Wider[1].Rounds = 7 },
		"recipe: views[2].rounds is 28000,":            func(o *account.Options) { o.Views.Wider[1].Rounds = 28000 },
		"recipe: views[1].name is \"day\", as":         func(o *account.Options) { o.Views.Wider[0].Name = "day" },
		"recipe: views[0].name is \"Day\", want":       func(o *account.Options) { o.Views.Round = "Day" },
		"recipe: views.keep is 0,":                     func(o *account.Options) { o.Views.Keep = 0 },
		"recipe: views.keep is 4000 rounds after":      func(o *account.Options) { o.Views.Keep, o.RoundUnits = 4000, 20 },
		"recipe: window is from unit 3 to 56,":         func(o *account.Options) { o.Window = Between{Start: 3, End: 56} },
		"recipe: path does not go with views":          func(o *account.Options) { o.BatchMode = dap.LeaderSelected },
		"recipe: targeting does not go with views":     func(o *account.Options) { o.Targeting = &Targeting{} },
		"recipe: rate does not go with views":          func(o *account.Options) { o.Rate = &Rate{Devices: 100, Units: 1} },
		"recipe: participation does not go with views": func(o *account.Options) { o.Participation = Bernoulli{Rate: Rational{Num: 1, Den: 2}} },
		"recipe: randomizer does not go with views": func(o *account.Options) {
			o.Randomizer, o.Epsilon = RAPPOR{Epsilon0: Decimal{Coefficient: 1}}, Decimal{}
		},
		"recipe: claim.rounds does not go with views":      func(o *account.Options) { o.Rounds, o.Kind = 2, account.LaplaceNoise },
		"recipe: noise does not go with views":             func(o *account.Options) { o.Epsilon = Decimal{} },
		"recipe: claim.honest_servers does not go with":    func(o *account.Options) { o.Rounds, o.HonestServers = 2, 2 },
		"recipe: views[1].parameter cannot be drawn":       func(o *account.Options) { o.Views.Wider[0].Parameter = Rational{Num: 1, Den: 1 << 63} },
		"recipe: calibrate: noise for all views: account":  func(o *account.Options) { o.Views.Wider[0].Parameter = Rational{Num: 1, Den: 1} },
		"recipe: views[1].parameter is not a positive fra": func(o *account.Options) { o.Views.Wider[0].Parameter = Rational{Num: 2, Den: 2} },
	} {
		o := calendar()
		set(&o)
		if _, err := account.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Batches are exactly the spans of the views, and every interval besides is refused with
// words that say what to ask for.
func TestViewBatches(t *testing.T) {
	r := viewed(t, calendar())
	const base = 28 * 700
	for start := dap.Time(base); start < base+57; start++ {
		for length := dap.Duration(1); length < 60; length++ {
			asked := dap.Interval{Start: start, Duration: length}
			want := length == 1 || length == 7 && start%7 == 0 || length == 28 && start%28 == 0
			err := r.CheckBatch(asked)
			if (err == nil) != want {
				t.Errorf("%d units from %d: %v", length, start-base, err)
			}
			view, ok := r.ViewOf(asked)
			if ok != want || ok && uint64(view.Rounds) != uint64(length) {
				t.Errorf("%d units from %d are of the view %+v, %v", length, start-base, view, ok)
			}
		}
	}
	week, err := r.View("week")
	if err != nil {
		t.Fatal(err)
	}
	cut, err := r.BatchesOf(week, dap.Interval{Start: base, Duration: 28})
	if err != nil || len(cut) != 4 || cut[3] != (dap.Interval{Start: base + 21, Duration: 7}) {
		t.Errorf("%v, %v", cut, err)
	}
	var bad *BatchError
	if _, err := r.BatchesOf(week, dap.Interval{Start: base + 1, Duration: 7}); !errors.As(err, &bad) || bad.Whole != (dap.Interval{Start: base, Duration: 14}) {
		t.Errorf("%v", err)
	}
	if err := r.CheckBatch(dap.Interval{Start: base + 1, Duration: 7}); err == nil || !strings.Contains(err.Error(), "or 7 from a multiple of 7 on (week)") {
		t.Errorf("%v", err)
	}
	var unknown *ViewError
	if _, err := r.View("year"); !errors.As(err, &unknown) || err.Error() != `recipe: no view is called "year"; there are day, week, month` {
		t.Errorf("%v", err)
	}
}

// People and programs are shown the views, their price, and how long sums are kept.
func TestViewsShown(t *testing.T) {
	r := viewed(t, calendar())
	var said strings.Builder
	if err := account.Describe(r, &said); err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(said.String()), " ")
	for _, want := range []string{"week: 7 rounds, 7 days; noise of standard deviation", "each report is in one batch of each of the 3",
		"for 35 days at most after the round began", "over 1 round in all 3 views", "each round is released once in each view"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not said in\n%s", want, said.String())
		}
	}
	j, err := marshal(r)
	if err != nil || !bytes.Contains(j, []byte(`"views":{"keep":7,"views":[{"name":"day","rounds":1,`)) || !bytes.Contains(j, []byte(`"kept_seconds":3024000`)) {
		t.Errorf("%s, %v", j, err)
	}
}
