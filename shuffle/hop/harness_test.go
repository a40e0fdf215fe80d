package hop_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/shuffle/analyzer"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/hop/hoptest"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

const (
	fromGateway = "token of the gateway"
	fromFirst   = "token of the first hop"
	fromSecond  = "token of the second hop"
	ofCollector = "token of the collector"
)

// A wire carries requests to parties in the same process, by host, and lets a test look at
// them and change them.
type wire struct {
	mu    sync.Mutex
	hosts map[string]http.Handler
	look  func(host string, r *http.Request, body []byte) error
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	h, look := w.hosts[r.URL.Host], w.look
	w.mu.Unlock()
	if look != nil {
		if err := look(r.URL.Host, r, body); err != nil {
			return nil, err
		}
	}
	if h == nil {
		return nil, fmt.Errorf("nobody is at %s", r.URL.Host)
	}
	q := httptest.NewRequest(r.Method, r.URL.Path, bytes.NewReader(body)).WithContext(r.Context())
	q.Header = r.Header.Clone()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, q)
	return rec.Result(), nil
}

func (w *wire) set(host string, h http.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts[host] = h
}

// service is what hops and analyzers have in common.
type service interface {
	http.Handler
	Run(context.Context) error
	Close() error
}

// place is one party of a bench.
type place struct {
	role   onion.Role
	signer *signed.Signer
	fs     *disktest.Mem
	points *disk.Failpoints
	s      service
	end    context.CancelFunc
	ended  chan error
}

// A bench is two hops and an analyzer, or an analyzer of the direct path.
type bench struct {
	t       testing.TB
	wire    *wire
	s       onion.Shuffle
	parties []*place
	random  map[onion.Role]io.Reader // of orders; nil: cryptographic
	limits  hop.Limits
	hold    time.Duration
	log     *slog.Logger
	clock   disk.Clock
	wrap    func(disk.FS) disk.FS // of those that start; nil: none
	shows   *issuers              // in the mode tokens
	publish func(onion.Role) func(context.Context, *hop.Publication) error

	tallying sync.Mutex
	tallies  int // how often a tally was asked for
	tally    func(*analyzer.Batch) ([]byte, error)
}

func newBench(t testing.TB, direct bool, seed uint64) *bench {
	b := &bench{t: t, wire: &wire{hosts: make(map[string]http.Handler)},
		s: onion.Shuffle{Recipe: [32]byte{7, 7}, Messages: 3, Size: 8, MinBatch: 5, Length: time.Hour, Grace: 5 * time.Minute}}
	b.tally = tallyAll
	roles := []onion.Role{onion.First, onion.Second, onion.Analyzer}
	if direct {
		roles = []onion.Role{onion.Direct}
	}
	for i, role := range roles {
		root := signed.Generate()
		b.parties = append(b.parties, &place{role: role, signer: signedtest.Signer(t, root, time.Now().Add(-time.Hour), 80*24*time.Hour), fs: disktest.NewMem(seed + uint64(i))})
		switch role {
		case onion.First:
			b.s.First = root.Public()
		case onion.Second:
			b.s.Second = root.Public()
		default:
			b.s.Analyzer = root.Public()
		}
	}
	return b
}

// tallyAll writes all messages down, in a fixed order.
func tallyAll(b *analyzer.Batch) ([]byte, error) {
	var all [][]byte
	for m := range b.Messages {
		all = append(all, bytes.Clone(m))
	}
	slices.SortFunc(all, bytes.Compare)
	return bytes.Join(all, nil), nil
}

func host(r onion.Role) string { return fmt.Sprintf("party%d", r) }

func (b *bench) place(r onion.Role) *place {
	return b.parties[slices.IndexFunc(b.parties, func(p *place) bool { return p.role == r })]
}

// options are those of a hop.
func (b *bench) options(p *place) hop.Options {
	number, token, next, to := 1, fromGateway, host(onion.Second), fromFirst
	var fs disk.FS = p.fs
	if b.wrap != nil {
		fs = b.wrap(fs)
	}
	if p.role == onion.Second {
		number, token, next, to = 2, fromFirst, host(onion.Analyzer), fromSecond
	}
	var publish func(context.Context, *hop.Publication) error
	if b.publish != nil {
		publish = b.publish(p.role)
	}
	var tokens hop.Tokens
	if b.shows != nil {
		tokens = b.shows.verifier(p.role)
	}
	return hop.Options{Publish: publish, Number: number, Signer: p.signer, FS: fs, Tokens: []string{token}, Transport: b.wire, Failpoints: p.points, Limits: b.limits, Hold: b.hold, Log: b.log, Clock: b.clock,
		Shuffles: []hop.Shuffle{{Shuffle: b.s, Tokens: tokens, Next: hop.Next{URL: "https://" + next, Token: to}}}}
}

// run starts a party.
func (b *bench) run(p *place) (err error) {
	switch p.role {
	case onion.First, onion.Second:
		if r := b.random[p.role]; r != nil {
			p.s, err = hoptest.New(b.options(p), r)
		} else {
			p.s, err = hop.New(b.options(p))
		}
	default:
		token := fromSecond
		if p.role == onion.Direct {
			token = fromGateway
		}
		var publish func(context.Context, *hop.Publication) error
		if b.publish != nil {
			publish = b.publish(p.role)
		}
		p.s, err = analyzer.New(analyzer.Options{Publish: publish, Direct: p.role == onion.Direct, Signer: p.signer, Shuffles: []onion.Shuffle{b.s}, FS: p.fs, Tokens: []string{token},
			Readers: []string{ofCollector}, Failpoints: p.points, Limits: b.limits, Hold: b.hold, Log: b.log, Clock: b.clock,
			Tally: func(_ context.Context, x *analyzer.Batch) ([]byte, error) {
				b.tallying.Lock()
				b.tallies++
				tally := b.tally
				b.tallying.Unlock()
				return tally(x)
			}})
	}
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(b.t.Context())
	p.end, p.ended = end, make(chan error, 1)
	go func() { p.ended <- p.s.Run(ctx) }()
	b.wire.set(host(p.role), p.s)
	return nil
}

func (b *bench) mustRun() {
	b.t.Helper()
	for _, p := range b.parties {
		if err := b.run(p); err != nil {
			b.t.Fatal(err)
		}
	}
}

// stop ends a party, and says why it had ended.
func (b *bench) stop(p *place) error {
	p.end()
	err := <-p.ended
	p.s.Close() // after a loss of power it fails
	b.wire.set(host(p.role), nil)
	return err
}

func (b *bench) stopAll() {
	for _, p := range b.parties {
		b.stop(p)
	}
}

// restart stops a party, as a loss of power would, and starts it again.
func (b *bench) restart(p *place) {
	b.t.Helper()
	p.fs.Cut()
	b.stop(p)
	p.fs, p.points = p.fs.Crash(), nil
	if err := b.run(p); err != nil {
		b.t.Fatal(err)
	}
}

// path is that of a resource of the bench's recipe.
func path(b *bench, rest string) string {
	kind, _, _ := strings.Cut(rest, "/")
	switch {
	case rest == "keys":
		return "/" + onion.KeysPath(b.s.Recipe)
	case rest == "contributions":
		return "/" + onion.ContributionsPath(b.s.Recipe)
	case kind == "shuffles":
		return "/" + rest
	}
	return "/" + strings.TrimSuffix(onion.KeysPath(b.s.Recipe), "keys") + rest
}

// ask makes one request.
func (b *bench) ask(to onion.Role, method, rest, token, media string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path(b, rest), bytes.NewReader(body))
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	rec := httptest.NewRecorder()
	b.place(to).s.ServeHTTP(rec, r)
	return rec
}

// key is a party's for a round.
func (b *bench) list(role onion.Role) *onion.KeyList {
	b.t.Helper()
	rec := b.ask(role, "GET", "keys", "", "", nil)
	root := map[onion.Role]signed.PublicKey{onion.First: b.s.First, onion.Second: b.s.Second, onion.Analyzer: b.s.Analyzer, onion.Direct: b.s.Analyzer}[role]
	if rec.Body.Len() > onion.MaxKeyList {
		b.t.Errorf("a list of %d bytes", rec.Body.Len())
	}
	l, err := onion.OpenKeyList(rec.Body.Bytes(), root, b.s.Recipe, role)
	if err != nil {
		b.t.Fatalf("%d: %v", rec.Code, err)
	}
	return l
}

// keys are those for a round.
func (b *bench) keys(round uint64) (k onion.Keys) {
	b.t.Helper()
	var err error
	if k.First, err = b.list(onion.First).Key(round); err != nil {
		b.t.Fatal(err)
	}
	if k.Second, err = b.list(onion.Second).Key(round); err != nil {
		b.t.Fatal(err)
	}
	if k.Analyzer, err = b.list(onion.Analyzer).Key(round); err != nil {
		b.t.Fatal(err)
	}
	return k
}

// messages are the ones of a device, each unlike all others.
func (b *bench) messages(device int) (all [][]byte) {
	for i := range b.s.Messages {
		all = append(all, binary.BigEndian.AppendUint64(nil, uint64(device)<<16|uint64(i)))
	}
	return all
}

// envelope is a device's contribution to a round.
func (b *bench) envelope(round uint64, device int) []byte {
	b.t.Helper()
	if !b.s.Direct() {
		return b.envelopes(round, device, device+1)[0]
	}
	key, err := b.list(onion.Direct).Key(round)
	if err != nil {
		b.t.Fatal(err)
	}
	e, err := b.s.Shape(round).SealDirect(key, b.messages(device), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

func (b *bench) envelopes(round uint64, from, to int) (all [][]byte) {
	b.t.Helper()
	var k onion.Keys
	if !b.s.Direct() {
		k = b.keys(round)
	}
	for d := from; d < to; d++ {
		if b.s.Direct() {
			all = append(all, b.envelope(round, d))
			continue
		}
		e, err := b.s.Shape(round).Seal(k, b.messages(d), b.shows.present(round, d))
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// contribute sends envelopes to whoever gathers them, and says the status.
func (b *bench) contribute(envelopes ...[]byte) int {
	return b.ask(b.parties[0].role, "POST", "contributions", fromGateway, "application/starling-contributions", bytes.Join(envelopes, nil)).Code
}

// round is the present one.
func (b *bench) round() uint64 { return b.s.Round(time.Now()) }

// flushed sleeps until a round is flushed and all is done that is to be.
func (b *bench) flushed(round uint64) {
	time.Sleep(time.Until(b.s.Flush(round)) + 10*time.Second)
	synctest.Wait()
}

// result is that of a round; nil where there is none.
func (b *bench) result(round uint64) *onion.Result {
	b.t.Helper()
	rec := b.ask(b.parties[len(b.parties)-1].role, "GET", onion.ResultPath(b.s.Recipe, round), ofCollector, "", nil)
	if rec.Code == http.StatusNotFound {
		return nil
	}
	r, err := onion.OpenResult(rec.Body.Bytes(), &b.s, round)
	if err != nil {
		b.t.Fatalf("%d: %v", rec.Code, err)
	}
	return r
}

// devices are those whose messages are in a result, each with how many.
func devices(r *onion.Result) map[int]int {
	all := make(map[int]int)
	if r == nil {
		return all
	}
	for t := r.Tally; len(t) > 0; t = t[8:] {
		all[int(binary.BigEndian.Uint64(t)>>16)]++
	}
	return all
}

// holdDevices wants all messages of some devices in a result, and nothing else.
func (b *bench) holdDevices(round uint64, want ...int) {
	b.t.Helper()
	got := devices(b.result(round))
	for _, d := range want {
		if got[d] != b.s.Messages {
			b.t.Errorf("%d messages of device %d", got[d], d)
		}
	}
	if len(got) != len(want) {
		b.t.Errorf("messages of %d devices, want %d: %v", len(got), len(want), got)
	}
}

// recipeStatus is of the one recipe, and roundStatus of the first round that has not ended.
func (b *bench) recipeStatus(r onion.Role) analyzer.ShuffleStatus { return b.status(r).Shuffles[0] }

func (b *bench) roundStatus(r onion.Role) analyzer.RoundStatus { return b.recipeStatus(r).Rounds[0] }

func (b *bench) status(r onion.Role) hop.Status {
	type teller interface{ Status() *hop.Status }
	return *b.place(r).s.(teller).Status()
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// in runs a test in a bubble of its own, with the parties of a path running.
func in(t *testing.T, direct bool, f func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, direct, 1)
		b.mustRun()
		defer b.stopAll()
		f(t, b)
	})
}

// tallyWith has the analyzer's batches tallied by f from now on.
func (b *bench) tallyWith(f func(*analyzer.Batch) ([]byte, error)) {
	b.tallying.Lock()
	defer b.tallying.Unlock()
	b.tally = f
}

// tallied is how often a tally was asked for.
func (b *bench) tallied() int {
	b.tallying.Lock()
	defer b.tallying.Unlock()
	return b.tallies
}

// left lists the files of a party but for its state, results and the keys of rounds that
// are not over.
func (b *bench) left(p *place, before uint64) (all []string) {
	for name := range disktest.FilesOf(b.t, p.fs) {
		parts := strings.Split(name, "/")
		if len(parts) > 2 && parts[1] == "rounds" {
			if n, err := strconv.ParseUint(parts[2], 10, 64); err == nil && n < before {
				all = append(all, name)
			}
		}
	}
	return all
}

// arrivals are the devices whose messages are tallied, in the order in which they come.
type arrivals struct {
	mu      sync.Mutex
	devices []int
}

func (a *arrivals) tally(x *analyzer.Batch) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for m := range x.Messages {
		a.devices = append(a.devices, int(binary.BigEndian.Uint64(m)>>16))
	}
	return tallyAll(x)
}

// take returns those that came since it was asked last.
func (a *arrivals) take() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	devices := a.devices
	a.devices = nil
	return devices
}
