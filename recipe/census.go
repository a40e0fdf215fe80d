package recipe

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/crypto/cryptobyte"
)

// A Census is what leader and helper each say in a transparency log before a recipe may ask by
// it: that a histogram which was released shows for how many devices clauses hold (paper 000
// section 5.5). A [Certificate] names it by its hash.
type Census struct {
	Recipe     ID // of the histogram
	Clauses    []Clause
	LowerBound uint64 // devices
}

// Census is the one that a targeted recipe needs.
func (t *Targeting) Census() *Census {
	return &Census{Recipe: t.Certificate.Recipe, Clauses: t.Clauses, LowerBound: t.Certificate.LowerBound}
}

// Append appends the encoding: recipe[32]; clauses<0..2^16-1> as in a recipe; uint64
// lower_bound. It fails where a clause is too long.
func (c *Census) Append(dst []byte) ([]byte, error) {
	b := cryptobyte.NewBuilder(dst)
	b.AddBytes(c.Recipe[:])
	addClauses(b, c.Clauses)
	b.AddUint64(c.LowerBound)
	out, err := b.Bytes()
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	return out, nil
}

// ReadCensus reads exactly one, with clauses that a recipe may have. It fails as [Read].
func ReadCensus(b []byte) (*Census, error) {
	c, d := new(Census), decoder{s: b}
	d.field("recipe", func() bool { return d.s.CopyBytes(c.Recipe[:]) })
	c.Clauses = readClauses(&d)
	c.LowerBound = d.u64("lower bound")
	d.end("census")
	if d.err != nil {
		return nil, d.err
	}
	v := new(validator)
	if v.clauses(c.Clauses); len(v.errs) > 0 {
		return nil, errors.Join(v.errs...)
	}
	return c, nil
}

func (c *Census) String() string {
	return fmt.Sprintf("of at least %d devices whose %s", c.LowerBound, inWords(c.Clauses))
}

// censusDomain opens what the hash of a count is over.
const censusDomain = "starling census v1"

// Hash names the census in a [Certificate]: SHA-256 over a domain and the encoding. It fails
// as [Census.Append].
func (c *Census) Hash() (Hash, error) {
	b, err := c.Append([]byte(censusDomain))
	return sha256.Sum256(b), err
}
