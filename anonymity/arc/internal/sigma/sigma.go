// Package sigma proves knowledge of scalars that satisfy linear equations over the group,
// without showing them: Maurer's generalisation of Schnorr's proof, made non-interactive
// with SHAKE128.
//
// It follows the sigma-protocols and Fiat-Shamir drafts in the form of which the test
// vectors of ARC's draft of March 2026 are: that of commit 4bc7eb4 of the drafts' code.
// (The commit that ARC's code names, 1d243b4, is a day younger and hashes sessions
// otherwise; the vectors were not made anew.) Drafts of later dates are incompatible too:
// they encode a statement otherwise, and want every element of it used, which ARC's are
// not. In this form the protocol's name is padded to 64 bytes; session and statement are
// absorbed as they are, each behind its length in 4 bytes; a statement is encoded in words
// of 32 bits of which the least significant byte is first.
//
// A proof comes in two forms. The compact one is challenge and responses, and is verified
// alone. The batchable one is commitments and responses: its verifier computes the
// challenge and has equations left to check, for one proof or for many at once. Both are
// equally sound.
package sigma

import (
	"crypto/sha3"
	"encoding/binary"
	"io"

	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// A Statement has the equations of a proof, over scalars and elements that it numbers from
// 0 on.
type Statement struct {
	scalars, elements int
	equations         []Equation
	relations         [][]Multiple
	// label is the encoding of the equations.
	label []byte
}

// A Base is an element of a proof that is multiplied faster than others, because it is the
// same in many proofs, or the prover knows more of it.
type Base struct {
	// Secret returns a secret scalar times the element, in constant time, and false if that
	// is the identity. Nil: as any element.
	Secret func(p256.Scalar) (p256.Element, bool)
	// Public has the element's multiples for public scalars. Nil: as any element.
	Public *p256.Fixed
}

// Bases are those of a proof, by the numbers of the elements.
type Bases map[int]Base

// An Equation says that the element of number Image is the sum of its terms.
type Equation struct {
	Image int
	Terms []Term
}

// A Term is a scalar times an element, by their numbers.
type Term struct{ Scalar, Element int }

// A Multiple is a known number times an element, by its number.
type Multiple struct {
	Factor  p256.Scalar
	Element int
}

// NewStatement returns the statement of some equations over numbers of scalars and
// elements.
func NewStatement(scalars, elements int, equations ...Equation) *Statement {
	s := &Statement{scalars: scalars, elements: elements, equations: equations}
	word := func(n int) { s.label = binary.LittleEndian.AppendUint32(s.label, uint32(n)) }
	word(len(equations))
	for _, q := range equations {
		if q.Image >= elements {
			panic("sigma: internal error: an equation is about an element that a statement does not have")
		}
		word(q.Image)
		word(len(q.Terms))
		for _, t := range q.Terms {
			if t.Scalar >= scalars || t.Element >= elements {
				panic("sigma: internal error: a term is of a number that a statement does not have")
			}
			word(t.Scalar)
			word(t.Element)
		}
	}
	return s
}

// Relate has the statement say as well that some multiples of its elements add up to the
// identity. That is no part of what is proved or hashed, for everybody can see whether it
// is so: verifiers look at it beside the equations.
func (s *Statement) Relate(sum ...Multiple) {
	for _, m := range sum {
		if m.Element >= s.elements {
			panic("sigma: internal error: a relation is about an element that a statement does not have")
		}
	}
	s.relations = append(s.relations, sum)
}

// Checks is the number of equations and relations.
func (s *Statement) Checks() int { return len(s.equations) + len(s.relations) }

// Equations is the number of equations, and of commitments in a proof.
func (s *Statement) Equations() int { return len(s.equations) }

// Scalars is the number of scalars, and of responses in a proof.
func (s *Statement) Scalars() int { return s.scalars }

// Challenge is the verifier's challenge to the commitments of a proof about elements, in a
// session.
func (s *Statement) Challenge(session []byte, elements, commitments []p256.Element) p256.Scalar {
	if len(elements) != s.elements || len(commitments) != len(s.equations) {
		panic("sigma: internal error: a statement has other numbers of elements or equations")
	}
	encoded := make([]byte, 0, len(session)+len(s.label)+8+(len(elements)+len(commitments))*p256.ElementSize)
	encoded = binary.BigEndian.AppendUint32(encoded, uint32(len(session)))
	encoded = append(encoded, session...)
	encoded = binary.BigEndian.AppendUint32(encoded, uint32(len(s.label)+len(elements)*p256.ElementSize))
	encoded = append(encoded, s.label...)
	for i := range elements {
		encoded = elements[i].Append(encoded)
	}
	for i := range commitments {
		encoded = commitments[i].Append(encoded)
	}
	h := sha3.NewSHAKE128()
	first := make([]byte, h.BlockSize())
	copy(first, "sigma-proofs_Shake128_P256")
	h.Write(first)
	h.Write(encoded)
	return p256.WideScalar(h)
}

// A Proof is everything that one consists of; each of the two forms leaves a part out.
type Proof struct {
	Commitments []p256.Element // one for each equation
	Challenge   p256.Scalar
	Responses   []p256.Scalar // one for each scalar
}

// Prove proves that the prover knows a witness, the scalars, for which all equations hold
// of the elements. It takes 48 bytes of rand for each scalar; one that anybody else knows
// shows the witness.
//
// Constant time; what leaks is whether a commitment, or a part of one, is the identity,
// which has probability 2^-256 and is then drawn again.
func (s *Statement) Prove(rand io.Reader, session []byte, elements []p256.Element, bases Bases, witness []p256.Scalar) *Proof {
	if len(witness) != s.scalars || len(elements) != s.elements {
		panic("sigma: internal error: a statement has other numbers of scalars or elements")
	}
	points := make([]*p256.Point, s.elements)
	secrets := make([]p256.Scalar, s.scalars)
	p := new(Proof)
	for p.Commitments == nil {
		for i := range secrets {
			secrets[i] = p256.WideScalar(rand)
		}
		p.Commitments = s.commit(elements, points, bases, secrets)
	}
	p.Challenge = s.Challenge(session, elements, p.Commitments)
	for i, k := range secrets {
		p.Responses = append(p.Responses, k.Add(witness[i].Mul(p.Challenge)))
	}
	return p
}

// commit puts secrets into the equations, in constant time, and returns nil if one comes
// to the identity. Points are the elements as far as they are used, made once.
func (s *Statement) commit(elements []p256.Element, points []*p256.Point, bases Bases, secrets []p256.Scalar) []p256.Element {
	commitments := make([]p256.Element, len(s.equations))
	for i, q := range s.equations {
		var sum *p256.Point
		ok := true
		for _, t := range q.Terms {
			var product *p256.Point
			if multiply := bases[t.Element].Secret; multiply != nil {
				if commitments[i], ok = multiply(secrets[t.Scalar]); !ok || len(q.Terms) == 1 {
					break
				}
				product = commitments[i].Point()
			} else {
				if points[t.Element] == nil {
					points[t.Element] = elements[t.Element].Point()
				}
				product = p256.Mul(secrets[t.Scalar], points[t.Element])
			}
			if sum == nil {
				sum = product
			} else {
				sum = sum.Add(product)
			}
		}
		if ok && sum != nil {
			commitments[i], ok = sum.Element()
		}
		if !ok {
			return nil
		}
	}
	return commitments
}

// VerifyCompact reports whether challenge and responses of a proof about elements hold: it
// computes the commitments of which they are. Its time depends on all of them, which are
// public.
func (s *Statement) VerifyCompact(session []byte, elements []p256.Element, bases Bases, p *Proof) bool {
	for _, r := range s.relations {
		if !relate(r, elements).IsIdentity() {
			return false
		}
	}
	commitments, ok := p256.VartimeElements(s.differences(elements, bases, p))
	if !ok {
		return false
	}
	return s.Challenge(session, elements, commitments).Equal(p.Challenge) == 1
}

// VerifyBatchable looks whether commitments and responses of a proof about elements hold,
// each equation by itself and then each relation, and returns the number of the first that
// does not, from 0 on, or -1 if all do. Its time depends on all of them, which are public.
func (s *Statement) VerifyBatchable(session []byte, elements []p256.Element, bases Bases, p *Proof) int {
	p.Challenge = s.Challenge(session, elements, p.Commitments)
	for i, sum := range s.differences(elements, bases, p) {
		minus := p.Commitments[i].Neg()
		if !sum.AddElement(&minus).IsIdentity() {
			return i
		}
	}
	for i, r := range s.relations {
		if !relate(r, elements).IsIdentity() {
			return len(s.equations) + i
		}
	}
	return -1
}

// relate is the sum of a relation.
func relate(r []Multiple, elements []p256.Element) *p256.Sum {
	k, e := make([]p256.Scalar, len(r)), make([]p256.Element, len(r))
	for i, m := range r {
		k[i], e[i] = m.Factor, elements[m.Element]
	}
	return p256.VartimeProduct(k, e)
}

// differences are what each equation makes of the responses, less the challenge times its
// image: the commitments, if the proof holds.
func (s *Statement) differences(elements []p256.Element, bases Bases, p *Proof) []*p256.Sum {
	minus := p.Challenge.Neg()
	// images are those that were multiplied by themselves, for several equations have one.
	images := make(map[int]*p256.Sum)
	sums := make([]*p256.Sum, len(s.equations))
	for i, q := range s.equations {
		sum := new(p256.Sum)
		var k []p256.Scalar
		var e []p256.Element
		add := func(number int, x p256.Scalar) {
			if table := bases[number].Public; table != nil {
				table.VartimeAdd(sum, x)
				return
			}
			k, e = append(k, x), append(e, elements[number])
		}
		for _, t := range q.Terms {
			add(t.Element, p.Responses[t.Scalar])
		}
		others := len(k)
		add(q.Image, minus)
		switch {
		case others > 0:
			sum.Add(p256.VartimeProduct(k, e))
		case len(k) > 0:
			if images[q.Image] == nil {
				images[q.Image] = p256.VartimeProduct(k, e)
			}
			sum.Add(images[q.Image])
		}
		sums[i] = sum
	}
	return sums
}

// A Batch gathers the equations and relations of many proofs of one statement, each times a
// factor of its own, so that one product checks them all.
type Batch struct {
	statement *Statement
	shared    []bool // by number
	places    map[p256.Element]int
	scalars   []p256.Scalar
	elements  []p256.Element
}

// NewBatch returns an empty batch. The elements of the numbers in shared are alike in many
// proofs, and their scalars are summed. No other element is ever looked up among those that
// were added: to look one up takes a time, and reads places in memory, that depend on it,
// and it may be secret.
func (s *Statement) NewBatch(shared ...int) *Batch {
	b := &Batch{statement: s, shared: make([]bool, s.elements), places: make(map[p256.Element]int)}
	for _, number := range shared {
		b.shared[number] = true
	}
	return b
}

// Add adds a proof about elements, with its challenge set, and a factor for each equation
// and then each relation ([Statement.Checks]). Factors are drawn after all proofs of a
// batch are known, of 128 random bits that nobody else knows: then a batch with a proof
// that does not hold is taken for one that does with probability 2^-128.
func (b *Batch) Add(elements []p256.Element, p *Proof, factors []p256.Scalar) {
	own := make([]p256.Scalar, b.statement.elements)
	for i, q := range b.statement.equations {
		for _, t := range q.Terms {
			own[t.Element] = own[t.Element].Add(factors[i].Mul(p.Responses[t.Scalar]))
		}
		own[q.Image] = own[q.Image].Sub(factors[i].Mul(p.Challenge))
		// The factor is short, and its negative is not: the commitment is turned instead.
		b.scalars = append(b.scalars, factors[i])
		b.elements = append(b.elements, p.Commitments[i].Neg())
	}
	for i, r := range b.statement.relations {
		for _, m := range r {
			own[m.Element] = own[m.Element].Add(factors[len(b.statement.equations)+i].Mul(m.Factor))
		}
	}
	for number, k := range own {
		if k.IsZero() == 1 {
			continue // an element that no equation has
		}
		if !b.shared[number] {
			b.elements = append(b.elements, elements[number])
			b.scalars = append(b.scalars, k)
			continue
		}
		place, ok := b.places[elements[number]]
		if !ok {
			place = len(b.elements)
			b.places[elements[number]] = place
			b.elements = append(b.elements, elements[number])
			b.scalars = append(b.scalars, p256.Scalar{})
		}
		b.scalars[place] = b.scalars[place].Add(k)
	}
}

// Holds reports whether the sum of all equations and relations is the identity.
func (b *Batch) Holds() bool { return p256.VartimeProduct(b.scalars, b.elements).IsIdentity() }
