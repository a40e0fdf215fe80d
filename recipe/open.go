package recipe

import (
	"fmt"
	"sync"

	"github.com/starling-agg/starling/dap"
)

// A Prover says what recipes guarantee. It must be safe for concurrent use.
type Prover interface {
	// Prove returns the proof of the guarantee of a recipe that is valid and adds noise. It
	// fails with *[ClaimError] where the choices do not bear out the claim, and with
	// *[InvalidError] where what they give cannot be computed.
	Prove(*Recipe) (Proof, error)
}

// A Proof is what one recipe guarantees. It must be safe for concurrent use.
type Proof interface {
	// Guarantee returns the guarantee, which nobody changes.
	Guarantee() *Guarantee
	// After returns the loss of the first rounds, 1 up to the claim's, in which a device
	// decides, and UnconditionalAfter the like that counts on none of the recipe's
	// conditions.
	After(rounds uint32) (Loss, error)
	UnconditionalAfter(rounds uint32) (Loss, error)
}

// A Checked is a recipe that was read and found valid, with what follows from its bytes and
// the guarantee that was proved of it. Only [Open] makes one, so that whoever is handed one
// checks nothing again. It is safe for concurrent use.
type Checked struct {
	recipe *Recipe
	bytes  []byte
	id     ID
	task   *dap.TaskConfiguration
	taskID dap.TaskID
	proof  Proof

	mu            sync.Mutex
	after         map[uint32]Loss
	unconditional map[uint32]Loss
}

// Open reads a recipe, checks it, and has its guarantee proved, once. It fails as [Read],
// [Recipe.Validate] and the prover do. A recipe without noise guarantees nothing, and the
// prover is not asked about it; it fails with *[ClaimError] if it claims something.
func Open(b []byte, p Prover) (*Checked, error) {
	r, err := Read(b)
	if err != nil {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	c := &Checked{
		recipe: r, bytes: append([]byte(nil), b...), after: make(map[uint32]Loss), unconditional: make(map[uint32]Loss),
	}
	if c.id, err = r.ID(); err != nil {
		return nil, err
	}
	if r.Path.Proofs() {
		if c.task, err = r.Task(); err != nil {
			return nil, err
		}
		c.taskID = c.task.TaskID()
	}
	if !r.Exact() {
		c.proof, err = p.Prove(r)
	} else if claim, ok := r.Claim.(ApproxDP); ok {
		err = &ClaimError{claim, NoPrivacy}
	} else {
		c.proof = nothing{r}
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Recipe returns the recipe; not to be changed.
func (c *Checked) Recipe() *Recipe { return c.recipe }

// Bytes returns what was read; not to be changed.
func (c *Checked) Bytes() []byte { return c.bytes }

// ID returns the recipe's id.
func (c *Checked) ID() ID { return c.id }

// Task returns the recipe's DAP task, nil for a path that is not that of DAP.
func (c *Checked) Task() (dap.TaskID, *dap.TaskConfiguration) { return c.taskID, c.task }

// Guarantee returns what was proved; not to be changed.
func (c *Checked) Guarantee() *Guarantee { return c.proof.Guarantee() }

// LossAfter returns the loss of the first rounds, 1 up to the claim's, in which a device
// decides: what its ledger charges in all once it has decided so often. It is [NoPrivacy]
// for a recipe without noise.
func (c *Checked) LossAfter(rounds uint32) (Loss, error) {
	g := c.Guarantee()
	switch rounds {
	case g.Rounds:
		return g.Loss, nil
	case 1:
		return g.PerRound, nil
	}
	return c.once(c.after, rounds, c.proof.After)
}

// UnconditionalAfter is the like that counts on none of [Recipe.Conditions]: what the
// rounds cost even where it is known who sent what.
func (c *Checked) UnconditionalAfter(rounds uint32) (Loss, error) {
	g := c.Guarantee()
	if rounds == g.Rounds {
		return g.Unconditional, nil
	}
	if len(g.Conditions) == 0 {
		return c.LossAfter(rounds)
	}
	return c.once(c.unconditional, rounds, c.proof.UnconditionalAfter)
}

// once asks about a number of rounds the first time, and remembers the answer.
func (c *Checked) once(known map[uint32]Loss, rounds uint32, ask func(uint32) (Loss, error)) (Loss, error) {
	if most := c.Guarantee().Rounds; rounds == 0 || rounds > most {
		return Loss{}, &InvalidError{"claim.rounds", fmt.Sprintf("are %d, not %d", most, rounds)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := known[rounds]; ok {
		return l, nil
	}
	l, err := ask(rounds)
	if err == nil {
		known[rounds] = l
	}
	return l, err
}

// nothing is the proof of a recipe without noise.
type nothing struct{ *Recipe }

func (n nothing) Guarantee() *Guarantee {
	return n.WithoutNoise()
}

func (nothing) After(uint32) (Loss, error)              { return NoPrivacy, nil }
func (nothing) UnconditionalAfter(uint32) (Loss, error) { return NoPrivacy, nil }
