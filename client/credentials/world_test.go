package credentials_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/attester"
	"github.com/starling-agg/starling/anonymity/issuer"
	"github.com/starling-agg/starling/anonymity/mint"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

const (
	length = 24 * time.Hour // of an epoch
	coming = 20000          // the epoch that devices visit for
)

var begin = time.Unix(coming*int64(length/time.Second), 0).UTC()

// A world is an attester, two issuers and what gives out the gateway's tokens, as they are
// served, and the manifest of the coming epoch.
type world struct {
	t          *testing.T
	deployment [32]byte
	now        atomic.Int64 // seconds since 1970
	root       *signed.PrivateKey
	codes      []string
	codesFile  []byte
	most       uint64 // devices, of the manifest
	fp         *disk.Failpoints
	log        bytes.Buffer

	keys, registers, attesterFS map[signed.Role]*disktest.Mem
	issuers                     map[signed.Role]*issuer.Issuer
	attester                    *attester.Attester
	public                      map[signed.Role]*arc.PublicKey
	tokens                      []*admission.Keys
	mint                        *mint.Mint

	mu      sync.Mutex
	between map[string]func(next http.Handler) http.Handler // by party
	servers map[string]*httptest.Server
}

var roles = []signed.Role{signed.Leader, signed.Helper}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, deployment: [32]byte{9}, root: signed.Generate(), most: 100, fp: new(disk.Failpoints),
		keys: map[signed.Role]*disktest.Mem{}, registers: map[signed.Role]*disktest.Mem{}, attesterFS: map[signed.Role]*disktest.Mem{},
		issuers: map[signed.Role]*issuer.Issuer{}, public: map[signed.Role]*arc.PublicKey{}, between: map[string]func(http.Handler) http.Handler{},
		servers: map[string]*httptest.Server{}}
	w.at(begin.Add(-10 * time.Hour))
	var err error
	if w.codes, w.codesFile, err = attester.MakeCodes(5); err != nil {
		t.Fatal(err)
	}
	for i, role := range roles {
		w.keys[role], w.registers[role] = disktest.NewMem(uint64(10+i)), disktest.NewMem(uint64(20+i))
		if w.public[role], err = issuer.MakeKey(w.keys[role], role, w.deployment, coming); err != nil {
			t.Fatal(err)
		}
	}
	w.attesterFS[signed.Attester], w.registers[signed.Gateway] = disktest.NewMem(30), disktest.NewMem(31)
	for i, round := range []uint64{12 * 3600, 24 * 3600} {
		k := &admission.Keys{Deployment: w.deployment, Recipe: [32]byte{byte(i + 1)}, Task: [32]byte{byte(i + 1)}, Length: round, Grace: 3600}
		var n int
		if k.First, n, err = admission.Rounds(coming, round, uint64(length/time.Second)); err != nil {
			t.Fatal(err)
		}
		k.Generate(n)
		w.tokens = append(w.tokens, k)
	}
	for _, party := range []string{"leader", "helper", "attester", "gateway"} {
		w.servers[party] = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.mu.Lock()
			h := map[string]http.Handler{"leader": w.issuers[signed.Leader], "helper": w.issuers[signed.Helper], "attester": w.attester, "gateway": w.mint}[party]
			if f := w.between[party]; f != nil {
				h = f(h)
			}
			w.mu.Unlock()
			h.ServeHTTP(rw, r)
		}))
		t.Cleanup(w.servers[party].Close)
	}
	w.start()
	t.Cleanup(w.stop)
	return w
}

func (w *world) at(t time.Time)  { w.now.Store(t.Unix()) }
func (w *world) time() time.Time { return time.Unix(w.now.Load(), 0).UTC() }

// start opens all of them.
func (w *world) start() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	log := slog.New(slog.NewTextHandler(&lockedWriter{w: &w.log}, nil))
	for _, role := range roles {
		x, err := issuer.New(issuer.Options{Role: role, Deployment: w.deployment, Epoch: length, Keys: w.keys[role], Register: w.registers[role],
			Terms: func(epoch uint32) (issuer.Terms, bool) {
				return issuer.Terms{Key: [arc.PublicKeySize]byte(w.public[role].Append(nil)), Attester: w.root.Public(), Cap: w.most, Begin: begin}, epoch == coming
			}, Now: w.time, Failpoints: w.fp, Log: log})
		if err != nil {
			w.t.Fatal(err)
		}
		w.issuers[role] = x
	}
	var err error
	if w.mint, err = mint.New(mint.Options{Deployment: w.deployment, Register: w.registers[signed.Gateway], Now: w.time, Failpoints: w.fp, Log: log,
		Keys: func() []*admission.Keys { return w.tokens }, Terms: func(epoch uint32) (mint.Terms, bool) {
			terms := mint.Terms{Attester: w.root.Public(), Cap: w.most, Begin: begin}
			for _, k := range w.tokens {
				terms.Lists = append(terms.Lists, mint.List{Recipe: k.Recipe, Digest: k.Public().Digest()})
			}
			return terms, epoch == coming
		}}); err != nil {
		w.t.Fatal(err)
	}
	codes, err := attester.ReadCodes(w.codesFile)
	if err != nil {
		w.t.Fatal(err)
	}
	w.attester, err = attester.New(attester.Options{Deployment: w.deployment, Signer: signedtest.Signer(w.t, w.root, begin.AddDate(0, 0, -30), 60*24*time.Hour),
		Attestation: codes, Leader: w.servers["leader"].URL, Helper: w.servers["helper"].URL, Gateway: w.servers["gateway"].URL, FS: w.attesterFS[signed.Attester],
		Terms: func(epoch uint32) (attester.Terms, bool) {
			return attester.Terms{Begin: begin, Cap: w.most, Tokens: true}, epoch == coming
		},
		Now: w.time, Failpoints: w.fp, Log: log})
	if err != nil {
		w.t.Fatal(err)
	}
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func (w *world) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range []error{w.issuers[signed.Leader].Close(), w.issuers[signed.Helper].Close(), w.attester.Close(), w.mint.Close()} {
		_ = err // after a failed write they say so
	}
}

// crash has all of them lose power, and start again.
func (w *world) crash() {
	w.t.Helper()
	w.stop()
	for _, all := range []map[signed.Role]*disktest.Mem{w.registers, w.attesterFS} {
		for role, mem := range all {
			all[role] = mem.Crash()
		}
	}
	w.start()
}

func (w *world) stand(party string, f func(next http.Handler) http.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.between[party] = f
}

// manifest is that of the coming epoch, as far as a wallet reads it.
func (w *world) manifest() *ohttp.Manifest {
	var tokens []ohttp.AdmissionKeys
	for _, k := range w.tokens {
		tokens = append(tokens, ohttp.AdmissionKeys{Recipe: k.Recipe, Keys: k.Public().Digest()})
	}
	return &ohttp.Manifest{Deployment: w.deployment, Epoch: coming, Length: length, NotBefore: begin, NotAfter: begin.Add(length),
		Issuers: &ohttp.Issuers{Leader: [ohttp.IssuerKeySize]byte(w.public[signed.Leader].Append(nil)),
			Helper: [ohttp.IssuerKeySize]byte(w.public[signed.Helper].Append(nil)), Attester: w.root.Public(), Cap: w.most, Admission: tokens}}
}

func (w *world) wallet(fsys disk.FS) *credentials.Wallet {
	w.t.Helper()
	x, err := credentials.Open(credentials.Options{Attester: w.servers["attester"].URL, Deployment: w.deployment, FS: fsys, Now: w.time})
	if err != nil {
		w.t.Fatal(err)
	}
	return x
}

// counts are those of both issuers and the attester, once the epoch has begun.
func (w *world) counts() (c arc.Cohort) {
	w.t.Helper()
	var errs [4]error
	c.Leader, errs[0] = w.issuers[signed.Leader].Count(w.t.Context(), coming)
	c.Helper, errs[1] = w.issuers[signed.Helper].Count(w.t.Context(), coming)
	c.Attested, errs[2] = w.attester.Count(coming)
	n, err := w.mint.Devices(coming)
	if errs[3] = err; n != c.Leader {
		w.t.Errorf("%d devices have tokens, and %d credentials", n, c.Leader)
	}
	if err := errors.Join(errs[:]...); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// verified demands that both issuers' verifiers take what a device shows.
func (w *world) verified(h *client.Held) (tags [2]arc.Tag) {
	w.t.Helper()
	for i, of := range []struct {
		role       arc.Role
		credential *arc.Credential
		key        arc.KeyID
	}{{arc.Leader, h.Leader, h.LeaderKey}, {arc.Helper, h.Helper, h.HelperKey}} {
		v, key, err := w.issuers[roles[i]].Verifier(w.t.Context(), w.deployment, coming)
		if err != nil || key != of.key {
			w.t.Fatalf("%x, %v", key, err)
		}
		base, bound := arc.NewTagBase(arc.NewPresentationContext(of.role, [32]byte{1}, 5, key)), arc.Bind(of.role, []byte("aad"), []byte("share"))
		p := of.credential.Present(base, bound)
		if err := v.Verify(arc.Item{Base: base, Binding: bound, Presentation: p}); err != nil {
			w.t.Error(err)
		}
		tags[i] = p.Tag()
	}
	return tags
}
