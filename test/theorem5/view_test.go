package theorem5

import (
	"crypto/rand"
	"errors"
	"math/big"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// context and key are the task's, known to both servers.
var (
	context = []byte("dap-18 and the id of a task")
	key     = [vdaf.VerifyKeySize]byte{1, 2, 3}
)

// A kind is a VDAF, as far as a simulator has to know it.
type kind struct {
	vdaf.VDAF
	p     *big.Int // modulus of its field
	size  int      // bytes of an element
	pairs int      // products in a call of its gadget, which sums them
	seed  int      // bytes of what hides joint randomness: 32 or 0
	shard func(m int, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error)
}

// kinds are one VDAF without joint randomness and one with it. Measurements are 0 and 1.
func kinds(t *testing.T) map[string]*kind {
	count, err := prio3.NewCount(2)
	if err != nil {
		t.Fatal(err)
	}
	const chunk = 2
	histogram, err := prio3.NewHistogram(2, 4, chunk)
	if err != nil {
		t.Fatal(err)
	}
	p64 := new(big.Int).Lsh(big.NewInt(1), 64) // 2^64 - 2^32 + 1
	p64.Sub(p64, new(big.Int).Lsh(big.NewInt(1), 32)).Add(p64, big.NewInt(1))
	p128 := new(big.Int).Lsh(big.NewInt(1), 128) // 2^128 - 7 * 2^66 + 1
	p128.Sub(p128, new(big.Int).Lsh(big.NewInt(7), 66)).Add(p128, big.NewInt(1))
	return map[string]*kind{
		"count": {count, p64, 8, 1, 0, func(m int, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
			return count.Shard(context, m == 1, nonce)
		}},
		"histogram": {histogram, p128, 16, chunk, 32, func(m int, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
			return histogram.Shard(context, m, nonce)
		}},
	}
}

// elements decodes little-endian field elements.
func (k *kind) elements(b []byte) []*big.Int {
	var out []*big.Int
	for c := range slices.Chunk(b, k.size) {
		c = slices.Clone(c)
		slices.Reverse(c)
		out = append(out, new(big.Int).SetBytes(c))
	}
	return out
}

func (k *kind) encode(es []*big.Int) []byte {
	b := make([]byte, len(es)*k.size)
	for i, e := range es {
		at := b[i*k.size : (i+1)*k.size]
		e.FillBytes(at)
		slices.Reverse(at)
	}
	return b
}

// uniform is n random elements of the field.
func (k *kind) uniform(n int) []*big.Int {
	out := make([]*big.Int, n)
	for i := range out {
		out[i], _ = rand.Int(rand.Reader, k.p)
	}
	return out
}

// combine is a+b or a-b, element by element.
func (k *kind) combine(a, b []*big.Int, op func(z, x, y *big.Int) *big.Int) []*big.Int {
	out := make([]*big.Int, len(a))
	for i := range out {
		out[i] = op(new(big.Int), a[i], b[i])
		out[i].Mod(out[i], k.p)
	}
	return out
}

// accepted is a uniform verifier among those that accept: the circuit's output is zero,
// the wires are anything, and the gadget's polynomial is what the gadget makes of the
// wires. (VDAF-18 section 7.3.)
func (k *kind) accepted() []*big.Int {
	wires := k.uniform(2 * k.pairs)
	sum := new(big.Int)
	for i := range k.pairs {
		sum.Add(sum, new(big.Int).Mul(wires[2*i], wires[2*i+1]))
	}
	return append(append([]*big.Int{new(big.Int)}, wires...), sum.Mod(sum, k.p))
}

// A view is what the adversary has of a batch when all is over: by report what it was
// sent and what the other server said, and the other server's aggregate share.
type view struct {
	nonces [][vdaf.NonceSize]byte
	public [][]byte
	inputs [][]byte // its own shares
	own    [][]byte // its own verifier shares, which follow from those
	other  [][]byte // the other server's verifier shares
	share  *vdaf.AggShare
	out    [][]*big.Int // its own output shares, one report each, decoded
}

// observe runs clients and both servers on the measurements.
func observe(t *testing.T, k *kind, agg int, measurements []int) *view {
	t.Helper()
	v := newView(len(measurements))
	var their [][]byte
	for i, m := range measurements {
		rand.Read(v.nonces[i][:])
		s, err := k.shard(m, &v.nonces[i])
		if err != nil {
			t.Fatal(err)
		}
		v.public[i], v.inputs[i], their = s.Public, s.Inputs[agg], append(their, s.Inputs[1-agg])
	}
	x := newSide(t, k, 1-agg, v.nonces, v.public, their)
	v.other = x.shares
	v.finish(t, k, agg)
	x.check(t, v.messages(t, k, agg))
	v.share = k.NewAggShare()
	k.Accumulate(x.state, nil, nil, []*vdaf.AggShare{v.share}, x.errs)
	return v
}

// simulate makes a view from the number of reports and the aggregate alone.
func simulate(t *testing.T, k *kind, agg, count int, aggregate []int64) *view {
	t.Helper()
	v := newView(count)
	size := k.Sizes()
	for i := range count {
		rand.Read(v.nonces[i][:])
		if agg == 0 {
			v.inputs[i] = append(k.encode(k.uniform((size.LeaderInput-k.seed)/k.size)), random(k.seed)...)
		} else {
			v.inputs[i] = random(size.HelperInput)
		}
		v.public[i] = random(size.Public)
	}
	// Its own hint in the public share is what its own share gives; the other's stays
	// random.
	if first := newSide(t, k, agg, v.nonces, v.public, v.inputs); k.seed > 0 {
		for i, own := range first.shares {
			copy(v.public[i][agg*k.seed:], own[len(own)-k.seed:])
		}
	}
	mine := newSide(t, k, agg, v.nonces, v.public, v.inputs)
	for _, own := range mine.shares {
		verifier := k.combine(k.accepted(), k.elements(own[:len(own)-k.seed]), (*big.Int).Sub)
		v.other = append(v.other, k.encode(verifier))
	}
	for i := range v.other {
		v.other[i] = append(v.other[i], v.public[i][(1-agg)*k.seed:][:k.seed]...)
	}
	v.finish(t, k, agg)
	sum := k.NewAggShare()
	k.Accumulate(mine.state, nil, nil, []*vdaf.AggShare{sum}, mine.errs)
	target := make([]*big.Int, len(aggregate))
	for i, a := range aggregate {
		target[i] = big.NewInt(a)
	}
	rest := k.encode(k.combine(target, k.elements(sum.Append(nil)), (*big.Int).Sub))
	var err error
	if v.share, err = k.ReadAggShare(rest); err != nil {
		t.Fatal(err)
	}
	return v
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func newView(n int) *view {
	return &view{nonces: make([][vdaf.NonceSize]byte, n), public: make([][]byte, n), inputs: make([][]byte, n)}
}

// A side is one server's verification of a batch, by the product's own code.
type side struct {
	kind   *kind
	state  vdaf.State
	errs   []error
	shares [][]byte
}

func newSide(t *testing.T, k *kind, agg int, nonces [][vdaf.NonceSize]byte, public, inputs [][]byte) *side {
	t.Helper()
	n, size := len(nonces), k.Sizes().VerifierShare
	s := &side{kind: k, state: k.NewState(n), errs: make([]error, n)}
	shares := make([]byte, n*size)
	k.VerifyInit(s.state, &key, context, agg, &vdaf.Reports{Nonces: nonces, Public: public, Inputs: inputs}, shares, s.errs)
	if err := errors.Join(s.errs...); err != nil {
		t.Fatal(err)
	}
	s.shares = slices.Collect(slices.Chunk(shares, size))
	return s
}

func (s *side) check(t *testing.T, messages []byte) {
	t.Helper()
	s.kind.Check(s.state, messages, s.errs)
	if err := errors.Join(s.errs...); err != nil {
		t.Fatal(err)
	}
}

// messages are the verifier messages, from the shares of both servers; the proof of every
// report holds.
func (v *view) messages(t *testing.T, k *kind, agg int) []byte {
	t.Helper()
	shares := make([][]byte, 2)
	shares[agg], shares[1-agg] = slices.Concat(v.own...), slices.Concat(v.other...)
	msgs, errs := make([]byte, len(v.own)*k.Sizes().VerifierMessage), make([]error, len(v.own))
	k.Combine(context, shares, msgs, errs)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return msgs
}

// finish lets the adversary's own server do what it does with what it has, and fails if
// that refuses a report.
func (v *view) finish(t *testing.T, k *kind, agg int) {
	t.Helper()
	s := newSide(t, k, agg, v.nonces, v.public, v.inputs)
	v.own = s.shares
	s.check(t, v.messages(t, k, agg))
	one, bucket := make([]*vdaf.AggShare, len(v.nonces)), make([]int32, len(v.nonces))
	for i := range one {
		one[i], bucket[i] = k.NewAggShare(), int32(i)
	}
	k.Accumulate(s.state, nil, bucket, one, s.errs)
	for _, o := range one {
		v.out = append(v.out, k.elements(o.Append(nil)))
	}
}
