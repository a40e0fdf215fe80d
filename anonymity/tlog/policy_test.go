package tlog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
)

// policy is one of a log, with witnesses that are named w1, w2 and so on, and a quorum.
func policy(t testing.TB, log *tlogtest.Log, rule string, witnesses ...*tlog.Secret) *tlog.Policy {
	t.Helper()
	p, err := tlog.ReadPolicy([]byte(policyFile(log, rule, witnesses...)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func policyFile(log *tlogtest.Log, rule string, witnesses ...*tlog.Secret) string {
	file := fmt.Sprintf("# who may say what is in the log\nlog %s https://log.example/\n", log.Key.Key())
	for i, w := range witnesses {
		file += fmt.Sprintf("witness\tw%d %s\n", i+1, w.Key())
	}
	return file + rule + "\n"
}

// TestPolicyQuorum: which witnesses are enough is counted through all groups, over every
// set of five witnesses, against the rule written as a condition.
func TestPolicyQuorum(t *testing.T) {
	l := tlogtest.New(t, "log.example")
	l.Add(t, tlog.Entry{Kind: tlog.KindRelease, Body: []byte("x")})
	var all []*tlog.Secret
	for i := range 5 {
		scheme := tlog.CosignEd
		if i == 1 {
			scheme = tlog.CosignMLDSA
		}
		all = append(all, tlogtest.Secret(t, fmt.Sprintf("witness%d.example", i), scheme))
	}
	for rule, want := range map[string]func(w [5]bool) bool{
		"quorum none":                        func([5]bool) bool { return true },
		"quorum w1":                          func(w [5]bool) bool { return w[0] },
		"group g any w1 w2\nquorum g":        func(w [5]bool) bool { return w[0] || w[1] },
		"group g 2 w1 w2 w3\nquorum g":       func(w [5]bool) bool { return w[0] && w[1] || w[0] && w[2] || w[1] && w[2] },
		"group g all w1 w2 w3 w4\n quorum g": func(w [5]bool) bool { return w[0] && w[1] && w[2] && w[3] },
		"group a 1 w1 w2\ngroup b all w3 w4\ngroup c 2 a b w5\nquorum c": func(w [5]bool) bool {
			a, b := w[0] || w[1], w[2] && w[3]
			return a && b || a && w[4] || b && w[4]
		},
	} {
		p := policy(t, l, rule, all...)
		if p.Witnessed() == (rule == "quorum none") {
			t.Errorf("%q: witnessed %v", rule, p.Witnessed())
		}
		for set := range 32 {
			var some []*tlog.Secret
			var w [5]bool
			for i := range all {
				if w[i] = set>>i&1 == 1; w[i] {
					some = append(some, all[i])
				}
			}
			got, err := p.Open(l.Sign(t, now, some...), now)
			if (err == nil) != want(w) || err != nil && !errors.Is(err, tlog.ErrQuorum) {
				t.Errorf("%q, %v: %v", rule, w, err)
			}
			if err == nil && len(got.Cosigned) != len(some) {
				t.Errorf("%q, %v: %d cosignatures", rule, w, len(got.Cosigned))
			}
		}
	}
}

// TestPolicyTime: the time is the latest that a whole quorum says, not the newest one
// witness says; the future does not count.
func TestPolicyTime(t *testing.T) {
	l := tlogtest.New(t, "log.example")
	l.Add(t, tlog.Entry{Kind: tlog.KindRelease, Body: []byte("x")})
	var w []*tlog.Secret
	for i := range 3 {
		w = append(w, tlogtest.Secret(t, fmt.Sprintf("w%d", i), tlog.CosignEd))
	}
	p := policy(t, l, "group g 2 w1 w2 w3\nquorum g", w...)
	ago := func(h ...float64) []byte {
		note := l.Sign(t, now)
		for i, h := range h {
			more, err := tlog.Cosign(l.Checkpoint(t).Text(), now.Add(-time.Duration(h*float64(time.Hour))), w[i])
			if err != nil {
				t.Fatal(err)
			}
			note = append(note, more...)
		}
		return note
	}
	for _, c := range []struct {
		hours []float64
		want  float64
		fresh bool
	}{
		{[]float64{1, 2, 3}, 2, true}, {[]float64{30, 0, 40}, 30, false}, {[]float64{0, 23.9, 40}, 23.9, true}, {[]float64{25, 25, 1}, 25, false},
		{[]float64{-0.05, 0.5, 1}, 0.5, true}, {[]float64{-1, 0.5, 1}, 1, true},
	} {
		got, err := p.Open(ago(c.hours...), now)
		if err != nil {
			t.Errorf("%v: %v", c.hours, err)
			continue
		}
		if d := now.Sub(got.Time).Hours(); d < c.want-0.001 || d > c.want+0.001 {
			t.Errorf("%v: %v ago", c.hours, d)
		}
		if err := got.Fresh(now); (err == nil) != c.fresh || err != nil && !errors.Is(err, tlog.ErrStale) {
			t.Errorf("%v: %v", c.hours, err)
		}
	}
	if _, err := p.Open(ago(-1, -1, 1), now); !errors.Is(err, tlog.ErrQuorum) {
		t.Errorf("two of the future: %v", err)
	}
}

func TestPolicyRefused(t *testing.T) {
	l := tlogtest.New(t, "log.example")
	a, b := tlogtest.Secret(t, "a", tlog.CosignEd).Key().String(), tlogtest.Secret(t, "b", tlog.CosignMLDSA).Key().String()
	log, two := "log "+l.Key.Key().String()+"\n", "witness a "+a+"\nwitness b "+b+"\n"
	for name, c := range map[string]struct {
		file string
		line int
	}{
		"empty":                  {"", 0},
		"no quorum":              {log + two, 0},
		"two quorums":            {log + two + "quorum a\nquorum b\n", 5},
		"an unknown one":         {log + two + "quorum c\n", 4},
		"one that comes later":   {log + "quorum a\n" + two, 2},
		"a word more":            {log + two + "quorum a b\n", 4},
		"an unknown line":        {log + two + "quota a\n", 4},
		"a log twice":            {log + log + "quorum none\n", 2},
		"a witness twice":        {two + "witness c " + a + "\nquorum a\n", 3},
		"a name twice":           {two + "group a 1 b\nquorum b\n", 3},
		"none as a name":         {"witness none " + a + "\nquorum none\n", 1},
		"none in a group":        {two + "group g all a none\nquorum g\n", 3},
		"a log's key":            {"witness a " + l.Key.Key().String() + "\nquorum a\n", 1},
		"a member of two groups": {two + "group g any a\ngroup h any a b\nquorum g\n", 4},
		"no members":             {two + "group g any\nquorum g\n", 3},
		"none needed":            {two + "group g 0 a b\nquorum g\n", 3},
		"more than there are":    {two + "group g 3 a b\nquorum g\n", 3},
		"a number written oddly": {two + "group g +1 a b\nquorum g\n", 3},
		"a control character":    {"# \x01\nquorum none\n", 1},
		"a carriage return":      {"quorum none\r\n", 1},
		"too long":               {strings.Repeat("#", tlog.MaxPolicy+1), 0},
	} {
		_, err := tlog.ReadPolicy([]byte(c.file))
		var bad *tlog.PolicyError
		if !errors.As(err, &bad) || !errors.Is(err, tlog.ErrPolicy) || bad.Line != c.line {
			t.Errorf("%s: %v, want line %d", name, err, c.line)
		}
	}
	p, err := tlog.ReadPolicy([]byte("\t# a comment\n" + log + two + " group  g\tall a b\nquorum g"))
	if err != nil || len(p.Logs()) != 1 || len(p.Witnesses()) != 2 || p.Witnesses()[1].Name != "b" {
		t.Errorf("%+v, %v", p, err)
	}
}

// FuzzPolicy: whatever a file says, who has no witness has no quorum but by saying none.
func FuzzPolicy(f *testing.F) {
	l, w := tlogtest.New(f, "log.example"), tlogtest.Secret(f, "w", tlog.CosignEd)
	l.Add(f, tlog.Entry{Kind: tlog.KindRelease, Body: []byte("x")})
	bare := l.Sign(f, now)
	f.Add([]byte(policyFile(l, "group g all w1\nquorum g", w)))
	f.Add([]byte(policyFile(l, "quorum none", w)))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := tlog.ReadPolicy(b)
		if err != nil {
			if !errors.Is(err, tlog.ErrPolicy) {
				t.Fatal(err)
			}
			return
		}
		if _, err := p.Open(bare, now); err == nil && p.Witnessed() {
			t.Fatalf("%q takes a checkpoint that nobody has witnessed", b)
		}
	})
}
