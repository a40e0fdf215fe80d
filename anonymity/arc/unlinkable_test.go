package arc_test

import (
	"fmt"
	"io"
	"math/bits"
	"slices"
	"testing"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/arc/arctest"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// recorded remembers what is read.
type recorded struct {
	io.Reader
	all []byte
}

func (r *recorded) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.all = append(r.all, b[:n]...)
	return n, err
}

// first gives one scalar first, and then what another stream has.
func first(k uint64, then io.Reader) io.Reader {
	b := make([]byte, 48)
	for i := range 8 {
		b[47-i] = byte(k >> (8 * i))
	}
	return io.MultiReader(newBytes(b), then)
}

type bytesReader struct{ b []byte }

func newBytes(b []byte) io.Reader { return &bytesReader{b} }

func (r *bytesReader) Read(b []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.b)
	r.b = r.b[n:]
	return n, nil
}

// An issuance is everything that issuer and attester together see of one credential, and
// what the issuer drew.
type issuance struct {
	wire []byte
	b    p256.Scalar
}

// link is a distinguisher that holds the transcripts of all issuances, the issuer's key
// and its randomness, and says for each presentation which issuance it is of. It looks
// for elements of the presentation that are a multiple of one of the issuance by any
// scalar that the issuer knows, and where it finds none takes the issuance whose bytes
// agree best.
func link(t *testing.T, p *party, issuances []issuance, presentations [][]byte) []int {
	t.Helper()
	var key [4]p256.Scalar
	for i := range key {
		var err error
		if key[i], err = p256.ReadScalar(p.key.Append(nil)[32*i : 32*i+32]); err != nil {
			t.Fatal(err)
		}
	}
	element := func(b []byte) p256.Element {
		e, err := p256.ReadElement(b)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	known := make(map[[32]byte]int) // by x, so that signs do not matter
	for j, s := range issuances {
		scalars := []p256.Scalar{p256.ScalarOf(1), p256.ScalarOf(2), s.b, s.b.Invert()}
		for _, x := range key {
			scalars = append(scalars, x, x.Invert(), x.Mul(s.b), s.b.Mul(x.Invert()))
		}
		for _, at := range []int{0, 33, arc.RequestSize, arc.RequestSize + 33, arc.RequestSize + 66, arc.RequestSize + 99,
			arc.RequestSize + 132, arc.RequestSize + 165} {
			e := element(s.wire[at : at+33])
			for _, k := range scalars {
				product, _ := p256.Mul(k, e.Point()).Element()
				known[[32]byte(product.Append(nil)[1:])] = j
			}
		}
	}
	guesses := make([]int, len(presentations))
	for i, wire := range presentations {
		guesses[i] = -1
		best := 0
		for j, s := range issuances {
			agree := 0
			for n := range wire {
				agree += 8 - bits.OnesCount8(wire[n]^s.wire[n])
			}
			if agree > best {
				best, guesses[i] = agree, j
			}
		}
		for at := 1; at < 1+7*33; at += 33 {
			if j, ok := known[[32]byte(wire[at+1:at+33])]; ok {
				guesses[i] = j
			}
		}
	}
	return guesses
}

// TestPresentationsAreNotLinked: a distinguisher with all that issuer and attester have
// guesses which of 64 credentials a presentation is of. By chance the number of right
// guesses has the distribution of the fixed points of a permutation, nearly Poisson of 1:
// 12 or more have probability 9e-10. A distinguisher that is right with probability 1/2 is
// right fewer than 12 times with probability 6e-8.
//
// That it can find what there is to find shows with a device whose a is 1, which presents
// U as it was issued, and is known by it.
func TestPresentationsAreNotLinked(t *testing.T) {
	const devices = 64
	p := newParty(arc.Helper, 7, "issuer")
	base := p.base(1)
	issuances := make([]issuance, devices)
	honest, careless := make([][]byte, devices), make([][]byte, devices)
	// Presentations come in another order than issuances: device i shows as number 5 i + 3.
	place := func(i int) int { return (5*i + 3) % devices }
	for i := range devices {
		pending := arctest.NewPending(p.context, seeded(fmt.Sprint("device", i)))
		drawn := &recorded{Reader: seeded(fmt.Sprint("answer", i))}
		response, err := arctest.Respond(p.key, pending.Request(), drawn)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pending.Finalize(p.key.PublicKey(), response)
		if err != nil {
			t.Fatal(err)
		}
		issuances[i] = issuance{response.Append(pending.Request().Append(nil)), p256.WideScalar(newBytes(drawn.all[:48]))}
		honest[place(i)] = arctest.Present(c, base, report(i), seeded(fmt.Sprint("presentation", i))).Append(nil)
		careless[place(i)] = arctest.Present(c, base, report(i), first(1, seeded(fmt.Sprint("presentation", i)))).Append(nil)
	}
	right := func(guesses []int) (n int) {
		for i := range devices {
			if guesses[place(i)] == i {
				n++
			}
		}
		return n
	}
	if n := right(link(t, p, issuances, careless)); n != devices {
		t.Fatalf("the distinguisher finds %d of %d devices whose a is 1", n, devices)
	}
	if n := right(link(t, p, issuances, honest)); n >= 12 {
		t.Errorf("the distinguisher finds %d of %d devices", n, devices)
	}
	// And no element of one presentation is in another: of one device, of two, of issuance.
	seen := make(map[string]int)
	for i, wire := range slices.Concat(honest) {
		for at := 1; at < 1+7*33; at += 33 {
			seen[string(wire[at:at+33])] = i
		}
	}
	if len(seen) != 7*devices {
		t.Errorf("%d elements in %d presentations", len(seen), devices)
	}
}

// TestLimitedPresentationsAreNotLinked is [TestPresentationsAreNotLinked] under a limit,
// where each device shows all its numbers in two rounds: no element of a presentation is in
// another, nor its double, nor G or H more or less.
func TestLimitedPresentationsAreNotLinked(t *testing.T) {
	const devices, limit, elements = 4, 5, 5 + 3 + 4 + 2*3
	p := newParty(arc.Hop2, 7, "issuer")
	bases := []*arc.TagBase{p.base(1), p.base(2)}
	var credentials []*arc.Credential
	for i := range devices {
		credentials = append(credentials, p.issue(t, fmt.Sprint("device", i)))
	}
	g := p256.Generator()
	h := p256.HashToGroup(g.Append(nil), "HashToGroup-ARCV1-P256generatorH")
	known := func(e p256.Element) (all []string) {
		for _, point := range []*p256.Point{e.Point(), e.Point().Add(e.Point())} {
			for _, x := range []*p256.Point{point, point.Add(g.Point()), point.Sub(g.Point()), point.Add(h.Point()), point.Sub(h.Point())} {
				if e, ok := x.Element(); ok {
					all = append(all, string(e.Append(nil)[1:])) // by x, so that signs do not matter
				}
			}
		}
		return all
	}
	// count is how often an element of a presentation is one known from another one.
	count := func(present func(c *arc.Credential, base *arc.TagBase, b arc.Binding, number int) []byte) (n int) {
		from := map[string]int{}
		for i := range devices * limit * len(bases) {
			device, number, base := i/limit/len(bases), i/len(bases)%limit, bases[i%len(bases)]
			wire := present(credentials[device], base, report(i), number)
			for at := 1; at < 1+33*elements; at += 33 {
				e, err := p256.ReadElement(wire[at : at+33])
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range known(e) {
					if j, ok := from[x]; ok && j != i {
						n++
					}
					from[x] = i
				}
			}
		}
		return n
	}
	if n := count(func(c *arc.Credential, base *arc.TagBase, b arc.Binding, number int) []byte {
		return arctest.PresentLimited(c, base, b, number, limit, seeded(fmt.Sprint(b, number, "presentation"))).Append(nil)
	}); n != 0 {
		t.Errorf("%d elements of presentations are known from others", n)
	}
	// What it finds: a device that draws the same for two numbers.
	if n := count(func(c *arc.Credential, base *arc.TagBase, b arc.Binding, number int) []byte {
		return arctest.PresentLimited(c, base, b, number, limit, seeded("a stream that is drawn again")).Append(nil)
	}); n < devices*limit {
		t.Errorf("only %d elements of presentations with the same draws are found", n)
	}
}
