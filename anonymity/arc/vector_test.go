package arc_test

import (
	"bytes"
	"crypto/sha3"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/arc/arctest"
	"github.com/starling-agg/starling/vdaf/vdaftest"
)

// draws is the draft's generator of randomness for its vectors (TestDRNG of the
// sigma-protocols draft): SHAKE128 of a seed, 48 bytes for a scalar. As a reader it gives
// each scalar as the 48 bytes that our code makes that scalar of.
type draws struct {
	h *sha3.SHAKE
	// below says of the next scalars by which number each is reduced; then it is n.
	below []*big.Int
	left  []byte
}

var (
	order, _      = new(big.Int).SetString("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)
	orderLess1    = new(big.Int).Sub(order, big.NewInt(1))
	drawn1, drawn = []*big.Int{orderLess1}, []*big.Int{orderLess1, orderLess1, orderLess1, orderLess1}
)

func newDraws(seed string) *draws {
	d := &draws{h: sha3.NewSHAKE128()}
	block := make([]byte, 168)
	copy(block, "sigma-proofs/TestDRNG/SHAKE128")
	d.h.Write(block)
	padded := make([]byte, 32)
	copy(padded, seed)
	d.h.Write(padded)
	return d
}

// next says that the next scalars, as many as below has, are reduced by what it has: the
// draft draws secrets below n-1, and the scalars of proofs below n.
func (d *draws) next(below []*big.Int) *draws {
	d.below = below
	return d
}

func (d *draws) Read(b []byte) (int, error) {
	if len(d.left) == 0 {
		m := order
		if len(d.below) > 0 {
			m, d.below = d.below[0], d.below[1:]
		}
		d.left = make([]byte, 48)
		d.h.Read(d.left)
		x := new(big.Int).SetBytes(d.left)
		x.Mod(x, m).FillBytes(d.left)
	}
	n := copy(b, d.left)
	d.left = d.left[n:]
	return n, nil
}

// draftVectors are those of ARC's draft, which are not part of this repository.
type draftVectors struct {
	Suite struct {
		ServerKey, CredentialRequest, CredentialResponse, Credential, Presentation1, Presentation2 map[string]string
	} `json:"ARCV1-P256"`
}

func readDraftVectors(t *testing.T) *draftVectors {
	t.Helper()
	dir, err := vdaftest.OfficialDir()
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Skip("vectors of ARC's draft not found: set STARLING_VECTORS to the folder that holds privacypass")
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "privacypass", "arc-p256-vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	v := new(draftVectors)
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
	return v
}

func unhex(t *testing.T, parts ...string) (all []byte) {
	t.Helper()
	for _, s := range parts {
		b, err := hex.DecodeString(s)
		if err != nil || len(b) == 0 {
			t.Fatalf("%q: %v", s, err)
		}
		all = append(all, b...)
	}
	return all
}

// TestDraftVectors has keys, request, response, credential and presentations of ARC's
// draft, byte for byte.
func TestDraftVectors(t *testing.T) {
	v := readDraftVectors(t).Suite
	rand := newDraws("test vector seed")
	same := func(what string, got, want []byte) {
		t.Helper()
		if !bytes.Equal(got, want) {
			t.Fatalf("%s is\n%x, not\n%x", what, got, want)
		}
	}

	key := arctest.GenerateKey(rand.next(drawn))
	k := v.ServerKey
	same("private key", key.Append(nil), unhex(t, k["x0"], k["x1"], k["x2"], k["xb"]))
	same("public key", key.PublicKey().Append(nil), unhex(t, k["X0"], k["X1"], k["X2"]))

	q := v.CredentialRequest
	pending := arctest.NewPending(unhex(t, q["request_context"]), rand.next(drawn[:3]))
	request := unhex(t, q["m1_enc"], q["m2_enc"], q["proof"])
	same("pending request", pending.Append(nil), append(unhex(t, q["m1"], q["m2"], q["r1"], q["r2"]), request...))
	same("request", pending.Request().Append(nil), request)

	r := v.CredentialResponse
	response, err := arctest.Respond(key, pending.Request(), rand.next(drawn1))
	if err != nil {
		t.Fatal(err)
	}
	same("response", response.Append(nil), unhex(t, r["U"], r["enc_U_prime"], r["X0_aux"], r["X1_aux"], r["X2_aux"], r["H_aux"], r["proof"]))

	credential, err := pending.Finalize(key.PublicKey(), response)
	if err != nil {
		t.Fatal(err)
	}
	c := v.Credential
	same("credential", credential.Append(nil), unhex(t, c["m1"], c["U"], c["U_prime"], c["X1"]))

	// Presentations of the draft's form, with its limit of 2.
	verifier := key.Verifier(unhex(t, q["request_context"]))
	for number, x := range []map[string]string{v.Presentation1, v.Presentation2} {
		base := arc.NewTagBase(unhex(t, x["presentation_context"]))
		p := arctest.PresentDraft(credential, base, number, 2, rand.next(drawn))
		same("presentation", p.Append(nil), unhex(t, x["U"], x["U_prime_commit"], x["m1_commit"], x["tag"], x["nonce_commit"], x["proof"]))
		if p, err = arc.ReadDraftPresentation(p.Append(nil), 2); err != nil {
			t.Fatal(err)
		}
		if err := verifier.VerifyDraft(base, p, 2); err != nil {
			t.Error(err)
		}
	}
}

// TestDraftLimits has presentations of the draft's form under limits that its vectors do
// not have, byte for byte as testdata/draft.py makes them, which is written from the draft,
// has no line of ours, and makes the draft's vectors as well.
func TestDraftLimits(t *testing.T) {
	b, err := os.ReadFile("testdata/draft-limits.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		PrivateKey, RequestContext, Credential, PresentationContext string
		Presentations                                               []struct {
			Limit, Number      int
			Seed, Presentation string
		}
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	key, err := arc.ReadPrivateKey(unhex(t, v.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	c, err := arc.ReadCredential(unhex(t, v.Credential))
	if err != nil {
		t.Fatal(err)
	}
	verifier, base := key.Verifier(unhex(t, v.RequestContext)), arc.NewTagBase(unhex(t, v.PresentationContext))
	limits := map[int]bool{}
	for _, x := range v.Presentations {
		rand := sha3.NewSHAKE128()
		rand.Write([]byte(x.Seed))
		want := unhex(t, x.Presentation)
		if got := arctest.PresentDraft(c, base, x.Number, x.Limit, rand).Append(nil); !bytes.Equal(got, want) {
			t.Errorf("number %d below %d is\n%x, not\n%x", x.Number, x.Limit, got, want)
		}
		p, err := arc.ReadDraftPresentation(want, x.Limit)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.VerifyDraft(base, p, x.Limit); err != nil {
			t.Errorf("number %d below %d: %v", x.Number, x.Limit, err)
		}
		limits[x.Limit] = true
	}
	if len(limits) != 7 {
		t.Errorf("%d limits", len(limits))
	}
}
