package arc_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/arc/arctest"
)

// seeded is a stream of bytes of a seed, for the twins of arctest.
func seeded(seed string) io.Reader { return rand.NewChaCha8(sha256.Sum256([]byte(seed))) }

// A party is an issuer and what is verified with its key.
type party struct {
	key      *arc.PrivateKey
	context  arc.RequestContext
	verifier *arc.Verifier
}

var deployment = sha256.Sum256([]byte("a deployment"))

func newParty(role arc.Role, epoch uint64, seed string) *party {
	key := arctest.GenerateKey(seeded(seed))
	c := arc.NewRequestContext(role, deployment, epoch, key.PublicKey().ID())
	return &party{key, c, key.Verifier(c)}
}

// issue has a device get a credential, over the wire.
func (p *party) issue(t testing.TB, seed string) *arc.Credential {
	t.Helper()
	rand := seeded(seed)
	pending := arctest.NewPending(p.context, rand)
	request, err := arc.ReadCredentialRequest(pending.Request().Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	response, err := arctest.Respond(p.key, request, rand)
	if err != nil {
		t.Fatal(err)
	}
	if response, err = arc.ReadCredentialResponse(response.Append(nil)); err != nil {
		t.Fatal(err)
	}
	c, err := pending.Finalize(p.key.PublicKey(), response)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// base is that of a round of one task.
func (p *party) base(round uint64) *arc.TagBase {
	return arc.NewTagBase(arc.NewPresentationContext(arc.Helper, sha256.Sum256([]byte("a task")), round, p.key.PublicKey().ID()))
}

// present makes a presentation for a report, and reads it from the wire.
func present(t testing.TB, c *arc.Credential, base *arc.TagBase, b arc.Binding, seed string) *arc.Presentation {
	t.Helper()
	p, err := arc.ReadPresentation(arctest.Present(c, base, b, seeded(seed)).Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func report(n int) arc.Binding {
	return arc.Bind(arc.Helper, fmt.Appendf(nil, "aad %d", n), []byte("share"))
}

// refused checks that an error is a refusal in a field.
func refused(t *testing.T, what string, err error, field string, kind error) {
	t.Helper()
	var r *arc.Refusal
	if !errors.As(err, &r) || r.Field != field || !errors.Is(err, kind) {
		t.Errorf("%s: %v, not a refusal of %s for %q", what, err, field, kind)
	}
}

func TestOneTagForEachContext(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	tags := make(map[arc.Tag]string)
	for device := range 3 {
		c := p.issue(t, fmt.Sprint("device", device))
		for round := range uint64(3) {
			base := p.base(round)
			var first arc.Tag
			for try := range 2 {
				what := fmt.Sprintf("device %d in round %d, presentation %d", device, round, try)
				x := present(t, c, base, report(10*device+try), what)
				if err := p.verifier.Verify(arc.Item{Base: base, Binding: report(10*device + try), Presentation: x}); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if try == 0 {
					first = x.Tag()
					if other, seen := tags[first]; seen {
						t.Errorf("%s has the tag of %s", what, other)
					}
					tags[first] = what
				} else if x.Tag() != first {
					t.Errorf("%s has another tag", what)
				}
			}
		}
	}
}

// TestForeignPresentations: a presentation that is moved, replayed elsewhere or made with
// other keys does not hold, alone or in a batch.
func TestForeignPresentations(t *testing.T) {
	p, other := newParty(arc.Helper, 7, "issuer"), newParty(arc.Leader, 7, "the other issuer")
	nextEpoch := p.key.Verifier(arc.NewRequestContext(arc.Helper, deployment, 8, p.key.PublicKey().ID()))
	c, foreign := p.issue(t, "device"), other.issue(t, "device")
	base, id := p.base(3), report(1)
	x := present(t, c, base, id, "a presentation")
	of := func(base *arc.TagBase, b arc.Binding, x *arc.Presentation) arc.Item {
		return arc.Item{Base: base, Binding: b, Presentation: x}
	}
	if err := p.verifier.Verify(of(base, id, x)); err != nil {
		t.Fatal(err)
	}
	for what, v := range map[string]struct {
		verifier *arc.Verifier
		item     arc.Item
	}{
		"another report":    {p.verifier, of(base, report(2), x)},
		"another share":     {p.verifier, of(base, arc.Bind(arc.Helper, []byte("aad 1"), []byte("Share")), x)},
		"another role":      {p.verifier, of(base, arc.Bind(arc.Leader, []byte("aad 1"), []byte("share")), x)},
		"another round":     {p.verifier, of(p.base(4), id, x)},
		"another epoch":     {nextEpoch, of(base, id, x)},
		"another verifier":  {other.verifier, of(base, id, x)},
		"foreign issuer's":  {p.verifier, of(base, id, present(t, foreign, base, id, "another"))},
		"other round's tag": {p.verifier, of(base, id, present(t, c, p.base(4), id, "another"))},
	} {
		refused(t, what, v.verifier.Verify(v.item), "proof", arc.ErrProof)
		errs := v.verifier.VerifyBatch([]arc.Item{v.item, v.item})
		refused(t, what+", in a batch", errs[0], "proof", arc.ErrProof)
		refused(t, what+", in a batch", errs[1], "proof", arc.ErrProof)
	}
}

// TestSwappedFields: no field of a presentation can stand for another, nor be taken of
// another presentation of the same credential.
func TestSwappedFields(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	c, base, id := p.issue(t, "device"), p.base(3), report(1)
	a := present(t, c, base, id, "one").Append(nil)
	b := present(t, c, base, id, "two").Append(nil)
	fields := [][2]int{}
	for i := range 7 {
		fields = append(fields, [2]int{1 + 33*i, 34 + 33*i})
	}
	for i := range 3 {
		fields = append(fields, [2]int{232 + 32*i, 264 + 32*i})
	}
	verify := func(wire []byte) error {
		x, err := arc.ReadPresentation(wire)
		if err != nil {
			return err
		}
		return p.verifier.Verify(arc.Item{Base: base, Binding: id, Presentation: x})
	}
	for i, f := range fields {
		mixed := slices.Concat(a[:f[0]], b[f[0]:f[1]], a[f[1]:])
		if i == 3 { // the tag is the same in both
			if err := verify(mixed); err != nil {
				t.Errorf("the same tag of another presentation: %v", err)
			}
			continue
		}
		refused(t, fmt.Sprintf("field %d of another presentation", i), verify(mixed), "proof", arc.ErrProof)
		for j, g := range fields[:i] {
			if f[1]-f[0] != g[1]-g[0] {
				continue
			}
			swapped := bytes.Clone(a)
			copy(swapped[f[0]:f[1]], a[g[0]:g[1]])
			copy(swapped[g[0]:g[1]], a[f[0]:f[1]])
			refused(t, fmt.Sprintf("fields %d and %d swapped", i, j), verify(swapped), "proof", arc.ErrProof)
		}
	}
}

// hostile are encodings of no element, and of no scalar.
var (
	hostileElements = map[string][]byte{
		"identity":      make([]byte, 33),
		"off the curve": append(append([]byte{2}, make([]byte, 31)...), 1),
		"out of range":  append([]byte{3}, bytes.Repeat([]byte{0xff}, 32)...),
		"uncompressed":  append([]byte{4}, bytes.Repeat([]byte{1}, 32)...),
	}
	hostileScalars = map[string][]byte{
		"zero":         make([]byte, 32),
		"the order":    order.Bytes(),
		"out of range": bytes.Repeat([]byte{0xff}, 32),
	}
)

// TestHostileMessages puts what no honest sender sends into every field of every message:
// it is refused, and the field named.
func TestHostileMessages(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	pending := arctest.NewPending(p.context, seeded("device"))
	response, err := arctest.Respond(p.key, pending.Request(), seeded("answer"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := pending.Finalize(p.key.PublicKey(), response)
	if err != nil {
		t.Fatal(err)
	}
	proof := func(n int) string { return "challenge" + strings.Repeat(" response", n) }
	for _, m := range []struct {
		name   string
		wire   []byte
		from   int
		points string
		others []string // fields of scalars
		again  func([]byte) ([]byte, error)
	}{
		{"presentation", present(t, c, p.base(1), report(1), "one").Append(nil), 1, "U UPrimeCommit m1Commit tag R1 R2 R3",
			[]string{"response for m1", "response for z", "response for -r"}, rewrite(arc.ReadPresentation)},
		{"credential request", pending.Request().Append(nil), 0, "m1Enc m2Enc", strings.Fields(proof(4)), rewrite(arc.ReadCredentialRequest)},
		{"credential response", response.Append(nil), 0, "U encUPrime X0Aux X1Aux X2Aux HAux", strings.Fields(proof(7)), rewrite(arc.ReadCredentialResponse)},
		{"public key", p.key.PublicKey().Append(nil), 0, "X0 X1 X2", nil, rewrite(arc.ReadPublicKey)},
		{"private key", p.key.Append(nil), 0, "", []string{"x0", "x1", "x2", "x0Blinding"}, rewrite(arc.ReadPrivateKey)},
	} {
		if b, err := m.again(m.wire); err != nil || !bytes.Equal(b, m.wire) {
			t.Fatalf("%s: %v, or other bytes", m.name, err)
		}
		at := m.from
		for _, field := range strings.Fields(m.points) {
			for what, e := range hostileElements {
				b := bytes.Clone(m.wire)
				copy(b[at:], e)
				_, err := m.again(b)
				refused(t, m.name+": "+what, err, field, arc.ErrMalformed)
			}
			at += 33
		}
		for _, field := range m.others {
			for what, s := range hostileScalars {
				b := bytes.Clone(m.wire)
				copy(b[at:], s)
				_, err := m.again(b)
				refused(t, m.name+": "+what, err, field, arc.ErrMalformed)
			}
			at += 32
		}
		if at != len(m.wire) {
			t.Fatalf("%s: fields end at %d of %d bytes", m.name, at, len(m.wire))
		}
		for _, b := range [][]byte{nil, m.wire[:len(m.wire)-1], append(bytes.Clone(m.wire), 0)} {
			_, err := m.again(b)
			refused(t, m.name, err, "length", arc.ErrMalformed)
		}
	}
	// What a device keeps: credential and pending request.
	for name, m := range map[string]struct {
		wire  []byte
		again func([]byte) ([]byte, error)
	}{
		"credential":      {c.Append(nil), rewrite(arc.ReadCredential)},
		"pending request": {pending.Append(nil), rewrite(arc.ReadPending)},
	} {
		if b, err := m.again(m.wire); err != nil || !bytes.Equal(b, m.wire) {
			t.Fatalf("%s: %v, or other bytes", name, err)
		}
		b := bytes.Clone(m.wire)
		clear(b[:32])
		_, err := m.again(b)
		refused(t, name, err, "m1", arc.ErrMalformed)
		_, err = m.again(m.wire[1:])
		refused(t, name, err, "length", arc.ErrMalformed)
	}
	b := present(t, c, p.base(1), report(1), "one").Append(nil)
	for version := range 256 {
		if b[0] = byte(version); version == 1 {
			continue
		}
		_, err := arc.ReadPresentation(b)
		refused(t, fmt.Sprint("version ", version), err, "version", arc.ErrMalformed)
	}
}

// rewrite reads a message and writes it again.
func rewrite[M interface{ Append([]byte) []byte }](read func([]byte) (M, error)) func([]byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) {
		m, err := read(b)
		if err != nil {
			return nil, err
		}
		return m.Append(nil), nil
	}
}

// TestIssuanceRefuses: requests and answers whose proofs do not hold.
func TestIssuanceRefuses(t *testing.T) {
	p, other := newParty(arc.Helper, 7, "issuer"), newParty(arc.Leader, 7, "the other issuer")
	a, b := arctest.NewPending(p.context, seeded("a")), arctest.NewPending(p.context, seeded("b"))
	wireA, wireB := a.Request().Append(nil), b.Request().Append(nil)
	for what, wire := range map[string][]byte{
		"a commitment of another request":  slices.Concat(wireB[:33], wireA[33:]),
		"the proof of another request":     slices.Concat(wireA[:66], wireB[66:]),
		"commitments swapped":              slices.Concat(wireA[33:66], wireA[:33], wireA[66:]),
		"a response of another request":    slices.Concat(wireA[:98], wireB[98:130], wireA[130:]),
		"the challenge of another request": slices.Concat(wireA[:66], wireB[66:98], wireA[98:]),
	} {
		q, err := arc.ReadCredentialRequest(wire)
		if err != nil {
			t.Fatal(what, err)
		}
		_, err = p.key.Respond(q)
		refused(t, what, err, "proof", arc.ErrProof)
	}
	answer := func(of *party, q *arc.Pending, seed string) *arc.CredentialResponse {
		r, err := arctest.Respond(of.key, q.Request(), seeded(seed))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	honest := answer(p, a, "answer").Append(nil)
	again := answer(p, a, "another answer").Append(nil)
	for i := range 14 {
		from := 33 * i
		size := 33
		if i >= 6 {
			from, size = 198+32*(i-6), 32
		}
		r, err := arc.ReadCredentialResponse(slices.Concat(honest[:from], again[from:from+size], honest[from+size:]))
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Finalize(p.key.PublicKey(), r)
		refused(t, fmt.Sprintf("field %d of another answer", i), err, "proof", arc.ErrProof)
	}
	_, err := a.Finalize(p.key.PublicKey(), answer(other, a, "answer"))
	refused(t, "an answer under another key", err, "proof", arc.ErrProof)
	_, err = a.Finalize(p.key.PublicKey(), answer(p, b, "answer"))
	refused(t, "the answer to another request", err, "proof", arc.ErrProof)
}

// TestOftenUsedKey: however often a key is used, and so from multiples of it or not,
// issuer and device make the same messages of the same randomness, and what does not hold
// is refused.
func TestOftenUsedKey(t *testing.T) {
	p, other := newParty(arc.Leader, 7, "often"), newParty(arc.Leader, 7, "another")
	base := p.base(1)
	var first []byte
	for i := range 20 {
		rand := seeded("often used")
		pending := arctest.NewPending(p.context, rand)
		response, err := arctest.Respond(p.key, pending.Request(), rand)
		if err != nil {
			t.Fatal(i, err)
		}
		c, err := pending.Finalize(p.key.PublicKey(), response)
		if err != nil {
			t.Fatal(i, err)
		}
		shown := arctest.Present(c, base, report(1), rand)
		if err := p.verifier.Verify(arc.Item{Base: base, Binding: report(1), Presentation: shown}); err != nil {
			t.Fatal(i, err)
		}
		all := shown.Append(response.Append(nil))
		if first == nil {
			first = all
		}
		if !bytes.Equal(all, first) {
			t.Fatalf("use %d makes other messages", i+1)
		}
		if _, err := pending.Finalize(other.key.PublicKey(), response); !errors.Is(err, arc.ErrProof) {
			t.Fatalf("use %d: an answer under another key: %v", i+1, err)
		}
		for field := range 14 { // 6 elements, a challenge and 7 responses
			b := response.Append(nil)
			at := min(field, 6)*33 + max(0, field-6)*32
			b[at+31] ^= 1
			changed, err := arc.ReadCredentialResponse(b)
			if err != nil {
				continue // off the curve
			}
			if _, err := pending.Finalize(p.key.PublicKey(), changed); !errors.Is(err, arc.ErrProof) {
				t.Fatalf("use %d: field %d changed: %v", i+1, field, err)
			}
		}
	}
}

// TestAnswersToOneRequest: a request that is answered twice gives two credentials with the
// same tags, so that an answer that was lost can be asked for again.
func TestAnswersToOneRequest(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	pending, err := arc.ReadPending(arctest.NewPending(p.context, seeded("device")).Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	var tags []arc.Tag
	for _, seed := range []string{"one", "two"} {
		r, err := arctest.Respond(p.key, pending.Request(), seeded(seed))
		if err != nil {
			t.Fatal(err)
		}
		c, err := pending.Finalize(p.key.PublicKey(), r)
		if err != nil {
			t.Fatal(err)
		}
		x := present(t, c, p.base(1), report(1), seed)
		if err := p.verifier.Verify(arc.Item{Base: p.base(1), Binding: report(1), Presentation: x}); err != nil {
			t.Fatal(err)
		}
		tags = append(tags, x.Tag())
	}
	if tags[0] != tags[1] {
		t.Error("a second answer to a request is a second device")
	}
}

// TestRealRandomness: without a twin nothing is drawn twice, and all of it holds.
func TestRealRandomness(t *testing.T) {
	key := arc.GenerateKey()
	c := arc.NewRequestContext(arc.Leader, deployment, 1, key.PublicKey().ID())
	pending := arc.NewPending(c)
	if bytes.Equal(pending.Append(nil), arc.NewPending(c).Append(nil)) || bytes.Equal(key.Append(nil), arc.GenerateKey().Append(nil)) {
		t.Fatal("secrets were drawn twice")
	}
	r, err := key.Respond(pending.Request())
	if err != nil {
		t.Fatal(err)
	}
	credential, err := pending.Finalize(key.PublicKey(), r)
	if err != nil {
		t.Fatal(err)
	}
	base := arc.NewTagBase(arc.NewPresentationContext(arc.Leader, deployment, 1, key.PublicKey().ID()))
	a, b := credential.Present(base, report(1)), credential.Present(base, report(1))
	if bytes.Equal(a.Append(nil), b.Append(nil)) {
		t.Fatal("a presentation was drawn twice")
	}
	if err := key.Verifier(c).Verify(arc.Item{Base: base, Binding: report(1), Presentation: a}); err != nil {
		t.Fatal(err)
	}
	const limit = 4
	context, kept := arc.NewPresentationContext(arc.Leader, deployment, 2, key.PublicKey().ID()), func([]byte) error { return nil }
	var limited [][]byte
	for range 2 {
		all, err := credential.NewPresentationState(context, limit).Present(kept, report(1), report(1))
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range all {
			limited = append(limited, x.Append(nil))
			if err := key.Verifier(c).VerifyLimited(arc.LimitedItem{Base: arc.NewTagBase(context), Binding: report(1), Presentation: x}, limit); err != nil {
				t.Fatal(err)
			}
		}
	}
	// All elements but the tag are drawn anew: of a number, and of two of one state.
	seen := map[string]bool{}
	for _, b := range limited {
		for i := range 5 + 2 + 4 + 2*2 {
			if i != 3 {
				seen[string(b[1+33*i:][:33])] = true
			}
		}
	}
	if len(seen) != 4*14 {
		t.Fatalf("%d elements in %d presentations were drawn", len(seen), len(limited))
	}
}

func FuzzMessages(f *testing.F) {
	p := newParty(arc.Helper, 7, "issuer")
	pending := arctest.NewPending(p.context, seeded("device"))
	response, err := arctest.Respond(p.key, pending.Request(), seeded("answer"))
	if err != nil {
		f.Fatal(err)
	}
	c := p.issue(f, "device")
	seeds := [][]byte{present(f, c, p.base(1), report(1), "one").Append(nil), pending.Request().Append(nil), response.Append(nil),
		p.key.PublicKey().Append(nil), p.key.Append(nil), c.Append(nil), pending.Append(nil)}
	all := []func([]byte) ([]byte, error){rewrite(arc.ReadPresentation), rewrite(arc.ReadCredentialRequest), rewrite(arc.ReadCredentialResponse),
		rewrite(arc.ReadPublicKey), rewrite(arc.ReadPrivateKey), rewrite(arc.ReadCredential), rewrite(arc.ReadPending)}
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
		for _, again := range all {
			if out, err := again(b); err == nil && !bytes.Equal(out, b) {
				t.Errorf("%x is written as %x", b, out)
			} else if err != nil && !errors.Is(err, arc.ErrMalformed) {
				t.Errorf("%x: %v", b, err)
			}
		}
	})
}

// TestEveryByteCounts: a message with one bit changed, in each of its bytes, is refused
// when it is read or when it is verified.
func TestEveryByteCounts(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	pending := arctest.NewPending(p.context, seeded("device"))
	response, err := arctest.Respond(p.key, pending.Request(), seeded("answer"))
	if err != nil {
		t.Fatal(err)
	}
	base := p.base(1)
	for what, m := range map[string]struct {
		wire []byte
		take func([]byte) error
	}{
		"presentation": {present(t, p.issue(t, "device"), base, report(1), "one").Append(nil), func(b []byte) error {
			x, err := arc.ReadPresentation(b)
			if err != nil {
				return err
			}
			return p.verifier.Verify(arc.Item{Base: base, Binding: report(1), Presentation: x})
		}},
		"limited presentation": {arctest.PresentLimited(p.issue(t, "device"), base, report(1), 2, 5, seeded("one")).Append(nil), func(b []byte) error {
			x, err := arc.ReadLimitedPresentation(b, 5)
			if err != nil {
				return err
			}
			return p.verifier.VerifyLimited(arc.LimitedItem{Base: base, Binding: report(1), Presentation: x}, 5)
		}},
		"credential request": {pending.Request().Append(nil), func(b []byte) error {
			q, err := arc.ReadCredentialRequest(b)
			if err != nil {
				return err
			}
			_, err = p.key.Respond(q)
			return err
		}},
		"credential response": {response.Append(nil), func(b []byte) error {
			r, err := arc.ReadCredentialResponse(b)
			if err != nil {
				return err
			}
			_, err = pending.Finalize(p.key.PublicKey(), r)
			return err
		}},
	} {
		if err := m.take(m.wire); err != nil {
			t.Fatal(what, err)
		}
		for i := range m.wire {
			b := bytes.Clone(m.wire)
			b[i] ^= 1 << (i % 8)
			var r *arc.Refusal
			if err := m.take(b); !errors.As(err, &r) || r.Message != what {
				t.Errorf("%s with byte %d changed: %v", what, i, err)
			}
		}
	}
}
