package credentials_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/mint"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// enrolled is a wallet of a device that the attester knows.
func (w *world) enrolled(i int, fsys *disktest.Mem) *credentials.Wallet {
	w.t.Helper()
	x := w.wallet(fsys)
	is(w.t, x.Enrol(w.t.Context(), []byte(w.codes[i])), nil)
	return x
}

// TestTokens: one visit has a token of each round of each recipe, which the round's key admits
// and no other; a device shows the same one in a round however often it asks or restarts, two
// devices never the same, and what is over is not on its disk. All ask alike.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	var sizes []int64
	w.stand("attester", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/visit" {
				sizes = append(sizes, r.ContentLength)
			}
			next.ServeHTTP(rw, r)
		})
	})
	asked := 0
	w.stand("gateway", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				asked++
			}
			next.ServeHTTP(rw, r)
		})
	})
	mems := []*disktest.Mem{disktest.NewMem(1), disktest.NewMem(2)}
	seen := make(map[[32]byte]bool)
	for i, mem := range mems {
		x := w.enrolled(i, mem)
		_, err := x.Admission(w.tokens[0].Recipe)(w.tokens[0].First)
		none(t, err, credentials.ReasonNoToken)
		is(t, x.Visit(t.Context(), w.manifest()), nil)
		again := w.wallet(mem)
		for _, k := range w.tokens {
			for n := range k.Keys {
				round := k.First + uint64(n)
				token, err := x.Admission(k.Recipe)(round)
				is(t, err, nil)
				kept, err := again.Admission(k.Recipe)(round)
				if is(t, err, nil); kept != token {
					t.Error("after a restart the device has another token")
				}
				is(t, k.Of(round).Admit(k.Round(round), token), nil)
				for _, other := range w.tokens {
					for m, key := range other.Keys {
						if (other != k || m != n) && key.Admit(other.Round(other.First+uint64(m)), token) == nil {
							t.Errorf("the token of round %d of %x is let into another", round, k.Recipe[:1])
						}
					}
				}
				if seen[token.Nonce] {
					t.Error("a nonce of two tokens")
				}
				seen[token.Nonce] = true
			}
			for _, round := range []uint64{k.First - 1, k.First + uint64(len(k.Keys)), 1 << 63} {
				_, err := x.Admission(k.Recipe)(round)
				none(t, err, credentials.ReasonNoToken)
			}
		}
		_, err = x.Admission([32]byte{77})(w.tokens[0].First)
		none(t, err, credentials.ReasonNoToken)
	}
	if asked != 1 {
		t.Errorf("two devices have the gateway asked %d times for its keys", asked)
	}
	if len(sizes) != 2 || sizes[0] != sizes[1] || sizes[0] != int64(visit.Size+3*visit.AskSize) {
		t.Errorf("visits of %d bytes", sizes)
	}

	// The first of two rounds is over: its token is gone, the other one stays.
	k := w.tokens[0]
	x := w.wallet(mems[0])
	var tokens [2]voprf.Token
	for i := range tokens {
		var err error
		if tokens[i], err = x.Admission(k.Recipe)(k.First + uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	w.at(begin.Add(12*time.Hour - time.Second))
	if n, err := x.Forget(); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, err := x.Admission(k.Recipe)(k.First)
	is(t, err, nil)
	w.at(begin.Add(12 * time.Hour))
	if n, err := x.Forget(); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, err = x.Admission(k.Recipe)(k.First)
	none(t, err, credentials.ReasonNoToken)
	left, err := w.wallet(mems[0]).Admission(k.Recipe)(k.First + 1)
	if is(t, err, nil); left != tokens[1] {
		t.Error("the token of the next round has changed")
	}
	file := disktest.FilesOf(t, mems[0])["wallet"]
	if bytes.Contains(file, tokens[0].Nonce[:]) || !bytes.Contains(file, tokens[1].Nonce[:]) {
		t.Error("what is over is on the disk, or what is not is gone")
	}
}

// TestOneListOfKeys: a device asks for nothing under keys that are not the manifest's: a list
// for it alone would tell the gateway which device shows a token.
func TestOneListOfKeys(t *testing.T) {
	w := newWorld(t)
	x := w.enrolled(0, disktest.NewMem(1))
	own := *w.tokens[0]
	own.Generate(2)
	good, err := w.mint.Keys(coming)
	if err != nil {
		t.Fatal(err)
	}
	with := func(f func(k *visit.Keys)) []byte {
		k := *good
		k.Lists = slices.Clone(k.Lists)
		f(&k)
		b, err := k.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	visits := 0
	for name, b := range map[string][]byte{
		"keys for this device": with(func(k *visit.Keys) { k.Lists[0] = own.Public().Append(nil) }),
		"exchanged":            with(func(k *visit.Keys) { k.Lists[0], k.Lists[1] = k.Lists[1], k.Lists[0] }),
		"one too few":          with(func(k *visit.Keys) { k.Lists = k.Lists[:1] }),
		"one too many":         with(func(k *visit.Keys) { k.Lists = append(k.Lists, k.Lists[1]) }),
		"another epoch":        with(func(k *visit.Keys) { k.Epoch++ }),
		"another deployment":   with(func(k *visit.Keys) { k.Deployment[0]++ }),
		"no message":           []byte("keys"),
	} {
		w.stand("attester", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/visit" {
					visits++
				}
				rw.Write(b)
			})
		})
		if err := x.Visit(t.Context(), w.manifest()); !errors.Is(err, credentials.ErrKeys) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if visits > 0 {
		t.Errorf("%d visits under keys that all do not see", visits)
	}
	w.stand("attester", nil)

	// What the manifest names has to be of the epoch's own rounds, or there would be two tokens
	// of one.
	for name, change := range map[string]func(k *admission.Keys){
		"a round later":   func(k *admission.Keys) { k.First++ },
		"a round earlier": func(k *admission.Keys) { k.First-- },
		"one of a later":  func(k *admission.Keys) { k.Keys = append(slices.Clone(k.Keys), voprf.GenerateKey()) },
		"of the next":     func(k *admission.Keys) { k.First += 2 },
		"of none near":    func(k *admission.Keys) { k.First += 3 },
		"shorter rounds":  func(k *admission.Keys) { k.Length /= 2 },
		"endless rounds":  func(k *admission.Keys) { k.Length = 1 << 60 },
		"rounds of zeros": func(k *admission.Keys) { k.Length = 0 },
	} {
		honest := w.tokens[0]
		odd := *honest
		change(&odd)
		w.tokens[0] = &odd
		w.at(w.time().Add(time.Minute)) // or the attester hands on what it was told before
		if err := x.Visit(t.Context(), w.manifest()); !errors.Is(err, credentials.ErrKeys) {
			t.Errorf("%s: %v", name, err)
		}
		w.tokens[0] = honest
	}
	w.at(w.time().Add(time.Minute))
	is(t, x.Visit(t.Context(), w.manifest()), nil)
}

// TestLyingGateway: a token that is not proved under the manifest's key of its round is none,
// and an honest answer to the same requests afterwards is taken.
func TestLyingGateway(t *testing.T) {
	w := newWorld(t)
	x := w.enrolled(0, disktest.NewMem(1))
	own := voprf.GenerateKey()
	for name, change := range map[string]func(o *visit.TokenOrder, answer []byte){
		"a key for this device": func(o *visit.TokenOrder, answer []byte) {
			q, err := voprf.ReadRequest(o.Asks[visit.AskSize : 2*visit.AskSize])
			if err != nil {
				t.Fatal(err)
			}
			copy(answer[visit.TokenSize:], own.Evaluate(q).Append(nil))
		},
		"rounds exchanged": func(_ *visit.TokenOrder, answer []byte) {
			first := slices.Clone(answer[:visit.TokenSize])
			copy(answer, answer[visit.TokenSize:2*visit.TokenSize])
			copy(answer[visit.TokenSize:], first)
		},
		"a wrong proof": func(_ *visit.TokenOrder, answer []byte) { answer[len(answer)-1] ^= 1 },
		"the identity":  func(_ *visit.TokenOrder, answer []byte) { clear(answer[2:35]) },
		"zeros":         func(_ *visit.TokenOrder, answer []byte) { clear(answer) },
	} {
		w.stand("gateway", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					next.ServeHTTP(rw, r)
					return
				}
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				r.Body = io.NopCloser(bytes.NewReader(b))
				got := httptest.NewRecorder()
				next.ServeHTTP(got, r)
				o, err := visit.ReadTokenOrder(b)
				if err != nil || got.Code != http.StatusOK {
					t.Errorf("%v, %d", err, got.Code)
				}
				answer := got.Body.Bytes()
				change(&o, answer)
				rw.Header().Set("Content-Type", visit.TokensMedia)
				rw.Write(answer)
			})
		})
		if err := x.Visit(t.Context(), w.manifest()); !errors.Is(err, credentials.ErrAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.stand("gateway", nil)
	is(t, x.Visit(t.Context(), w.manifest()), nil)
	w.at(begin)
	if n, err := w.mint.Devices(coming); n != 1 || err != nil {
		t.Errorf("%d devices, %v", n, err)
	}
}

// tokenOrder is one of all tokens, made by whoever has a root key.
func (w *world) tokenOrder(root *signed.PrivateKey, change func(*visit.TokenOrder)) []byte {
	w.t.Helper()
	o := &visit.TokenOrder{Deployment: w.deployment, Epoch: coming}
	for _, k := range w.tokens {
		for n := range k.Keys {
			o.Asks = voprf.NewTokenRequest(k.Round(k.First + uint64(n))).Request().Append(o.Asks)
		}
	}
	if change != nil {
		change(o)
	}
	if err := o.Sign(signedtest.Signer(w.t, root, begin.AddDate(0, 0, -30), 60*24*time.Hour), w.time()); err != nil {
		w.t.Fatal(err)
	}
	return o.Append(nil)
}

// TestForgedTokenOrders: tokens are given out for the attester of the manifest alone, in time,
// for as many devices as the manifest says, all of an epoch at once; whoever else asks is
// refused in words of a closed set, and nothing is entered.
func TestForgedTokenOrders(t *testing.T) {
	w := newWorld(t)
	post := func(media string, b []byte) (int, string) {
		t.Helper()
		resp, err := http.Post(w.servers["gateway"].URL, media, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, strings.TrimSpace(string(text))
	}
	good := func() []byte { return w.tokenOrder(w.root, nil) }
	moved := good()
	moved[len(moved)-signed.SignatureSize-1] ^= 1
	for name, x := range map[string]struct {
		body []byte
		want string
	}{
		"of another attester": {w.tokenOrder(signed.Generate(), nil), "not-ordered"},
		"another request":     {moved, "not-ordered"},
		"another deployment":  {w.tokenOrder(w.root, func(o *visit.TokenOrder) { o.Deployment[0]++ }), "not-ordered"},
		"another epoch":       {w.tokenOrder(w.root, func(o *visit.TokenOrder) { o.Epoch++ }), "unknown-epoch"},
		"for an issuer":       {w.order(w.root, signed.Leader).Append(nil), "malformed"},
		"the identity":        {w.tokenOrder(w.root, func(o *visit.TokenOrder) { clear(o.Asks[2:visit.AskSize]) }), "malformed"},
		"off the curve": {w.tokenOrder(w.root, func(o *visit.TokenOrder) {
			copy(o.Asks[visit.AskSize+2:], append(append([]byte{2}, make([]byte, 31)...), 1))
		}), "malformed"},
		"one too few":  {w.tokenOrder(w.root, func(o *visit.TokenOrder) { o.Asks = o.Asks[visit.AskSize:] }), "malformed"},
		"one too many": {w.tokenOrder(w.root, func(o *visit.TokenOrder) { o.Asks = append(o.Asks, o.Asks[:visit.AskSize]...) }), "malformed"},
		"two in one": {w.tokenOrder(w.root, func(o *visit.TokenOrder) {
			two := voprf.Blind([]byte("a"), []byte("b")).Request().Append(nil) // 68 bytes
			copy(o.Asks, two)
		}), "malformed"},
		"nothing":  {nil, "malformed"},
		"cut":      {good()[:100], "malformed"},
		"too long": {append(good(), 0), "malformed"},
		"huge":     {make([]byte, visit.MaxTokenOrder+1), "malformed"},
	} {
		if status, word := post(visit.TokenOrderMedia, x.body); word != x.want || status/100 == 2 {
			t.Errorf("%s: %d %q, want %q", name, status, word, x.want)
		}
	}
	if status, word := post(visit.OrderMedia, good()); word != "malformed" {
		t.Errorf("as an issuer's: %d %q", status, word)
	}
	for _, query := range []string{"", "?epoch=x", "?epoch=1"} {
		if resp, err := http.Get(w.servers["gateway"].URL + query); err != nil || resp.StatusCode/100 != 4 {
			t.Errorf("keys of %q: %v", query, err)
		}
	}
	if n, err := w.mint.Devices(coming); n != 0 || err != nil {
		t.Errorf("%d are entered, %v", n, err)
	}
	same := good()
	for _, want := range []string{"issued", "again"} {
		if status, _ := post(visit.TokenOrderMedia, same); status != http.StatusOK || w.mint.Outcome(want) != 1 {
			t.Errorf("%s: %d", want, status)
		}
		w.crash()
	}
	w.most = 1
	if status, word := post(visit.TokenOrderMedia, good()); word != "full" {
		t.Errorf("%d %q", status, word)
	}
	if status, _ := post(visit.TokenOrderMedia, same); status != http.StatusOK {
		t.Errorf("the same again, when it is full: %d", status)
	}
	honest := w.tokens
	w.tokens = slices.Clone(honest[:1])
	if status, word := post(visit.TokenOrderMedia, same); status != http.StatusBadRequest || word != "malformed" {
		t.Errorf("a manifest with fewer recipes: %d %q", status, word)
	}
	w.tokens = honest
	w.at(begin)
	if status, word := post(visit.TokenOrderMedia, same); word != "begun" {
		t.Errorf("%d %q", status, word)
	}
	if n, err := w.mint.Devices(coming); n != 1 || err != nil {
		t.Errorf("%d are entered, %v", n, err)
	}
	is(t, w.mint.Forget(coming-1), nil)
	if n, _ := w.mint.Devices(coming); n != 1 {
		t.Error("forgotten too early")
	}
	is(t, w.mint.Forget(coming), nil)
	if n, _ := w.mint.Devices(coming); n != 0 {
		t.Errorf("%d are left of an epoch that is over", n)
	}
}

// TestMintWithoutKeys: a gateway that does not have the keys which the manifest names
// gives out nothing, says nothing of them, and enters nobody.
func TestMintWithoutKeys(t *testing.T) {
	w := newWorld(t)
	other := *w.tokens[0]
	other.Generate(2)
	x, err := mint.New(mint.Options{Deployment: w.deployment, Register: disktest.NewMem(1), Now: w.time,
		Keys: func() []*admission.Keys { return []*admission.Keys{&other, w.tokens[1]} },
		Terms: func(uint32) (mint.Terms, bool) {
			return mint.Terms{Attester: w.root.Public(), Cap: 5, Begin: begin, Lists: []mint.List{{Recipe: w.tokens[0].Recipe, Digest: w.tokens[0].Public().Digest()}}}, true
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	_, err = x.Keys(coming)
	is(t, err, mint.ErrKeys)
	o, err := visit.ReadTokenOrder(w.tokenOrder(w.root, func(o *visit.TokenOrder) { o.Asks = o.Asks[:2*visit.AskSize] }))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = x.Issue(context.Background(), &o)
	is(t, err, mint.ErrKeys)
	if n, err := x.Devices(coming); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// TestVisitsAreAlike: a device that asks for no tokens where others do, or for some where
// there are none, is refused before it is written down.
func TestVisitsAreAlike(t *testing.T) {
	w := newWorld(t)
	x := w.enrolled(0, disktest.NewMem(1))
	m := w.manifest()
	m.Issuers.Admission = nil
	refused(t, x.Visit(t.Context(), m), "malformed")
	if n := w.attester.Outcome("visited"); n != 0 {
		t.Errorf("%d visits", n)
	}
	is(t, x.Visit(t.Context(), w.manifest()), nil) // and is not lost by it
	y := w.enrolled(1, disktest.NewMem(2))
	many := w.manifest()
	many.Issuers.Admission = slices.Repeat([]ohttp.AdmissionKeys{many.Issuers.Admission[0]}, 2)
	is(t, y.Visit(t.Context(), many), credentials.ErrKeys)
}
