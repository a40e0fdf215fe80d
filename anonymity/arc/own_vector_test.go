package arc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

var writeVectors = flag.Bool("write-vectors", false, "write testdata/arc-1.json anew")

// ownVectors are of the form of a presentation that is ours. All that is random comes of
// ChaCha8 with the SHA-256 of the seed, 48 bytes for a scalar, in the order of the fields:
// key, request, response, presentation.
type ownVectors struct {
	Seed                string
	Role                Role
	Deployment, Task    hexBytes
	Epoch, Round        uint64
	AAD, Payload        hexBytes
	PrivateKey, KeyID   hexBytes
	RequestContext      hexBytes
	PresentationContext hexBytes
	Binding             hexBytes
	Request, Response   hexBytes
	Credential          hexBytes
	Presentation, Tag   hexBytes
	// Refused are presentations for the same context and binding, with the step at which
	// each is refused: a field that is malformed, or an equation that does not hold. The
	// equations are those of m1Commit, V and tag.
	Refused []refusedVector
}

type refusedVector struct {
	What         string
	Presentation hexBytes
	Field        string // of the Refusal
	Equation     string // if the field is "proof": the first that does not hold
}

type hexBytes []byte

func (h hexBytes) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h)), nil }
func (h *hexBytes) UnmarshalText(b []byte) (err error) {
	*h, err = hex.DecodeString(string(b))
	return err
}

var equations = []string{"m1Commit", "V", "tag"}

// makeOwnVectors makes the vectors of a seed.
func makeOwnVectors(t *testing.T, seed string) *ownVectors {
	t.Helper()
	stream := rand.NewChaCha8(sha256.Sum256([]byte(seed)))
	random := derand.New(stream)
	deployment, task := sha256.Sum256([]byte(seed+": deployment")), sha256.Sum256([]byte(seed+": task"))
	v := &ownVectors{Seed: seed, Role: Helper, Deployment: deployment[:], Task: task[:], Epoch: 2945, Round: 490868,
		AAD: []byte("the bytes of InputShareAad"), Payload: []byte("the VDAF's input share")}
	key := GenerateKeyDerandomized(random)
	id := key.PublicKey().ID()
	requestContext := NewRequestContext(v.Role, deployment, v.Epoch, id)
	context := NewPresentationContext(v.Role, task, v.Round, id)
	binding := Bind(v.Role, v.AAD, v.Payload)
	v.PrivateKey, v.KeyID, v.RequestContext, v.PresentationContext, v.Binding = key.Append(nil), id[:], []byte(requestContext), []byte(context), binding[:]

	pending := NewPendingDerandomized(requestContext, random)
	response, err := key.RespondDerandomized(pending.Request(), random)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pending.Finalize(key.PublicKey(), response)
	if err != nil {
		t.Fatal(err)
	}
	base := NewTagBase(context)
	p := c.PresentDerandomized(base, binding, random)
	tag := p.Tag()
	v.Request, v.Response, v.Credential = pending.Request().Append(nil), response.Append(nil), c.Append(nil)
	v.Presentation, v.Tag = p.Append(nil), tag[:]

	malformed := func(what, field string, at int, with []byte) {
		b := bytes.Clone(v.Presentation)
		copy(b[at:], with)
		v.Refused = append(v.Refused, refusedVector{What: what, Presentation: b, Field: field})
	}
	wrong := func(what, equation string, p *Presentation) {
		v.Refused = append(v.Refused, refusedVector{what, p.Append(nil), "proof", equation})
	}
	malformed("version 0", "version", 0, []byte{0})
	malformed("version 2", "version", 0, []byte{2})
	identity, beyond, n := make([]byte, 33), append([]byte{2}, bytes.Repeat([]byte{0xff}, 32)...), make([]byte, 32)
	off := append(append([]byte{2}, make([]byte, 31)...), 1)
	p256.Scalar{}.Sub(p256.ScalarOf(1)).Append(n[:0])
	n[31]++ // n-1 ends in 0x50
	for i, field := range []string{"U", "UPrimeCommit", "m1Commit", "tag", "R1", "R2", "R3"} {
		malformed("the identity for "+field, field, 1+33*i, identity)
		malformed("a point off the curve for "+field, field, 1+33*i, off)
		malformed("a coordinate out of range for "+field, field, 1+33*i, beyond)
	}
	for i, field := range []string{"response for m1", "response for z", "response for -r"} {
		malformed("0 for the "+field, field, 232+32*i, make([]byte, 32))
		malformed("the order for the "+field, field, 232+32*i, n)
	}
	v.Refused = append(v.Refused, refusedVector{What: "a byte too few", Presentation: v.Presentation[:PresentationSize-1], Field: "length"},
		refusedVector{What: "a byte too many", Presentation: append(bytes.Clone(v.Presentation), 0), Field: "length"})

	// Presentations of the credential for something else.
	wrong("made for the next round", "m1Commit", c.PresentDerandomized(NewTagBase(NewPresentationContext(v.Role, task, v.Round+1, id)), binding, random))
	wrong("made for another payload", "m1Commit", c.PresentDerandomized(base, Bind(v.Role, v.AAD, []byte("another")), random))
	wrong("made for another AAD", "m1Commit", c.PresentDerandomized(base, Bind(v.Role, []byte("another"), v.Payload), random))
	other := GenerateKeyDerandomized(random)
	wrong("of another issuer", "m1Commit", issueTo(t, other, requestContext, random).PresentDerandomized(base, binding, random))

	// Provers who know the issuer's key, and so the V with which the verifier hashes, and
	// lie in one place each. Their commitments and challenge are those of an honest proof.
	for i, lie := range []func(s *p256.Scalar, e []p256.Element){
		func(s *p256.Scalar, e []p256.Element) { e[numberM1Commit] = p256.HashToGroup(nil, "a lie") },
		func(s *p256.Scalar, e []p256.Element) { e[numberUPrimeCommit] = p256.HashToGroup(nil, "a lie") },
		func(s *p256.Scalar, e []p256.Element) { e[numberTag] = p256.HashToGroup(nil, "a lie") },
	} {
		wrong("with a "+[]string{"m1Commit", "UPrimeCommit", "tag"}[i]+" of nothing", equations[i], lieAbout(key, c, base, requestContext, binding, random, lie))
	}
	return v
}

func issueTo(t *testing.T, key *PrivateKey, c RequestContext, random derand.Rand) *Credential {
	t.Helper()
	pending := NewPendingDerandomized(c, random)
	response, err := key.RespondDerandomized(pending.Request(), random)
	if err != nil {
		t.Fatal(err)
	}
	credential, err := pending.Finalize(key.PublicKey(), response)
	if err != nil {
		t.Fatal(err)
	}
	return credential
}

// lieAbout makes a presentation, changes elements of it, and proves the false statement
// that comes of it as well as it can be, with the verifier's V.
func lieAbout(key *PrivateKey, c *Credential, base *TagBase, rc RequestContext, b Binding, random derand.Rand, lie func(*p256.Scalar, []p256.Element)) *Presentation {
	rand := random.Reader()
	a, r, z := p256.RandomScalar(rand), p256.RandomScalar(rand), p256.RandomScalar(rand)
	u := p256.Mul(a, c.u.Point())
	p := &Presentation{u: affine(u), uPrimeCommit: affine(p256.Mul(a, c.uPrime.Point()).Add(p256.MulBase(r))),
		m1Commit: affine(p256.Mul(c.m1, u).Add(mulH(z))), tag: affine(p256.Mul(c.m1.Invert(), base.t.Point()))}
	e := p.elements(&p.u, &key.public.x1, base)
	witness := []p256.Scalar{c.m1, z, r.Neg()}
	lie(&witness[0], e)
	p.m1Commit, p.uPrimeCommit, p.tag = e[numberM1Commit], e[numberUPrimeCommit], e[numberTag]
	e, err := key.Verifier(rc).elements(Item{Base: base, Presentation: p})
	if err != nil {
		panic(err)
	}
	p.proof = *presentationStatement.Prove(rand, presentationSession(b), e, generators(), witness)
	return p
}

// TestOwnVectors: the code makes the vectors in testdata of their seed, takes the
// presentation, and refuses each of the others at the step that the vector names.
func TestOwnVectors(t *testing.T) {
	const name = "testdata/arc-1.json"
	made := makeOwnVectors(t, "starling arc-1 test vectors")
	b, err := json.MarshalIndent(made, "", " ")
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
		t.Fatalf("%s has other bytes; if a change is meant, go test ./anonymity/arc -run TestOwnVectors -write-vectors", name)
	}
	v := new(ownVectors)
	if err := json.Unmarshal(kept, v); err != nil {
		t.Fatal(err)
	}
	key, err := ReadPrivateKey(v.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	verifier, base := key.Verifier(RequestContext(v.RequestContext)), NewTagBase(PresentationContext(v.PresentationContext))
	verify := func(b []byte) (equation int, err error) {
		p, err := ReadPresentation(b)
		if err != nil {
			return -1, err
		}
		item := Item{base, Binding(v.Binding), p}
		e, err := verifier.elements(item)
		if err != nil {
			return -1, err
		}
		return presentationStatement.VerifyBatchable(presentationSession(item.Binding), e, generators(), &p.proof), verifier.Verify(item)
	}
	if _, err := verify(v.Presentation); err != nil {
		t.Fatal(err)
	}
	if len(v.Refused) < 30 {
		t.Fatalf("only %d vectors are to be refused", len(v.Refused))
	}
	for _, r := range v.Refused {
		equation, err := verify(r.Presentation)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Field != r.Field {
			t.Errorf("%s: %v, and not a refusal of %s", r.What, err, r.Field)
		}
		if r.Field == "proof" && (equation < 0 || equations[equation] != r.Equation) {
			t.Errorf("%s: equation %d does not hold, and not that of %s", r.What, equation, r.Equation)
		}
	}
}

// TestBlindedByNothing: a device that blinds with 0 shows the MAC itself, so that V is the
// identity. It is refused there, before anything is hashed.
func TestBlindedByNothing(t *testing.T) {
	random := derand.New(rand.NewChaCha8(sha256.Sum256([]byte("blinded by nothing"))))
	key := GenerateKeyDerandomized(random)
	context := NewRequestContext(Helper, [32]byte{}, 1, key.PublicKey().ID())
	c, base := issueTo(t, key, context, random), NewTagBase([]byte("a context"))
	b := Bind(Helper, []byte("aad"), []byte("share"))
	p := c.PresentDerandomized(base, b, random)
	p.u, p.uPrimeCommit, p.m1Commit = c.u, c.uPrime, affine(p256.Mul(c.m1, c.u.Point()))
	verifier := key.Verifier(context)
	item := Item{base, b, p}
	for what, err := range map[string]error{"alone": verifier.Verify(item), "in a batch": verifier.VerifyBatch([]Item{item})[0]} {
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Field != "V" || !errors.Is(err, ErrProof) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
