package voprf_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/anonymity/voprf/voprftest"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// scalars is a stream that gives these.
func scalars(t *testing.T, all ...string) *bytes.Reader {
	var b []byte
	for _, s := range all {
		b = append(append(b, make([]byte, 16)...), unhex(t, s)...)
	}
	return bytes.NewReader(b)
}

// TestRFCVectors has the vectors of RFC 9497 appendix A.3.2.
func TestRFCVectors(t *testing.T) {
	key, err := voprf.ReadKey(unhex(t, "ca5d94c8807817669a51b196c34c1b7f8442fde4334a7121ae4736364312fca6"))
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(key.PublicKey().Append(nil)); got != "03e17e70604bcabe198882c0a1f27a92441e774224ed9c702e51dd17038b102462" {
		t.Errorf("the public key is %s", got)
	}
	const blind, blind2 = "3338fa65ec36e0290022b48eb562889d89dbfa691d1cde91517fa222ed7ad364", "f9db001266677f62c095021db018cd8cbb55941d4073698ce45c405d1348b7b1"
	for i, v := range []struct {
		inputs, blinds, blinded, evaluated []string
		draw, proof                        string
		outputs                            []string
	}{
		{[]string{"00"}, []string{blind},
			[]string{"02dd05901038bb31a6fae01828fd8d0e49e35a486b5c5d4b4994013648c01277da"},
			[]string{"0209f33cab60cf8fe69239b0afbcfcd261af4c1c5632624f2e9ba29b90ae83e4a2"}, blind2,
			"e7c2b3c5c954c035949f1f74e6bce2ed539a3be267d1481e9ddb178533df4c2664f69d065c604a4fd953e100b856ad83804eb3845189babfa5a702090d6fc5fa",
			[]string{"0412e8f78b02c415ab3a288e228978376f99927767ff37c5718d420010a645a1"}},
		{[]string{"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"}, []string{blind},
			[]string{"03cd0f033e791c4d79dfa9c6ed750f2ac009ec46cd4195ca6fd3800d1e9b887dbd"},
			[]string{"030d2985865c693bf7af47ba4d3a3813176576383d19aff003ef7b0784a0d83cf1"}, blind2,
			"2787d729c57e3d9512d3aa9e8708ad226bc48e0f1750b0767aaff73482c44b8d2873d74ec88aebd3504961acea16790a05c542d9fbff4fe269a77510db00abab",
			[]string{"771e10dcd6bcd3664e23b8f2a710cfaaa8357747c4a8cbba03133967b5c24f18"}},
		{[]string{"00", "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"}, []string{blind, blind2},
			[]string{"02dd05901038bb31a6fae01828fd8d0e49e35a486b5c5d4b4994013648c01277da", "03462e9ae64cae5b83ba98a6b360d942266389ac369b923eb3d557213b1922f8ab"},
			[]string{"0209f33cab60cf8fe69239b0afbcfcd261af4c1c5632624f2e9ba29b90ae83e4a2", "02bb24f4d838414aef052a8f044a6771230ca69c0a5677540fff738dd31bb69771"},
			"350e8040f828bf6ceca27405420cdf3d63cb3aef005f40ba51943c8026877963",
			"bdcc351707d02a72ce49511c7db990566d29d6153ad6f8982fad2b435d6ce4d60da1e6b3fa740811bde34dd4fe0aa1b5fe6600d0440c9ddee95ea7fad7a60cf2",
			[]string{"0412e8f78b02c415ab3a288e228978376f99927767ff37c5718d420010a645a1", "771e10dcd6bcd3664e23b8f2a710cfaaa8357747c4a8cbba03133967b5c24f18"}},
	} {
		var inputs [][]byte
		number := fmt.Sprintf("%04x", len(v.inputs))
		request, evaluation := number, number
		for j := range v.inputs {
			inputs = append(inputs, unhex(t, v.inputs[j]))
			request += v.blinded[j]
			evaluation += v.evaluated[j]
		}
		evaluation += v.proof
		b := voprftest.Blind(scalars(t, v.blinds...), inputs...)
		if got := hex.EncodeToString(b.Request().Append(nil)); got != request {
			t.Errorf("%d: the request is %s", i, got)
		}
		e := voprftest.Evaluate(key, b.Request(), scalars(t, v.draw))
		if got := hex.EncodeToString(e.Append(nil)); got != evaluation {
			t.Errorf("%d: the evaluation is %s", i, got)
		}
		outputs, err := b.Finalize(key.PublicKey(), e)
		if err != nil {
			t.Fatal(i, err)
		}
		for j, want := range v.outputs {
			if direct := key.Output(inputs[j]); hex.EncodeToString(outputs[j][:]) != want || direct != outputs[j] {
				t.Errorf("%d: output %d is %x, and with the key %x", i, j, outputs[j], direct)
			}
		}
	}
}

// TestEvaluationRefused: an answer of another key, to another request, or changed in a part.
func TestEvaluationRefused(t *testing.T) {
	key, other := voprf.GenerateKey(), voprf.GenerateKey()
	b := voprf.Blind([]byte("one"), []byte("two"))
	honest := key.Evaluate(b.Request())
	if _, err := b.Finalize(key.PublicKey(), honest); err != nil {
		t.Fatal(err)
	}
	wire, foreign := honest.Append(nil), other.Evaluate(b.Request()).Append(nil)
	again := key.Evaluate(b.Request()).Append(nil)
	read := func(b []byte) *voprf.Evaluation {
		e, err := voprf.ReadEvaluation(b)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for what, e := range map[string]*voprf.Evaluation{
		"another key":                    read(foreign),
		"an element by another key":      read(slices.Concat(wire[:35], foreign[35:68], wire[68:])),
		"elements swapped":               read(slices.Concat(wire[:2], wire[35:68], wire[2:35], wire[68:])),
		"another proof's challenge":      read(slices.Concat(wire[:68], again[68:100], wire[100:])),
		"another proof's response":       read(slices.Concat(wire[:100], again[100:])),
		"challenge and response swapped": read(slices.Concat(wire[:68], wire[100:], wire[68:100])),
		"fewer elements":                 key.Evaluate(voprf.Blind([]byte("one")).Request()),
		"another request":                key.Evaluate(voprf.Blind([]byte("one"), []byte("two")).Request()),
	} {
		if _, err := b.Finalize(key.PublicKey(), e); !errors.Is(err, voprf.ErrProof) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := b.Finalize(other.PublicKey(), honest); !errors.Is(err, voprf.ErrProof) {
		t.Errorf("under another public key: %v", err)
	}
	if again := voprf.Blind([]byte("one"), []byte("two")); bytes.Equal(again.Request().Append(nil), b.Request().Append(nil)) {
		t.Error("blinds were drawn twice")
	}
}

// TestTokens: a token admits to its round under its key alone.
func TestTokens(t *testing.T) {
	key, other := voprf.GenerateKey(), voprf.GenerateKey()
	round := voprf.Round{Deployment: sha256.Sum256([]byte("a deployment")), Number: 7}
	request := voprf.NewTokenRequest(round)
	r, err := voprf.ReadRequest(request.Request().Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := key.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	e, err := voprf.ReadEvaluation(answer.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	token, err := request.Finalize(key.PublicKey(), e)
	if err != nil {
		t.Fatal(err)
	}
	if token, err = voprf.ReadToken(token.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if err := key.Admit(round, token); err != nil {
		t.Fatal(err)
	}
	if _, err := request.Finalize(other.PublicKey(), e); !errors.Is(err, voprf.ErrProof) {
		t.Errorf("an answer under another key: %v", err)
	}
	next, elsewhere := round, round
	next.Number++
	elsewhere.Deployment[0] ^= 1
	nonce, output := token, token
	nonce.Nonce[31] ^= 1
	output.Output[0] ^= 1
	for what, err := range map[string]error{
		"another round":      key.Admit(next, token),
		"another deployment": key.Admit(elsewhere, token),
		"another nonce":      key.Admit(round, nonce),
		"another output":     key.Admit(round, output),
		"another key":        other.Admit(round, token),
		"a token of nothing": key.Admit(round, voprf.Token{}),
	} {
		if !errors.Is(err, voprf.ErrToken) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if a, b := voprf.NewTokenRequest(round), voprf.NewTokenRequest(round); bytes.Equal(a.Request().Append(nil), b.Request().Append(nil)) {
		t.Error("a nonce was drawn twice")
	}
}

// TestOneTokenForARequest: an issuer of tokens answers one element, and no more, or a device
// would have as many tokens of a round as it has elements in its request.
func TestOneTokenForARequest(t *testing.T) {
	key := voprf.GenerateKey()
	if _, err := key.Issue(voprf.Blind([]byte("one"), []byte("two")).Request()); !errors.Is(err, voprf.ErrMalformed) {
		t.Errorf("a request for two tokens: %v", err)
	}
	if e, err := key.Issue(voprf.NewTokenRequest(voprf.Round{}).Request()); err != nil || len(e.Append(nil)) != voprf.AnswerSize {
		t.Errorf("a request for one token: %v", err)
	}
}

// TestTokenRequestIsKept: a device that stopped before it had the answer sends the same
// request, and makes the same token of either answer.
func TestTokenRequestIsKept(t *testing.T) {
	key, round := voprf.GenerateKey(), voprf.Round{Deployment: sha256.Sum256([]byte("a deployment")), Number: 7}
	first := voprf.NewTokenRequest(round)
	kept := first.Append(nil)
	again, err := voprf.ReadTokenRequest(round, kept)
	if err != nil || len(kept) != voprf.TokenRequestSize || !bytes.Equal(again.Append(nil), kept) {
		t.Fatal(err, len(kept))
	}
	if !bytes.Equal(again.Request().Append(nil), first.Request().Append(nil)) {
		t.Error("another request is sent")
	}
	var tokens []voprf.Token
	for _, request := range []*voprf.TokenRequest{first, again} {
		answer, err := key.Issue(first.Request())
		if err != nil {
			t.Fatal(err)
		}
		token, err := request.Finalize(key.PublicKey(), answer)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	if tokens[0] != tokens[1] || key.Admit(round, tokens[1]) != nil {
		t.Error("a second answer is a second token")
	}
	for what, b := range map[string][]byte{"nothing": nil, "a byte too few": kept[1:], "a byte too many": append(bytes.Clone(kept), 0), "a blind that is 0": make([]byte, voprf.TokenRequestSize)} {
		if _, err := voprf.ReadTokenRequest(round, b); !errors.Is(err, voprf.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestBatchIsNotTooLarge: to find pairs whose factors cancel false ones out costs 2^128
// steps at least (Wagner's algorithm with a list for each pair).
func TestBatchIsNotTooLarge(t *testing.T) {
	if steps := 256 / bits.Len(voprf.MaxBatch); steps < 128 {
		t.Errorf("a false proof of %d pairs costs 2^%d steps", voprf.MaxBatch, steps)
	}
}

func TestRoundKeys(t *testing.T) {
	var l voprf.RoundKeys
	for range 3 {
		l.Keys = append(l.Keys, voprf.GenerateKey().PublicKey())
	}
	l.First, l.Length = 40, 60
	wire := l.Append(nil)
	again, err := voprf.ReadRoundKeys(wire)
	if err != nil || again.Digest() != l.Digest() {
		t.Fatal(err)
	}
	for round, want := range map[uint64]bool{39: false, 40: true, 42: true, 43: false, 0: false, math.MaxUint64: false} {
		if k, ok := again.Of(round); ok != want || ok && k != l.Keys[round-40] {
			t.Errorf("round %d: %v", round, ok)
		}
	}
	moved := l
	moved.First++
	if moved.Digest() == l.Digest() {
		t.Error("keys of other rounds have the same digest")
	}
	longer := l
	longer.Length++
	if longer.Digest() == l.Digest() || again.Length != l.Length {
		t.Error("keys of longer rounds have the same digest")
	}
	late := bytes.Clone(wire)
	copy(late, bytes.Repeat([]byte{0xff}, 8))
	bad := bytes.Clone(wire)
	bad[18] = 4
	twice := bytes.Clone(wire)
	copy(twice[18+66:], wire[18:18+33])
	for what, b := range map[string][]byte{
		"one key for two rounds": twice,
		"nothing":                nil, "no keys": make([]byte, 18), "a key too few": wire[:len(wire)-33], "a byte too many": append(bytes.Clone(wire), 0),
		"after the last round": late, "no point": bad,
	} {
		if _, err := voprf.ReadRoundKeys(b); !errors.Is(err, voprf.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestHostileMessages: identity, points off the curve and scalars out of range.
func TestHostileMessages(t *testing.T) {
	key := voprf.GenerateKey()
	request := voprf.Blind([]byte("one"), []byte("two")).Request()
	r, e := request.Append(nil), key.Evaluate(request).Append(nil)
	points := map[string][]byte{"identity": make([]byte, 33), "off the curve": append(append([]byte{2}, make([]byte, 31)...), 1),
		"out of range": append([]byte{3}, bytes.Repeat([]byte{0xff}, 32)...)}
	order := unhex(t, "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551")
	refuse := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, voprf.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	with := func(b []byte, at int, s []byte) []byte { return slices.Concat(b[:at], s, b[at+len(s):]) }
	for what, p := range points {
		for _, at := range []int{2, 35} {
			_, err := voprf.ReadRequest(with(r, at, p))
			refuse("request: "+what, err)
			_, err = voprf.ReadEvaluation(with(e, at, p))
			refuse("evaluation: "+what, err)
		}
		_, err := voprf.ReadPublicKey(p)
		refuse("public key: "+what, err)
	}
	for _, s := range [][]byte{make([]byte, 32), order, bytes.Repeat([]byte{0xff}, 32)} {
		for _, at := range []int{68, 100} {
			_, err := voprf.ReadEvaluation(with(e, at, s))
			refuse("evaluation", err)
		}
		_, err := voprf.ReadKey(s)
		refuse("private key", err)
	}
	for _, b := range [][]byte{nil, {0}, {0, 0}, {0xff, 0xff}, r[:len(r)-1], append(bytes.Clone(r), 0), with(r, 0, []byte{0, 3}), with(r, 0, []byte{0, 1})} {
		_, err := voprf.ReadRequest(b)
		refuse(fmt.Sprintf("%x", b), err)
		_, err = voprf.ReadEvaluation(b)
		refuse(fmt.Sprintf("%x", b), err)
	}
	_, err := voprf.ReadRequest(append(binary.BigEndian.AppendUint16(nil, voprf.MaxBatch+1), bytes.Repeat(r[2:35], voprf.MaxBatch+1)...))
	refuse("a request of more than a batch", err)
	_, err = voprf.ReadToken(make([]byte, 63))
	refuse("token", err)
}

func FuzzMessages(f *testing.F) {
	key := voprf.GenerateKey()
	b := voprf.Blind([]byte("one"), []byte("two"))
	l := voprf.RoundKeys{First: 3, Keys: []voprf.PublicKey{key.PublicKey()}}
	seeds := [][]byte{b.Request().Append(nil), key.Evaluate(b.Request()).Append(nil), key.Append(nil), key.PublicKey().Append(nil), l.Append(nil),
		make([]byte, voprf.TokenSize), voprf.NewTokenRequest(voprf.Round{}).Append(nil)}
	type message interface{ Append([]byte) []byte }
	all := []func([]byte) (message, error){
		func(b []byte) (message, error) { return voprf.ReadRequest(b) },
		func(b []byte) (message, error) { return voprf.ReadEvaluation(b) },
		func(b []byte) (message, error) { return voprf.ReadKey(b) },
		func(b []byte) (message, error) { return voprf.ReadPublicKey(b) },
		func(b []byte) (message, error) { return voprf.ReadRoundKeys(b) },
		func(b []byte) (message, error) { return voprf.ReadToken(b) },
		func(b []byte) (message, error) { return voprf.ReadTokenRequest(voprf.Round{}, b) },
	}
	if len(seeds) != len(all) {
		f.Fatalf("%d seeds for %d messages", len(seeds), len(all))
	}
	for i, b := range seeds {
		if _, err := all[i](b); err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, read := range all {
			if m, err := read(b); err == nil && !bytes.Equal(m.Append(nil), b) {
				t.Errorf("%x is written as %x", b, m.Append(nil))
			} else if err != nil && !errors.Is(err, voprf.ErrMalformed) {
				t.Errorf("%x: %v", b, err)
			}
		}
	})
}
