package contribute_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/shuffle/analyzer"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

const readers = "token of the collector"

// A world is the real parties of a recipe in one process, which devices and collector reach
// by their hosts.
type world struct {
	t       testing.TB
	checked *recipe.Checked
	file    []byte
	anchors *signed.Anchors
	shuffle *onion.Shuffle
	hosts   map[string]http.Handler
	signers map[onion.Role]*signed.Signer
	gateway *signed.Signer
	mu      sync.Mutex
	asked   []string // method and host of each request, guarded by mu while parties run
	// answer, where it is not nil, may answer in the place of a party.
	answer func(host string, r *http.Request) *http.Response
	stop   []func()
	log    *held // of a recipe that names a log
	// issuers are the keys of those beside the hops, in the mode tokens.
	issuers map[onion.Role]*arc.PrivateKey
}

// requests are those so far, since they were forgotten.
func (w *world) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = nil
}

func (w *world) do(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.asked = append(w.asked, r.Method+" "+r.URL.Host)
	w.mu.Unlock()
	if w.answer != nil {
		if a := w.answer(r.URL.Host, r); a != nil {
			return a, nil
		}
	}
	h := w.hosts[r.URL.Host]
	if h == nil {
		return nil, fmt.Errorf("nobody is at %s", r.URL.Host)
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	q := httptest.NewRequest(r.Method, r.URL.Path, bytes.NewReader(body)).WithContext(r.Context())
	q.Header = r.Header.Clone()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, q)
	return rec.Result(), nil
}

func (w *world) Do(r *http.Request) (*http.Response, error)        { return w.do(r) }
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) { return w.do(r) }

// kind is a recipe's.
type kind struct {
	direct, relayed, counts, logged, tokens bool
	parted                                  bool // a histogram in 3 independent batches
	grouped                                 bool // sums by group
}

// in runs a test in a bubble with the parties of a recipe: a cloak of exact sums of numbers
// up to 9, or where it counts, yes or no by randomized response, or sums by group by question & answer.
func in(t *testing.T, k kind, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, k)
		defer func() {
			for _, stop := range w.stop {
				stop()
			}
		}()
		f(t, w)
	})
}

func newWorld(t testing.TB, k kind) *world {
	w := &world{t: t, hosts: map[string]http.Handler{}, signers: map[onion.Role]*signed.Signer{}}
	var lines strings.Builder
	fmt.Fprintln(&lines, signed.AnchorsHead)
	root := func(name string) (signed.PublicKey, *signed.Signer) {
		key := signed.Generate()
		fmt.Fprintln(&lines, signed.Anchor{Name: name, Key: key.Public(), Owner: name, Domain: name + ".example"})
		return key.Public(), signedtest.Signer(t, key, time.Now().Add(-time.Hour), 80*24*time.Hour)
	}
	party := func(name string, role onion.Role) recipe.Party {
		p := recipe.Party{URL: "https://" + name + ".example/"}
		p.Key, w.signers[role] = root(name)
		return p
	}
	o := account.Options{Name: "test", MinBatch: 4, Grace: 5 * time.Minute, Query: recipe.Sum{Max: 9},
		Randomizer: recipe.Cloak{Kind: recipe.SumPreservingCloak, Users: 20, Epsilon: recipe.Decimal{Coefficient: 1}}}
	if k.counts {
		o.Query, o.Randomizer, o.Rounds = recipe.Count{}, recipe.KRR{Epsilon0: recipe.Decimal{Coefficient: 4}}, 2
	}
	if k.parted {
		o.Query, o.MinBatch, o.Epsilon, o.Delta = recipe.Histogram{Length: 3}, 8, recipe.Decimal{Coefficient: 8}, recipe.Decimal{Coefficient: 1, Scale: 3}
		o.Randomizer = recipe.Cloak{Kind: recipe.ModernCloak, Users: 60, Honest: 24, Parts: 3}
	}
	if k.grouped {
		o.Query, o.Randomizer = recipe.GroupSums{Max: 9, Groups: 3}, recipe.QA{Epsilon0: recipe.Decimal{Coefficient: 8}, Levels: 3, Asks: recipe.AskSizes}
	}
	var gateway signed.PublicKey
	if k.relayed {
		gateway, w.gateway = root("gateway")
		o.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}
	}
	if k.direct {
		o.Path = recipe.Direct{Analyzer: party("analyzer", onion.Direct), Gateway: gateway}
	} else {
		o.Path = recipe.Shuffled{First: party("first", onion.First), Second: party("second", onion.Second), Analyzer: party("analyzer", onion.Analyzer),
			Gateway: gateway, Mode: recipe.CountedMode}
	}
	if k.tokens {
		p := o.Path.(recipe.Shuffled)
		p.Mode, p.EpochLength = recipe.TokensMode, recipe.DefaultEpochLength
		attester, _ := root("attester")
		o.Path, o.Log = p, &recipe.Log{Origin: "log.example"}
		o.Tokens = &recipe.Tokens{Attester: "https://attester.example/", Key: attester, Attestation: recipe.Codes, MinCohort: 4}
	}
	r, err := account.New(o)
	if k.logged {
		r.Log = &recipe.Log{Origin: "log.example"}
		w.log = &held{keys: make(map[named][]byte)}
	}
	if err != nil {
		t.Fatal(err)
	}
	if w.file, err = r.Append(nil); err != nil {
		t.Fatal(err)
	}
	if !r.Exact() {
		c, err := account.Certify(r)
		if err != nil {
			t.Fatal(err)
		}
		w.file = append(w.file, c...)
	}
	if w.checked, err = recipe.OpenFile(w.file); err != nil {
		t.Fatal(err)
	}
	if w.anchors, err = signed.ReadAnchors([]byte(lines.String())); err != nil {
		t.Fatal(err)
	}
	if w.shuffle, err = r.Shuffle(); err != nil {
		t.Fatal(err)
	}
	if k.tokens {
		w.issuers = map[onion.Role]*arc.PrivateKey{onion.First: arc.GenerateKey(), onion.Second: arc.GenerateKey()}
	}
	messenger, err := r.Messenger()
	if err != nil {
		t.Fatal(err)
	}
	publish := func(role onion.Role) func(context.Context, *hop.Publication) error {
		if w.log == nil {
			return nil
		}
		return w.log.publish(role, w.signers[role].Root())
	}
	last := analyzer.Options{Publish: publish(onion.Analyzer), Direct: k.direct, Signer: w.signers[onion.Analyzer], Shuffles: []onion.Shuffle{*w.shuffle}, FS: disktest.NewMem(3),
		Tokens: []string{"token of the second hop"}, Readers: []string{readers},
		Tally: func(_ context.Context, b *analyzer.Batch) ([]byte, error) {
			var all [][]byte
			for m := range b.Messages {
				all = append(all, bytes.Clone(m))
			}
			return messenger.Outcome(all, b.Counts.Missing()).Append(nil)
		}}
	if k.direct {
		last.Signer, last.Tokens = w.signers[onion.Direct], nil
	} else {
		for i, name := range []string{"first", "second"} {
			tokens, next, token := []string(nil), "second", "token of the first hop"
			if i == 1 {
				tokens, next, token = []string{"token of the first hop"}, "analyzer", "token of the second hop"
			}
			h, err := hop.New(hop.Options{Publish: publish(onion.Role(i + 1)), Number: i + 1, Signer: w.signers[onion.Role(i+1)], FS: disktest.NewMem(uint64(i + 1)), Tokens: tokens, Transport: w,
				Shuffles: []hop.Shuffle{{Shuffle: *w.shuffle, Tokens: w.verifier(onion.Role(i + 1)), Next: hop.Next{URL: "https://" + next + ".example/", Token: token}}}})
			if err != nil {
				t.Fatal(err)
			}
			w.run(name, h)
		}
	}
	a, err := analyzer.New(last)
	if err != nil {
		t.Fatal(err)
	}
	w.run("analyzer", a)
	synctest.Wait()
	w.forget()
	return w
}

func (w *world) run(name string, s interface {
	http.Handler
	Run(context.Context) error
	Close() error
}) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.hosts[name+".example"] = s
	w.stop = append(w.stop, func() {
		cancel()
		<-ended
		s.Close()
	})
}

func (w *world) options() client.Options {
	o := client.Options{Recipe: w.file, MaxEpsilon: math.Inf(1), Anchors: w.anchors, HTTP: w}
	if w.log != nil {
		o.Log = w.log
	}
	return o
}

func (w *world) contributor() *contribute.Contributor {
	w.t.Helper()
	c, err := contribute.New(contribute.Options{Client: w.options()})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) reader() *collector.Reader {
	w.t.Helper()
	r, err := collector.NewReader(collector.ReaderOptions{Checked: w.checked, Token: readers, HTTP: w})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// flushed sleeps until the present round is flushed and tallied, and returns it.
func (w *world) flushed() uint64 {
	n := w.shuffle.Round(time.Now())
	time.Sleep(time.Until(w.shuffle.Flush(n)) + 10*time.Second)
	synctest.Wait()
	return n
}

// replies is an answer with these bytes.
func replies(media string, b []byte) *http.Response {
	rec := httptest.NewRecorder()
	rec.Header().Set("Content-Type", media)
	rec.Write(b)
	return rec.Result()
}
