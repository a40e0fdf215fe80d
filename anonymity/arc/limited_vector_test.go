package arc

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// limitedVectors are of presentations under a limit, as hop 2 of a shuffler takes them.
// Randomness is that of ownVectors.
type limitedVectors struct {
	Seed                string
	Role                Role
	Limit               int
	Bases               []int
	Deployment, Recipe  hexBytes
	Epoch, Round        uint64
	AAD, Payload        hexBytes
	PrivateKey, KeyID   hexBytes
	RequestContext      hexBytes
	PresentationContext hexBytes
	Binding             hexBytes
	Credential          hexBytes
	Presentations       []limitedVector
	// State is what a device keeps that has made as many presentations as Taken says.
	Taken int
	State hexBytes
	// Malformed are the first presentation with some bytes at a place exchanged, and the field
	// at which each is refused.
	Malformed []malformedVector
	// Refused are presentations for the same context, binding and limit that are well formed,
	// with the first check that fails: V, an equation, or the sum of D.
	Refused []refusedVector
}

type limitedVector struct {
	Number            int
	Presentation, Tag hexBytes
}

type malformedVector struct {
	What  string
	At    int
	With  hexBytes
	Field string
}

// limitedChecks names the equations of a form, and its sum.
func limitedChecks(f *limitedForm) []string {
	names := []string{"m1Commit", "V", "nonceCommit", "tag"}
	for i := range f.bases {
		names = append(names, fmt.Sprintf("D[%d] opens", i), fmt.Sprintf("D[%d] is of a bit", i))
	}
	return append(names, "sum of D")
}

// A limitedLie is what a presentation is made of, for a prover that knows the verifier's
// key to change before it proves. It opens commitments to what the draft calls by these
// names.
type limitedLie struct {
	p                    LimitedPresentation
	m1, z, minusR        p256.Scalar
	nonce, nonceBlinding p256.Scalar
	b, s, s2             []p256.Scalar
}

func commitTo(k, blinding p256.Scalar) p256.Element { return affine(mulG(k).Add(mulH(blinding))) }

// lieLimited makes what an honest device makes, but for a number that need not be below the
// limit, changes some of it, and proves what comes of it as well as it can be.
func lieLimited(key *PrivateKey, c *Credential, t *TagBase, rc RequestContext, f *limitedForm, session []byte, random derand.Rand, number int, lie func(*limitedLie)) *LimitedPresentation {
	rand := random.Reader()
	draw := func() p256.Scalar { return p256.RandomScalar(rand) }
	a, r, z := draw(), draw(), draw()
	l := &limitedLie{m1: c.m1, z: z, minusR: r.Neg(), nonce: p256.ScalarOf(uint64(number)), nonceBlinding: draw()}
	u := p256.Mul(a, c.u.Point())
	l.p = LimitedPresentation{limit: f.limit, u: affine(u), uPrimeCommit: affine(p256.Mul(a, c.uPrime.Point()).Add(mulG(r))),
		m1Commit: affine(p256.Mul(c.m1, u).Add(mulH(z))), nonceCommit: commitTo(l.nonce, l.nonceBlinding),
		tag: affine(p256.Mul(c.m1.Add(l.nonce).Invert(), t.t.Point()))}
	sum := p256.Scalar{}
	for i, base := range f.bases {
		bit := 0
		if number >= base {
			bit, number = 1, number-base
		}
		s := draw()
		if i == len(f.bases)-1 {
			s = l.nonceBlinding.Sub(sum).Mul(p256.ScalarOf(uint64(base)).Invert())
		}
		sum = sum.Add(s.Mul(p256.ScalarOf(uint64(base))))
		l.b, l.s, l.s2 = append(l.b, p256.ScalarOf(uint64(bit))), append(l.s, s), append(l.s2, s.Mul(p256.ScalarOf(uint64(1-bit))))
		l.p.bits = append(l.p.bits, commitTo(l.b[i], s))
	}
	lie(l)
	elements, err := key.Verifier(rc).limitedElements(f, t, &l.p)
	if err != nil {
		panic(err)
	}
	witness := append([]p256.Scalar{l.m1, l.z, l.minusR, l.nonce, l.nonceBlinding}, append(l.b, append(l.s, l.s2...)...)...)
	l.p.proof = *f.statement.Prove(rand, session, elements, generators(), witness)
	return &l.p
}

// recommit makes D[i] anew, of what is to be opened.
func (l *limitedLie) recommit(i int) { l.p.bits[i] = commitTo(l.b[i], l.s[i]) }

func makeLimitedVectors(t *testing.T, seed string) *limitedVectors {
	t.Helper()
	stream := rand.NewChaCha8(sha256.Sum256([]byte(seed)))
	random := derand.New(stream)
	deployment, recipe := sha256.Sum256([]byte(seed+": deployment")), sha256.Sum256([]byte(seed+": recipe"))
	const limit = 10
	f := newLimitedForm(limit)
	v := &limitedVectors{Seed: seed, Role: Hop2, Limit: limit, Bases: f.bases, Deployment: deployment[:], Recipe: recipe[:], Epoch: 2945, Round: 490868,
		AAD: []byte("what hop 2's layer is sealed under"), Payload: []byte("the onion for the analyzer")}
	key := GenerateKeyDerandomized(random)
	id := key.PublicKey().ID()
	requestContext := NewRequestContext(v.Role, deployment, v.Epoch, id)
	context := NewPresentationContext(v.Role, recipe, v.Round, id)
	binding := Bind(v.Role, v.AAD, v.Payload)
	c, base := issueTo(t, key, requestContext, random), NewTagBase(context)
	v.PrivateKey, v.KeyID, v.RequestContext, v.PresentationContext, v.Binding = key.Append(nil), id[:], []byte(requestContext), []byte(context), binding[:]
	v.Credential = c.Append(nil)
	for _, number := range []int{0, 1, 5, 9} {
		p := c.PresentLimitedDerandomized(base, binding, number, limit, random)
		tag := p.Tag()
		v.Presentations = append(v.Presentations, limitedVector{number, p.Append(nil), tag[:]})
	}
	s := c.NewPresentationState(context, limit)
	s.next, v.Taken = 6, 6
	v.State = s.Append(nil)

	malformed := func(what, field string, at int, with []byte) {
		v.Malformed = append(v.Malformed, malformedVector{what, at, with, field})
	}
	identity, beyond, n := make([]byte, 33), append([]byte{2}, bytes.Repeat([]byte{0xff}, 32)...), make([]byte, 32)
	off := append(append([]byte{2}, make([]byte, 31)...), 1)
	p256.Scalar{}.Sub(p256.ScalarOf(1)).Append(n[:0])
	n[31]++
	for version := range byte(4) {
		if version != limitedVersion {
			malformed(fmt.Sprint("version ", version), "version", 0, []byte{version})
		}
	}
	fields := []string{"U", "UPrimeCommit", "m1Commit", "tag", "nonceCommit", "D", "D", "D", "D"}
	at := 1
	for i := range len(fields) + f.statement.Equations() {
		field := "R"
		if i < len(fields) {
			field = fields[i]
		}
		malformed("the identity for "+field, field, at, identity)
		malformed("a point off the curve for "+field, field, at, off)
		malformed("a coordinate out of range for "+field, field, at, beyond)
		at += 33
	}
	for range f.statement.Scalars() {
		malformed("0 for a response", "response", at, make([]byte, 32))
		malformed("the order for a response", "response", at, n)
		at += 32
	}

	wrong := func(what, check string, p *LimitedPresentation) {
		v.Refused = append(v.Refused, refusedVector{what, p.Append(nil), "proof", check})
	}
	present := func(base *TagBase, b Binding) *LimitedPresentation {
		return c.PresentLimitedDerandomized(base, b, 3, limit, random)
	}
	wrong("made for the next round", "m1Commit", present(NewTagBase(NewPresentationContext(v.Role, recipe, v.Round+1, id)), binding))
	wrong("made for hop 1", "m1Commit", present(NewTagBase(NewPresentationContext(Hop1, recipe, v.Round, id)), binding))
	wrong("bound for hop 1", "m1Commit", present(base, Bind(Hop1, v.AAD, v.Payload)))
	wrong("bound to another payload", "m1Commit", present(base, Bind(v.Role, v.AAD, []byte("another"))))
	wrong("bound to another AAD", "m1Commit", present(base, Bind(v.Role, []byte("another"), v.Payload)))
	wrong("made for a limit of 16, of as many bits", "m1Commit", c.PresentLimitedDerandomized(base, binding, 3, 16, random))
	other := GenerateKeyDerandomized(random)
	wrong("of another issuer", "m1Commit", issueTo(t, other, requestContext, random).PresentLimitedDerandomized(base, binding, 3, limit, random))
	wrong("bound to nothing, as the draft has it", "m1Commit", &c.PresentDraftDerandomized(base, 3, limit, random).p)

	session := limitedSession(limit, binding)
	lied := func(what, check string, number int, lie func(*limitedLie)) {
		wrong(what, check, lieLimited(key, c, base, requestContext, f, session, random, number, lie))
	}
	lied("number 10, its bits those of 9", "sum of D", 10, func(*limitedLie) {})
	lied("number 10, a bit of it 2", "D[3] is of a bit", 10, func(l *limitedLie) {
		l.b[3] = p256.ScalarOf(2)
		l.s2[3] = l.s[3].Neg() // (1-b) s, as it is for a bit
		l.recommit(3)
	})
	lied("number -1, a bit of it -1", "D[3] is of a bit", 0, func(l *limitedLie) {
		l.b[3] = p256.ScalarOf(1).Neg()
		l.s2[3] = l.s[3].Add(l.s[3])
		l.recommit(3)
		l.nonce = l.b[3]
		l.p.nonceCommit = commitTo(l.nonce, l.nonceBlinding)
		l.p.tag = affine(p256.Mul(l.m1.Add(l.nonce).Invert(), base.t.Point()))
	})
	lied("number 12, its commitments those of a limit of 16", "sum of D", 0, func(l *limitedLie) {
		l.nonce, l.nonceBlinding = p256.ScalarOf(12), p256.Scalar{}
		for i, b := range []uint64{1, 1, 0, 0} {
			l.b[i], l.s2[i] = p256.ScalarOf(b), p256.ScalarOf(1-b).Mul(l.s[i])
			l.nonceBlinding = l.nonceBlinding.Add(l.s[i].Mul(p256.ScalarOf(8 >> i)))
			l.recommit(i)
		}
		l.p.nonceCommit = commitTo(l.nonce, l.nonceBlinding)
		l.p.tag = affine(p256.Mul(l.m1.Add(l.nonce).Invert(), base.t.Point()))
	})
	lied("bits in another order", "sum of D", 5, func(l *limitedLie) {
		for _, of := range [][]p256.Scalar{l.b, l.s, l.s2} {
			of[0], of[3] = of[3], of[0]
		}
		l.recommit(0)
		l.recommit(3)
	})
	lied("a bit more than the number has", "sum of D", 4, func(l *limitedLie) {
		l.b[3], l.s2[3] = p256.ScalarOf(1), p256.Scalar{}
		l.recommit(3)
	})
	lied("a D that opens to nothing", "D[1] opens", 3, func(l *limitedLie) { l.p.bits[1] = p256.HashToGroup(nil, "a lie") })
	lied("a nonceCommit that opens to nothing", "nonceCommit", 3, func(l *limitedLie) { l.p.nonceCommit = p256.HashToGroup(nil, "a lie") })
	lied("the tag of another number", "tag", 3, func(l *limitedLie) {
		l.p.tag = affine(p256.Mul(l.m1.Add(p256.ScalarOf(4)).Invert(), base.t.Point()))
	})
	lied("the tag of a number beyond the limit", "tag", 3, func(l *limitedLie) {
		l.p.tag = affine(p256.Mul(l.m1.Add(p256.ScalarOf(limit)).Invert(), base.t.Point()))
	})
	lied("an m1Commit of nothing", "m1Commit", 3, func(l *limitedLie) { l.p.m1Commit = p256.HashToGroup(nil, "a lie") })
	lied("a UPrimeCommit of nothing", "V", 3, func(l *limitedLie) { l.p.uPrimeCommit = p256.HashToGroup(nil, "a lie") })
	return v
}

// TestLimitedVectors: the code makes the vectors in testdata of their seed, takes the
// presentations, and refuses each of the others at the step that the vector names.
func TestLimitedVectors(t *testing.T) {
	const name = "testdata/arc-limited.json"
	b, err := json.MarshalIndent(makeLimitedVectors(t, "starling arc limited test vectors"), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	if *writeVectors {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, b) {
		t.Fatalf("%s has other bytes; if a change is meant, go test ./anonymity/arc -run TestLimitedVectors -write-vectors", name)
	}
	v := new(limitedVectors)
	if err := json.Unmarshal(kept, v); err != nil {
		t.Fatal(err)
	}
	key, err := ReadPrivateKey(v.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadCredential(v.Credential)
	if err != nil {
		t.Fatal(err)
	}
	verifier, base, f := key.Verifier(RequestContext(v.RequestContext)), NewTagBase(PresentationContext(v.PresentationContext)), newLimitedForm(v.Limit)
	checks := limitedChecks(f)
	verify := func(b []byte) (check string, err error) {
		p, err := ReadLimitedPresentation(b, v.Limit)
		if err != nil {
			return "", err
		}
		e, err := verifier.limitedElements(f, base, p)
		if err != nil {
			return "", err
		}
		proof := p.proof
		if n := f.statement.VerifyBatchable(limitedSession(v.Limit, Binding(v.Binding)), e, generators(), &proof); n >= 0 {
			check = checks[n]
		}
		return check, verifier.VerifyLimited(LimitedItem{base, Binding(v.Binding), p}, v.Limit)
	}
	var good []byte
	for _, x := range v.Presentations {
		if check, err := verify(x.Presentation); check != "" || err != nil {
			t.Fatalf("number %d: %s, %v", x.Number, check, err)
		}
		good = x.Presentation
	}
	s, err := c.ReadPresentationState(v.State, PresentationContext(v.PresentationContext), v.Limit)
	if err != nil || s.Left() != v.Limit-v.Taken {
		t.Errorf("the state: %v", err)
	}
	field := func(what string, err error, field string) {
		t.Helper()
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Field != field {
			t.Errorf("%s: %v, and not a refusal of %s", what, err, field)
		}
	}
	for _, m := range v.Malformed {
		b := bytes.Clone(good)
		copy(b[m.At:], m.With)
		_, err := verify(b)
		field(m.What, err, m.Field)
	}
	first := map[string]bool{}
	for _, r := range v.Refused {
		check, err := verify(r.Presentation)
		field(r.What, err, r.Field)
		if check != r.Equation {
			t.Errorf("%s: %q does not hold, and not %q", r.What, check, r.Equation)
		}
		first[check] = true
	}
	if len(v.Malformed) != 3+3*21+2*17 || len(first) != 7 {
		t.Errorf("%d are malformed, and %d checks fail", len(v.Malformed), len(first))
	}
}

// TestLimitedBlindedByNothing: as without a limit, a device that shows the MAC itself is
// refused at V.
func TestLimitedBlindedByNothing(t *testing.T) {
	random := derand.New(rand.NewChaCha8(sha256.Sum256([]byte("blinded by nothing"))))
	key := GenerateKeyDerandomized(random)
	context := NewRequestContext(Hop2, [32]byte{}, 1, key.PublicKey().ID())
	c, base := issueTo(t, key, context, random), NewTagBase([]byte("a context"))
	b := Bind(Hop2, []byte("aad"), []byte("onion"))
	p := c.PresentLimitedDerandomized(base, b, 1, 3, random)
	p.u, p.uPrimeCommit, p.m1Commit = c.u, c.uPrime, affine(p256.Mul(c.m1, c.u.Point()))
	var refusal *Refusal
	err := key.Verifier(context).VerifyLimited(LimitedItem{base, b, p}, 3)
	if !errors.As(err, &refusal) || refusal.Field != "V" || !errors.Is(err, ErrProof) {
		t.Error(err)
	}
}
