package recipe_test

import (
	"errors"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// counting is the accountant, and counts how often it is asked.
type counting struct {
	proofs int
	rounds map[uint32]int // how often about the loss after so many rounds
	open   map[uint32]int // of those on none of the conditions
}

type countingProof struct {
	Proof
	c *counting
}

func (c *counting) Prove(r *Recipe) (Proof, error) {
	c.proofs++
	p, err := account.Prover.Prove(r)
	return countingProof{p, c}, err
}

func (p countingProof) After(n uint32) (Loss, error) {
	p.c.rounds[n]++
	return p.Proof.After(n)
}

func (p countingProof) UnconditionalAfter(n uint32) (Loss, error) {
	p.c.open[n]++
	return p.Proof.UnconditionalAfter(n)
}

// Open computes once, and what it made says what the accountant says, whatever is asked how
// often.
func TestOpen(t *testing.T) {
	for name, r := range map[string]*Recipe{"doctor": doctor(), "three rounds": ofRounds(doctor(), 3), "coins": ofRounds(needles(), 3)} {
		b, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		asked := &counting{rounds: map[uint32]int{}, open: map[uint32]int{}}
		c, err := Open(b, asked)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		id, err1 := r.ID()
		task, err2 := r.Task()
		want, err3 := account.Guarantee(r)
		taskID, opened := c.Task()
		if err := errors.Join(err1, err2, err3); err != nil || c.ID() != id || taskID != task.TaskID() || string(opened.Bytes()) != string(task.Bytes()) ||
			c.Guarantee().Loss != want.Loss || string(c.Bytes()) != string(b) {
			t.Errorf("%s: opened as %v of task %v with %v, %v", name, c.ID(), taskID, c.Guarantee().Loss, err)
		}
		for range 3 {
			for n := uint32(1); n <= want.Rounds; n++ {
				got, err1 := c.LossAfter(n)
				open, err2 := c.UnconditionalAfter(n)
				if err := errors.Join(err1, err2); err != nil {
					t.Fatalf("%s: after %d rounds: %v", name, n, err)
				}
				if want, _ := account.LossAfter(r, n); got != want {
					t.Errorf("%s: after %d rounds %v, want %v", name, n, got, want)
				}
				if want, _ := account.UnconditionalAfter(r, n); open != want {
					t.Errorf("%s: after %d rounds %v on no conditions, want %v", name, n, open, want)
				}
			}
		}
		if asked.proofs != 1 || asked.rounds[want.Rounds] != 0 || asked.open[want.Rounds] != 0 {
			t.Errorf("%s: asked again about what was proved: %+v", name, asked)
		}
		for n := uint32(1); n < want.Rounds; n++ {
			// PerRound is the first
			if most := min(1, int(n-1)); asked.rounds[n] != most || asked.open[n] > 1 {
				t.Errorf("%s: asked %d and %d times about %d rounds", name, asked.rounds[n], asked.open[n], n)
			}
		}
		for _, n := range []uint32{0, want.Rounds + 1} {
			if _, err := c.LossAfter(n); !errors.As(err, new(*InvalidError)) {
				t.Errorf("%s: after %d of %d rounds: %v", name, n, want.Rounds, err)
			}
		}
	}
}

// ofRounds is the recipe over rounds rounds, with a claim that holds.
func ofRounds(r *Recipe, rounds uint32) *Recipe {
	claim := r.Claim.(ApproxDP)
	claim.Rounds, claim.Epsilon = rounds, Decimal{Coefficient: 100}
	r.Claim = claim
	return r
}

// Open refuses each kind of recipe with the error that says why, and asks nobody about one
// that is not sound or adds no noise.
func TestOpenRefuses(t *testing.T) {
	exact := func(claim Claim) *Recipe {
		r := doctor()
		r.Noise, r.Claim = NoNoise{}, claim
		return r
	}
	invalid := doctor()
	invalid.MinBatch = 1
	optimist := doctor()
	claim := optimist.Claim.(ApproxDP)
	claim.Epsilon = Decimal{1, 3}
	optimist.Claim = claim
	for name, c := range map[string]struct {
		r      *Recipe
		proofs int
		is     func(error) bool
	}{
		"invalid":               {invalid, 0, func(err error) bool { return errors.As(err, new(*InvalidError)) }},
		"a claim without noise": {exact(claim), 0, func(err error) bool { return errors.As(err, new(*ClaimError)) }},
		"too good a claim":      {optimist, 1, func(err error) bool { return errors.As(err, new(*ClaimError)) }},
		"without noise":         {exact(NoClaim{}), 0, func(err error) bool { return err == nil }},
	} {
		b, err := c.r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		asked := &counting{rounds: map[uint32]int{}, open: map[uint32]int{}}
		opened, err := Open(b, asked)
		if !c.is(err) || asked.proofs != c.proofs || (opened == nil) != (err != nil) {
			t.Errorf("%s: %v, %d proofs", name, err, asked.proofs)
		}
		if opened == nil {
			continue
		}
		if l, err := opened.LossAfter(1); err != nil || l.Finite() || opened.Guarantee().Finite() {
			t.Errorf("%s: %v costs %v, %v", name, opened.Guarantee().Loss, l, err)
		}
	}
	if _, err := Open([]byte{1, 2}, account.Prover); !errors.Is(err, ErrMalformed) {
		t.Errorf("no recipe: %v", err)
	}
}

// BenchmarkOpen opens recipes by the accountant, as send does once, and asks what the first
// round costs, as its ledger does.
func BenchmarkOpen(b *testing.B) {
	for name, r := range map[string]*Recipe{"formula": doctor(), "coins": ofRounds(needles(), 10)} {
		b.Run(name, func(b *testing.B) {
			text, err := r.Append(nil)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				c, err := Open(text, account.Prover)
				if err == nil {
					_, err = c.LossAfter(1)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
