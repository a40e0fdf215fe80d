package analyzer_test

import (
	"context"
	"testing"
	"time"

	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/shuffle/analyzer"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// TestOptions: analyzer and hops are made of what they need, and of nothing that does not fit;
// each says how it stands before anything came.
func TestOptions(t *testing.T) {
	roots := []*signed.PrivateKey{signed.Generate(), signed.Generate(), signed.Generate()}
	signer := func(i int) *signed.Signer {
		return signedtest.Signer(t, roots[i], time.Now().Add(-time.Hour), 24*time.Hour)
	}
	s := onion.Shuffle{Recipe: [32]byte{1}, Messages: 2, Size: 4, MinBatch: 10, Length: time.Hour, First: roots[0].Public(), Second: roots[1].Public(), Analyzer: roots[2].Public()}
	direct := s
	direct.First, direct.Second = signed.PublicKey{}, signed.PublicKey{}
	const token = "a token of sixteen bytes"
	tally := func(context.Context, *analyzer.Batch) ([]byte, error) { return nil, nil }
	good := func() analyzer.Options {
		return analyzer.Options{Signer: signer(2), Shuffles: []onion.Shuffle{s}, FS: disktest.NewMem(1), Tokens: []string{token}, Readers: []string{token}, Tally: tally}
	}
	for name, c := range map[string]struct {
		change func(*analyzer.Options)
		ok     bool
	}{
		"good": {func(*analyzer.Options) {}, true}, "direct": {func(o *analyzer.Options) { o.Direct, o.Shuffles, o.Tokens = true, []onion.Shuffle{direct}, nil }, true},
		"no signer": {func(o *analyzer.Options) { o.Signer = nil }, false}, "no directory": {func(o *analyzer.Options) { o.FS = nil }, false},
		"no shuffle": {func(o *analyzer.Options) { o.Shuffles = nil }, false}, "one twice": {func(o *analyzer.Options) { o.Shuffles = []onion.Shuffle{s, s} }, false},
		"no token": {func(o *analyzer.Options) { o.Tokens = nil }, false}, "a short token": {func(o *analyzer.Options) { o.Tokens = []string{"short"} }, false},
		"no reader": {func(o *analyzer.Options) { o.Readers = nil }, false}, "no tally": {func(o *analyzer.Options) { o.Tally = nil }, false},
		"another owner": {func(o *analyzer.Options) { o.Signer = signer(1) }, false}, "another way": {func(o *analyzer.Options) { o.Direct = true }, false},
		"tokens that the hops take off": {func(o *analyzer.Options) { o.Shuffles[0].MessageToken = 300 }, true},
		"tokens that nobody checks": {func(o *analyzer.Options) {
			shown := direct
			shown.EnvelopeToken = 300
			o.Direct, o.Shuffles, o.Tokens = true, []onion.Shuffle{shown}, nil
		}, false},
		"a batch of one": {func(o *analyzer.Options) { o.Shuffles[0].MinBatch = 1 }, false},
		"too far ahead":  {func(o *analyzer.Options) { o.Ahead = 1000 }, false}, "for ever": {func(o *analyzer.Options) { o.Hold = 1000 * time.Hour }, false},
		"a body below an envelope": {func(o *analyzer.Options) { o.Limits.Body = 1000 }, false}, "negative": {func(o *analyzer.Options) { o.Limits.Workers = -1 }, false},
	} {
		o := good()
		c.change(&o)
		if err := o.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		a, err := analyzer.New(o)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		var of []analyzer.ShuffleStatus = a.Status().Shuffles
		if len(of) != 1 || len(of[0].Rounds) != 3 || a.Err() != nil {
			t.Errorf("%s: %+v", name, of)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		change func(*hop.Options)
		ok     bool
	}{
		"good": {func(*hop.Options) {}, true}, "hop 2": {func(o *hop.Options) { o.Number, o.Signer = 2, signer(1) }, true}, "hop 3": {func(o *hop.Options) { o.Number = 3 }, false},
		"hop 2 as hop 1": {func(o *hop.Options) { o.Signer = signer(1) }, false}, "the direct path": {func(o *hop.Options) { o.Shuffles[0].Shuffle = direct }, false},
		"plain HTTP to elsewhere": {func(o *hop.Options) { o.Shuffles[0].Next.URL = "http://example.com" }, false}, "nobody behind it": {func(o *hop.Options) { o.Shuffles[0].Next = hop.Next{} }, false},
		"no token for hop 2": {func(o *hop.Options) { o.Shuffles[0].Next.Token = "" }, false},
	} {
		o := hop.Options{Number: 1, Signer: signer(0), FS: disktest.NewMem(1), Tokens: []string{token}, Shuffles: []hop.Shuffle{{Shuffle: s, Next: hop.Next{URL: "https://hop2.example", Token: token}}}}
		c.change(&o)
		if err := o.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		h, err := hop.New(o)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		var of hop.ShuffleStatus = h.Status().Shuffles[0]
		var rounds []hop.RoundStatus = of.Rounds
		var totals hop.Totals = of.Totals
		if len(rounds) != 3 || len(totals.Rounds) != 0 || h.Err() != nil {
			t.Errorf("%s: %+v", name, of)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}
