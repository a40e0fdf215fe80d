package recipe_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// collected sends an answer from each device, mixes the messages and adds them up.
func collected(t testing.TB, m *Messenger, rng *rand.Rand, answers [][]uint64) Tally {
	t.Helper()
	var all [][]byte
	for _, answer := range answers {
		messages, err := m.Messages(answer)
		if err != nil {
			t.Fatal(err)
		}
		if len(messages) != m.MessagesPerContribution() {
			t.Fatalf("%d messages, want %d", len(messages), m.MessagesPerContribution())
		}
		for _, b := range messages {
			if len(b) != m.MessageSize() {
				t.Fatalf("a message of %d bytes, want %d", len(b), m.MessageSize())
			}
		}
		all = append(all, messages...)
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	tally, err := m.Tally(all)
	if err != nil {
		t.Fatal(err)
	}
	if tally.Rejected != 0 || tally.Reports != uint64(len(answers)) {
		t.Fatalf("%d of %d answers, %d messages rejected", tally.Reports, len(answers), tally.Rejected)
	}
	return tally
}

func seeded(t testing.TB, r *Recipe, seed byte) (*Messenger, *rand.Rand) {
	t.Helper()
	m, err := r.SeededMessenger([32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	return m, rand.New(rand.NewPCG(uint64(seed), 7))
}

// TestCloakExactSums: a cloak without noise gives the sum to the unit, for any number of
// contributions from the least batch to as many as there is room for, with what devices
// draw themselves.
func TestCloakExactSums(t *testing.T) {
	r := made(shuffledPath(), account.Options{Query: Sum{Max: 9}, MinBatch: 4, Randomizer: Cloak{Kind: SumPreservingCloak, Users: 12, Epsilon: Decimal{1, 0}}})
	m, err := r.Messenger()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 4; n <= 12; n++ {
		var answers [][]uint64
		want := int64(0)
		for i := range n {
			x := uint64(9) // all that there is room for
			if n < 12 {
				x = rng.Uint64N(10)
			}
			if answers, want = append(answers, []uint64{x}), want+int64(x); i == 0 {
				answers[0], want = nil, want-int64(x) // of a device without an answer
			}
		}
		if got := collected(t, m, rng, answers); got.Sums[0] != want {
			t.Errorf("%d contributions: %d, want %d", n, got.Sums[0], want)
		}
	}
}

// TestCloakErrors: of 400 sums of 50 answers no more are outside of the interval that
// theorem 3 gives 999 times in 1000 than 5, where the false-reject rate is 10^-7, and their
// mean square is as said, within what 400 Laplace variables are with probability 1 - 10^-6.
func TestCloakErrors(t *testing.T) {
	const runs, n, most, epsilon = 400, 50, 20, 1.0
	r := made(shuffledPath(), account.Options{Query: Sum{Max: most}, MinBatch: n, Randomizer: Cloak{Kind: ModernCloak}, Epsilon: Decimal{1, 0}})
	m, rng := seeded(t, r, 3)
	reach := most / epsilon * math.Log(1000) // of discrete Laplace noise, with probability 0.999
	outside, squares, stated := 0, 0.0, 0.0
	for range runs {
		answers, want := make([][]uint64, n), 0.0
		for i := range answers {
			answers[i] = []uint64{rng.Uint64N(most + 1)}
			want += float64(answers[i][0])
		}
		tally := collected(t, m, rng, answers)
		e, err := r.Estimate(tally.Sums, tally.Reports)
		if err != nil {
			t.Fatal(err)
		}
		off := e.Values[0] - want
		if math.Abs(off) > reach {
			outside++
		}
		squares, stated = squares+off*off, e.StdDev[0]*e.StdDev[0]
	}
	if outside > 5 {
		t.Errorf("%d of %d sums are outside of the 99.9 %% interval", outside, runs)
	}
	// x^2 of a Laplace variable has a standard deviation of sqrt 5 times its mean.
	if mean := squares / runs / stated; math.Abs(mean-1) > 5.5*math.Sqrt(5./runs) {
		t.Errorf("the mean square is %v times what is said", mean)
	}
	if want := 2 * most * most / (epsilon * epsilon); stated < want*0.99 || stated > want*1.01 {
		t.Errorf("variance %v, want %v", stated, want)
	}
}

// TestCloakSingleUser: the mean square of 20 sums is as said, within a factor that 20
// normal variables keep to with probability 1 - 10^-6.
func TestCloakSingleUser(t *testing.T) {
	const runs, n = 20, 600
	r := made(shuffledPath(), account.Options{Query: Mean{Max: 5}, MinBatch: n, Randomizer: Cloak{Kind: SingleUserCloak, Users: 650},
		Epsilon: Decimal{4, 0}, Delta: Decimal{1, 4}})
	m, rng := seeded(t, r, 4)
	squares, stated := 0.0, 0.0
	for range runs {
		answers := make([][]uint64, n)
		for i := range answers {
			answers[i] = []uint64{uint64(i) % 5}
		}
		tally := collected(t, m, rng, answers)
		e, err := r.Estimate(tally.Sums, tally.Reports)
		if err != nil {
			t.Fatal(err)
		}
		off := e.Values[0] - n*2
		squares, stated = squares+off*off, e.StdDev[0]*e.StdDev[0]
	}
	if ratio := squares / runs / stated; ratio < 0.12 || ratio > 3.4 {
		t.Errorf("the mean square is %v times what is said", ratio)
	}
}

// TestLocalTallies: of what 3000 devices send, mixed, each count is within the interval
// that misses it once in 10^8 (of 700 counts in all once in 10^5, by seeds that are fixed).
func TestLocalTallies(t *testing.T) {
	for name, r := range messageVariants() {
		z, local := r.Randomizer.(PlaceRandomizer)
		if !local {
			continue
		}
		m, rng := seeded(t, r, byte(len(name)))
		q, places := r.Given(), 0
		if places = q.Aggregates(); q.Form() == YesOrNo {
			places = 2
		}
		var answers [][]uint64
		held := make([]float64, places)
		for range 3000 {
			at := min(int(rng.ExpFloat64()*float64(places)/3), places-1)
			held[at]++
			answer := []uint64{uint64(at)}
			if q.Form() == Numbers {
				answer = make([]uint64, places)
				answer[at] = 1
			}
			answers = append(answers, answer)
		}
		if q.Form() == YesOrNo {
			held = held[1:]
		}
		tally := collected(t, m, rng, answers)
		e, err := r.Estimate(tally.Sums, tally.Reports)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range held {
			if in := e.Interval(i, 5.73); want < in[0] || want > in[1] {
				t.Errorf("%s (%v): place %d has %v, estimated %v within %v", name, z, i, want, e.Values[i], in)
			}
		}
	}
}

// TestHostileMessages: of one and two bytes all messages, and some of other lengths: those
// that no device sends are counted and add nothing.
func TestHostileMessages(t *testing.T) {
	all := messageVariants()
	for name, valid := range map[string]func(x uint64) bool{
		"shuffled krr":   func(x uint64) bool { return x < 5 },
		"direct count":   func(x uint64) bool { return x < 2 },
		"shuffled count": func(x uint64) bool { return x < 2 },
		"direct pgr":     func(x uint64) bool { return x < uint64(all["direct pgr"].Query.Aggregates()) },
		"shuffled rappor": func(x uint64) bool {
			low := x>>8 | x<<8&0xff00 // the first byte has the first bits
			return low < 1<<13 && uint64(bits.OnesCount64(low)) <= all["shuffled rappor"].Query.(Multihot).MaxWeight
		},
	} {
		r := *all[name]
		r.MinBatch = 2
		m, err := r.Messenger()
		if err != nil {
			t.Fatal(err)
		}
		good, err := m.Messages(nil)
		if err != nil {
			t.Fatal(err)
		}
		good = append(good, good...)
		base, err := m.Tally(good)
		if err != nil {
			t.Fatal(err)
		}
		accepted := 0
		for x := range uint64(1) << (8 * m.MessageSize()) {
			b := binary.BigEndian.AppendUint64(nil, x)[8-m.MessageSize():]
			got, err := m.Tally(append(good, b))
			if err != nil {
				t.Fatal(err)
			}
			more := int64(0)
			for i := range got.Sums {
				if d := got.Sums[i] - base.Sums[i]; d < 0 || d > 1 {
					t.Fatalf("%s: %x adds %d to place %d", name, b, d, i)
				} else {
					more += d
				}
			}
			if took := got.Rejected == 0; took != valid(x) || took != (got.Reports == 3) || !took && more != 0 {
				t.Fatalf("%s: %x is taken: %v, %+v", name, b, took, got)
			} else if took {
				accepted++
			}
		}
		if q, ok := r.Query.(Multihot); accepted < 2 || ok && q.MaxWeight >= uint64(q.Length) {
			t.Errorf("%s: %d messages are taken of %v", name, accepted, q)
		}
		for n := range 9 {
			if n == m.MessageSize() {
				continue
			}
			if got, err := m.Tally(append(good, make([]byte, n))); err != nil || got.Rejected != 1 || got.Reports != 2 {
				t.Errorf("%s: a message of %d bytes: %+v, %v", name, n, got, err)
			}
		}
		// With so many rejected that too few are left, nothing is said.
		if got, err := m.Tally([][]byte{good[0], make([]byte, 9), make([]byte, 9)}); !isOfMessages(err) || got.Sums != nil {
			t.Errorf("%s: one report of a batch of two: %+v, %v", name, got, err)
		}
	}
}

func isOfMessages(err error) bool {
	e := new(MessagesError)
	return errors.As(err, &e)
}

// TestHostileCloak: residues that no device sends count as 0, and numbers of messages that
// no batch has are refused, as is a sum that is none.
func TestHostileCloak(t *testing.T) {
	r := made(shuffledPath(), account.Options{Query: Sum{Max: 9}, MinBatch: 3, Randomizer: Cloak{Kind: SumPreservingCloak, Users: 4, Epsilon: Decimal{1, 0}}})
	m, err := r.Messenger()
	if err != nil {
		t.Fatal(err)
	}
	each, size, modulus := m.MessagesPerContribution(), m.MessageSize(), r.Randomizer.(Cloak).Modulus
	zeros := func(contributions int) (list [][]byte) {
		for range contributions * each {
			list = append(list, make([]byte, size))
		}
		return list
	}
	residue := func(x uint64) []byte { return binary.BigEndian.AppendUint64(nil, x)[8-size:] }
	for _, c := range []struct {
		with     []byte
		sum      int64
		rejected uint64
		refused  bool
	}{
		{residue(1), 1, 0, false}, {residue(36), 36, 0, false}, {residue(72), 72, 0, false}, {residue(73), 0, 0, true},
		{residue(modulus - 1), -1, 0, false}, {residue(modulus - 36), -36, 0, false}, {residue(modulus - 37), 0, 0, true},
		{residue(modulus), 0, 1, false}, {make([]byte, size+1), 0, 1, false}, {make([]byte, size-1), 0, 1, false}, {nil, 0, 1, false},
		{make([]byte, 9), 0, 1, false},
	} {
		list := zeros(3)
		list[5] = c.with
		got, err := m.Tally(list)
		if c.refused {
			if !isOfMessages(err) || got.Sums != nil {
				t.Errorf("%x: %+v, %v", c.with, got, err)
			}
		} else if err != nil || got.Sums[0] != c.sum || got.Rejected != c.rejected || got.Reports != 3 {
			t.Errorf("%x: %+v, %v, want %+v", c.with, got, err, c)
		}
	}
	for name, list := range map[string][][]byte{
		"none": nil, "one lost": zeros(3)[1:], "one too many": append(zeros(3), make([]byte, size)), "too few": zeros(2), "more than there is room for": zeros(5),
	} {
		if got, err := m.Tally(list); !isOfMessages(err) || got.Sums != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := m.Tally(zeros(4)); err != nil {
		t.Errorf("as many as there is room for: %v", err)
	}
}

// TestNoAnswers: numbers that are no answer are refused, and nobody is told what they were.
func TestNoAnswers(t *testing.T) {
	all := messageVariants()
	for name, list := range map[string][][]uint64{
		"modern":          {{}, {21}, {1, 1}, {math.MaxUint64}},
		"direct count":    {{}, {2}, {0, 0}},
		"shuffled pgr":    {{300}, {1 << 63}},
		"direct rappor":   {{1}, {1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		"shuffled krr":    {{5}},
		"shuffled rappor": {make([]uint64, 14)},
	} {
		m, err := all[name].Messenger()
		if err != nil {
			t.Fatal(err)
		}
		for _, answer := range list {
			if _, err := m.Messages(answer); !errors.As(err, new(*AnswerError)) {
				t.Errorf("%s: %d: %v", name, answer, err)
			}
		}
	}
	for name, r := range variants() {
		if _, err := r.Messenger(); !isInvalid(err, "path") {
			t.Errorf("%s: messages on the path of two servers: %v", name, err)
		}
	}
}
