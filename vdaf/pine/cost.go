package pine

import (
	"math"

	"github.com/starling-agg/starling/vdaf"
)

// Cost is what an instance costs, before it is built.
type Cost struct {
	Params Params // with defaults
	Bound  uint64 // B, the proved bound of the L2 norm in units of 2^-FracBits: the sensitivity of the sum

	// Sizes in bytes. Upload is what a client sends to all: public share and input
	// shares, without the framing of DAP and HPKE.
	Sizes          vdaf.Sizes
	Upload         int
	PlaintextRatio float64 // Upload over 4 bytes an entry

	Proofs, NormProofs int // of the main circuit and of norm equality
	Chunk, NormChunk   int

	Soundness Soundness

	// MaxClients is how many clients fit the field without noise: MaxClients*Bound <=
	// Room. Room is (q-1)/2, or the largest int64, what the absolute value of an entry of
	// the noised sum must not exceed.
	MaxClients, Room uint64

	// Estimates in seconds of one core. Those of [Plan] are for an AMD EPYC at 2.6 GHz in
	// plain Go, which docs/pine.md has the measurements of: orders of magnitude for
	// others. Those of [Speed.Plan] are for the machine that was measured.
	ClientSeconds, LeaderSeconds, HelperSeconds float64
}

// Soundness is -log2 of the odds that a report that should be refused is accepted, by
// part, if both aggregators are honest. docs/pine.md derives it. Offline counts are per
// try, of which an attacker can make as many as it can hash: each evaluates the joint
// randomness anew. Online counts are per report sent, as they depend on the verification
// key.
type Soundness struct {
	// Tests: a vector whose squared norm wraps around the field passes all wrap-around
	// tests (offline).
	Tests float64
	// Main: bits, norm range or tests claimed falsely, and all main proofs accept
	// (offline).
	Main float64
	// Norm: the squared norm claimed falsely, and all norm proofs accept (online).
	Norm float64
	// Honest: an honest report is refused because a test point is a root of unity.
	Honest float64
	// Hidden: an aggregator tells a share expanded by AES-128 in counter mode from a
	// random one. 128 for TurboSHAKE128.
	Hidden float64
}

// Plan computes the costs of p. Errors are [ErrParameter].
func Plan(p Params) (*Cost, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	p = p.withDefaults()
	i, s := fields[p.Field], p.shape()
	c := &Cost{Params: p, Bound: s.bound, Sizes: s.sizes(i.f.Size(), p.Shares, profile18), Proofs: s.proofs,
		NormProofs: s.normProofs, Chunk: s.chunk, NormChunk: s.normChunk}
	c.Upload = c.Sizes.Public + c.Sizes.LeaderInput + (p.Shares-1)*c.Sizes.HelperInput
	c.PlaintextRatio = float64(c.Upload) / (4 * float64(p.Dimension))
	c.Soundness = s.soundness(i)
	c.Room = i.half
	c.MaxClients = c.Room / s.bound
	c.take(i.cost)
	return c, nil
}

// points are p of a circuit: the number of points of a wire polynomial.
func points(calls int) float64 { return math.Exp2(math.Ceil(math.Log2(float64(1 + calls)))) }

func (s shape) soundness(i *fieldInfo) Soundness {
	q := i.q
	pn := points(ceilDiv(s.dim, s.normChunk))
	pm := points(ceilDiv(s.bits(), s.chunk) + ceilDiv(s.tests, s.chunk))
	// A polynomial of degree 2(p-1) other than the gadget's agrees with it at a random
	// point that is no root of unity.
	norm := 2 * (pn - 1) / (q - pn)
	main := 2*(pm-1)/(q-pm) + (float64(s.bits()-1)+float64(s.tests-1)+3)/q
	out := Soundness{
		Tests:  float64(s.tests),
		Main:   -float64(s.proofs) * math.Log2(main),
		Norm:   -float64(s.normProofs) * math.Log2(norm),
		Honest: -math.Log2((float64(s.normProofs)*pn + float64(s.proofs)*pm) / q),
		Hidden: 128,
	}
	if i.aes { // the PRP/PRF switching lemma over all blocks of a helper's share
		blocks := float64(s.dim+s.bits()) * float64(i.f.Size()) / 16
		out.Hidden = min(128, 129-2*math.Log2(max(1, blocks)))
	}
	return out
}

// line is a cost of fixed + each*entries seconds.
type line struct{ fixed, each float64 }

func (l line) at(d float64) float64 { return l.fixed + l.each*d }

// timing is measured, one report at a time on one core: that of fields by BenchmarkReport
// at dimensions 64 and 262,144.
type timing struct{ client, leader, helper line }
