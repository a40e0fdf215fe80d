package logserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/logserver"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
	"github.com/starling-agg/starling/anonymity/witness"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/signed"
)

// A wire carries requests to parties in the same process, by host.
type wire struct {
	mu    sync.Mutex
	hosts map[string]http.Handler
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	h := w.hosts[r.URL.Host]
	w.mu.Unlock()
	if h == nil {
		return nil, fmt.Errorf("nobody is at %s", r.URL.Host)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r.Clone(r.Context()))
	return rec.Result(), nil
}

func (w *wire) set(host string, h http.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts[host] = h
}

// A bench is a log with two witnesses, both of whom its policy wants.
type bench struct {
	t     *testing.T
	o     logserver.Options
	s     *logserver.Server
	wire  *wire
	w     []*witness.Witness
	end   func()
	ended chan error
}

// judge takes releases: the first byte of the digest says who owns one, the name is what it
// is about, and a name of two digits is withdrawn by its double.
func judge(e tlog.Entry) (tlog.Claim, error) {
	if e.Kind == tlog.KindActive { // a bad judge: the log must not ask it
		return tlog.Claim{About: [32]byte{250}}, nil
	}
	if e.Kind == tlog.KindWithdrawal {
		return tlog.Claim{About: [32]byte{200, e.Body[0]}, From: time.Unix(0, 0), Until: time.Unix(0, 0), Withdraws: tlog.Hash(e.Body[1:]), By: signed.PublicKey{e.Body[0]}}, nil
	}
	r, err := tlog.ReadRelease(e.Body)
	if err != nil {
		return tlog.Claim{}, err
	}
	c := tlog.Claim{Owners: []signed.PublicKey{{r.Digest[0]}}}
	copy(c.About[:], r.Name)
	if r.Digest[31] == 1 {
		return c, errors.New("its owner has not signed it")
	}
	if r.Digest[30] > 0 { // said at an hour
		c.Stated = start.Add(time.Duration(r.Digest[30]) * time.Hour)
	}
	return c, nil
}

// start is when the clock of synctest begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func entry(t testing.TB, name string, owner byte, marks ...byte) []byte {
	t.Helper()
	r := tlog.Release{Name: name, Digest: [32]byte{owner}}
	if len(marks) > 0 {
		r.Digest[31] = marks[0]
	}
	if len(marks) > 1 {
		r.Digest[30] = marks[1]
	}
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return encode(t, tlog.Entry{Kind: tlog.KindRelease, Body: b})
}

func encode(t testing.TB, e tlog.Entry) []byte {
	t.Helper()
	b, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newBench makes the parties, and starts none but the witnesses.
func newBench(t *testing.T, seed uint64) *bench {
	b := &bench{t: t, wire: &wire{hosts: make(map[string]http.Handler)}}
	key := tlogtest.Secret(t, "log.example", tlog.Ed25519)
	file := "log " + key.Key().String() + "\n"
	for i := range 2 {
		s := tlogtest.Secret(t, fmt.Sprintf("w%d.example", i), tlog.CosignEd)
		w, err := witness.New(witness.Options{Keys: []*tlog.Secret{s}, Logs: []*tlog.Key{key.Key()}, FS: disktest.NewMem(seed)})
		if err != nil {
			t.Fatal(err)
		}
		b.w = append(b.w, w)
		b.wire.set(fmt.Sprintf("w%d", i), w)
		file += fmt.Sprintf("witness w%d %s https://w%d/\n", i, s.Key(), i)
	}
	policy, err := tlog.ReadPolicy([]byte(file + "group g all w0 w1\nquorum g\n"))
	if err != nil {
		t.Fatal(err)
	}
	b.o = logserver.Options{Key: key, Policy: policy, Judge: judge, FS: disktest.NewMem(seed), Record: disktest.NewMem(seed), Transport: b.wire}
	return b
}

// run starts the log.
func (b *bench) run() error {
	s, err := logserver.New(b.o)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(b.t.Context())
	b.s, b.end, b.ended = s, end, make(chan error, 1)
	go func() { b.ended <- s.Run(ctx) }()
	return nil
}

func (b *bench) mustRun() {
	b.t.Helper()
	if err := b.run(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) stop() {
	b.t.Helper()
	b.end()
	if err := <-b.ended; err != nil {
		b.t.Error(err)
	}
	b.s.Close() // after a loss of power it fails
}

func (b *bench) get(path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	b.s.ServeHTTP(rec, httptest.NewRequest("GET", "/"+path, nil))
	return rec
}

// add sends an entry, and returns its place, or why it has none.
func (b *bench) add(e []byte) (a logserver.Added, refused string) {
	b.t.Helper()
	rec := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/add", bytes.NewReader(e))
	r.Header.Set("Content-Type", logserver.EntryMedia)
	b.s.ServeHTTP(rec, r)
	if rec.Code == 200 {
		if err := json.Unmarshal(rec.Body.Bytes(), &a); err != nil {
			b.t.Fatal(err)
		}
		return a, ""
	}
	var p logserver.Problem
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil || len(p.Type) < 18 {
		b.t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	return a, p.Type[len("urn:starling:log:"):]
}

// checkpoint is what the log shows, as its policy takes it.
func (b *bench) checkpoint() *tlog.Witnessed {
	b.t.Helper()
	rec := b.get("checkpoint")
	w, err := b.o.Policy.Open(rec.Body.Bytes(), time.Now())
	if err != nil {
		b.t.Fatalf("%d %s: %v", rec.Code, rec.Body, err)
	}
	return w
}

// tree reads what is shown, through tiles alone.
func (b *bench) tree(w *tlog.Witnessed) *tlog.Tree {
	return tlog.NewTree(&w.Checkpoint, func(path string) ([]byte, error) {
		rec := b.get(path)
		if rec.Code != 200 {
			return nil, fmt.Errorf("%s: %d", path, rec.Code)
		}
		return rec.Body.Bytes(), nil
	})
}

// device fetches the bundle, and goes on from what it remembers.
func (b *bench) device(m tlog.Memory) (*tlog.Opened, tlog.Memory, error) {
	b.t.Helper()
	rec := b.get("bundle")
	x, err := tlog.ReadBundle(rec.Body.Bytes())
	if err != nil {
		b.t.Fatalf("%d: %v", rec.Code, err)
	}
	return x.Open(b.o.Policy, m, time.Now(), nil)
}

// names are those of the releases of a bundle.
func names(o *tlog.Opened) (all []string) {
	for _, p := range o.Entries {
		if r, err := tlog.ReadRelease(p.Entry.Body); err == nil {
			all = append(all, r.Name)
		}
	}
	return all
}

// in runs a test in a bubble of its own.
func in(t *testing.T, f func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) { f(t, newBench(t, 1)) })
}

func mem(fsys disk.FS) *disktest.Mem { return fsys.(*disktest.Mem) }
