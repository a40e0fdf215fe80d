package recipe

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/recipe/internal/twin"
	"github.com/starling-agg/starling/shuffle/cloak"
)

// A wrapper makes bytes of the messages of a [Cloak]: the number of the block, where there
// are several, and the residues, all in as few bytes as hold each. The last block may have
// fewer numbers; zeros take the place of the rest.
type wrapper struct{ p *cloak.Params }

// messages is how many a contribution has.
func (w wrapper) messages() int { return w.p.Blocks() * w.p.Messages() }

// head is how long the number of a block is.
func (w wrapper) head() int {
	if w.p.Blocks() == 1 {
		return 0
	}
	return bytesFor(uint64(w.p.Blocks()))
}

func (w wrapper) residue() int { return bytesFor(w.p.Modulus()) }

// size is that of a message.
func (w wrapper) size() int {
	from, to := w.p.Block(0)
	return w.head() + (to-from)*w.residue()
}

func (w wrapper) wrap(m cloak.Message) []byte {
	b := make([]byte, w.size())
	putNumber(b[:w.head()], uint64(m.Block))
	for i, x := range m.Residues {
		at := w.head() + i*w.residue()
		putNumber(b[at:at+w.residue()], x)
	}
	return b
}

// unwrap is false for what no device sends that follows the recipe.
func (w wrapper) unwrap(b []byte) (cloak.Message, bool) {
	if len(b) != w.size() {
		return cloak.Message{}, false
	}
	block := number(b[:w.head()])
	if block >= uint64(w.p.Blocks()) {
		return cloak.Message{}, false
	}
	from, to := w.p.Block(int(block))
	m := cloak.Message{Block: uint32(block), Residues: make([]uint64, to-from)}
	b = b[w.head():]
	for i := 0; len(b) > 0; i, b = i+1, b[w.residue():] {
		x := number(b[:w.residue()])
		if i >= len(m.Residues) {
			if x != 0 {
				return cloak.Message{}, false
			}
			continue
		}
		if x >= w.p.Modulus() {
			return cloak.Message{}, false
		}
		m.Residues[i] = x
	}
	return m, true
}

func (z Cloak) messenger(r *Recipe) (*Messenger, error) {
	p, err := z.protocol(r.Query)
	if err != nil {
		return nil, err
	}
	return z.messengerOf(r, p), nil
}

func init() {
	twin.Cloak = func(r any, with func(params any) any) (any, error) {
		of := r.(*Recipe)
		z, ok := of.Randomizer.(Cloak)
		if !ok {
			return nil, fmt.Errorf("recipe: a twin of %T", of.Randomizer)
		}
		p, err := z.protocol(of.Query)
		if err != nil {
			return nil, err
		}
		return z.messengerOf(of, with(p).(*cloak.Params)), nil
	}
}

// messengerOf is that of a protocol.
func (z Cloak) messengerOf(r *Recipe, p *cloak.Params) *Messenger {
	w, q := wrapper{p}, r.Query
	m := &Messenger{given: r.Given(), least: r.MinBatch, messages: w.messages(), size: w.size(), sums: q.Aggregates(), whole: r.Whole()}
	m.spoils = z.spoils(r, p)
	m.encode = func(answer []uint64) ([][]byte, error) {
		units := linear(q, answer)
		defer clear(units)
		list, err := p.EncodeUnits(units)
		if err != nil {
			return nil, fmt.Errorf("recipe: messages: %w", err)
		}
		out := make([][]byte, len(list))
		for i, x := range list {
			out[i] = w.wrap(x)
			clear(x.Residues)
		}
		return out, nil
	}
	m.tally = func(messages [][]byte) (Tally, error) {
		var t Tally
		list := make([]cloak.Message, 0, len(messages))
		for _, b := range messages {
			x, ok := w.unwrap(b)
			if !ok {
				t.Rejected++
				if p.Blocks() > 1 {
					continue // nobody knows of which block it was to be
				}
				from, to := p.Block(0)
				x = cloak.Message{Residues: make([]uint64, to-from)}
			}
			list = append(list, x)
		}
		estimates, users, err := p.AnalyzeSome(list)
		if missing := new(cloak.CountError); errors.As(err, &missing) {
			if p.Blocks() > 1 && uint64(len(messages)) <= z.Users*uint64(m.messages) {
				return t, &MessagesError{uint64(len(messages)), "are not as many for each block of numbers: a device lied, or messages are missing"}
			}
			return t, &MessagesError{missing.Got, fmt.Sprintf("are of more than %d contributions, for which a sum has room", z.Users)}
		} else if err != nil {
			return t, fmt.Errorf("recipe: tally: %w", err)
		}
		t.Sums = make([]int64, len(estimates))
		for i, e := range estimates {
			if e.Unlike {
				return Tally{Rejected: t.Rejected}, &MessagesError{uint64(len(messages)), "have a sum that is none of answers: a device lied, or messages are missing or wrong"}
			}
			t.Sums[i] = e.Units
		}
		t.Reports = users
		return t, nil
	}
	return m
}

// spoils says what one message, or one device, does to a sum.
func (z Cloak) spoils(r *Recipe, p *cloak.Params) string {
	seen := fmt.Sprintf("a wrong sum that is random is seen with probability %.3g, one that is chosen never", p.Unlike())
	if r.Query.Aggregates() > 1 {
		seen = fmt.Sprintf("a wrong sum that is random is seen with probability %.3g at each number, one that is chosen never; devices prove nothing of "+
			"the numbers that they send, so that one that lies may add anything to every number of the result", p.Unlike())
	}
	if z.parted() {
		return fmt.Sprintf("one message that is lost, or one contribution that is a lie, spoils the sum of one of %d independent batches; %s. "+
			"A batch that is known to be spoiled, or whose sums differ from the others' by more than chance, is left out and named, and the estimate "+
			"is scaled to all; a lie of less goes unseen, and one who contributes to each batch spoils all", z.Parts, seen)
	}
	return fmt.Sprintf("one message that is lost, or one device that lies, spoils the sum of a whole batch; %s. Who would lose less collects in "+
		"independent batches, of which each device draws one", seen)
}
