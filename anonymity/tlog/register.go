package tlog

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/signed"
)

// A Claim is what follows from one entry, as whoever can read its body says.
type Claim struct {
	// About is what the entry is of, such as the manifest of one deployment and epoch: a
	// log holds one entry about it, for ever. Zero for an active set, and for what nobody
	// understands: that has a place, and no more follows from it.
	About [32]byte
	// From and Until bound the time in which devices need the entry; without an end it
	// holds until it is withdrawn. An entry that devices never need ends when it begins.
	From, Until time.Time
	// Owners may withdraw it. The first has signed it.
	Owners []signed.PublicKey
	// Withdraws is the leaf hash of the entry that ends by this one, and By its owner who
	// says so; zero in all others.
	Withdraws Hash
	By        signed.PublicKey
	// Stated is when an owner says to have made it; zero where the entry does not say.
	Stated time.Time
}

// Errors of entries that may not follow those that are there, to branch on with errors.Is.
var (
	// ErrDuplicate is what every *DuplicateError matches.
	ErrDuplicate = errors.New("tlog: another entry is about the same")
	// ErrWithdrawal: what is to be withdrawn is not in the log, is withdrawn already, or
	// belongs to others.
	ErrWithdrawal = errors.New("tlog: there is nothing to withdraw")
)

// A DuplicateError: an entry at another place is about the same.
type DuplicateError struct{ Index int64 }

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("tlog: entry %d is about the same: there is one for ever, such as one manifest of an epoch and revision, and one recipe of an id", e.Index)
}

// Is reports whether target is [ErrDuplicate].
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

// A Register knows what holds in a log, from the claims of its entries in their order. Its
// zero value is that of an empty log. Not safe for concurrent use.
type Register struct {
	claims []Claim
	ended  map[int64]bool
	about  map[[32]byte]int64
	leaves map[Hash]int64
}

// Size is the number of entries so far.
func (r *Register) Size() int64 { return int64(len(r.claims)) }

// Find is the place of the entry with a leaf hash.
func (r *Register) Find(leaf Hash) (int64, bool) {
	i, ok := r.leaves[leaf]
	return i, ok
}

// Check says whether an entry may come next: *[DuplicateError], [ErrWithdrawal].
func (r *Register) Check(leaf Hash, c Claim) error {
	if c.About == [32]byte{} {
		return nil // it claims nothing, and has its place
	}
	if i, ok := r.leaves[leaf]; ok {
		return &DuplicateError{i}
	}
	if i, ok := r.about[c.About]; ok {
		return &DuplicateError{i}
	}
	if c.Withdraws == (Hash{}) {
		return nil
	}
	i, ok := r.leaves[c.Withdraws]
	switch {
	case !ok:
		return fmt.Errorf("%w: no entry has the hash %x", ErrWithdrawal, c.Withdraws[:])
	case r.ended[i]:
		return fmt.Errorf("%w: entry %d is withdrawn already", ErrWithdrawal, i)
	case !slices.Contains(r.claims[i].Owners, c.By):
		return fmt.Errorf("%w: entry %d belongs to others than %s", ErrWithdrawal, i, c.By.Fingerprint())
	}
	return nil
}

// Add takes note of the next entry. It fails as [Register.Check], and then nothing has
// changed.
func (r *Register) Add(leaf Hash, c Claim) error {
	if err := r.Check(leaf, c); err != nil {
		return err
	}
	if r.ended == nil {
		r.ended, r.about, r.leaves = make(map[int64]bool), make(map[[32]byte]int64), make(map[Hash]int64)
	}
	i := r.Size()
	r.claims = append(r.claims, c)
	if _, twice := r.leaves[leaf]; !twice {
		r.leaves[leaf] = i
	}
	if c.About != [32]byte{} {
		r.about[c.About] = i
	}
	if c.Withdraws != (Hash{}) {
		r.ended[r.leaves[c.Withdraws]] = true
	}
	return nil
}

// Live are the places of all entries that hold at some time from one up to another,
// rising.
func (r *Register) Live(from, until time.Time) []int64 {
	var live []int64
	for i, c := range r.claims {
		if r.holds(int64(i), c, from, until) {
			live = append(live, int64(i))
		}
	}
	return live
}

func (r *Register) holds(i int64, c Claim, from, until time.Time) bool {
	if r.ended[i] || c.About == [32]byte{} || !c.From.Before(until) {
		return false
	}
	return c.Until.IsZero() || c.Until.After(from) && c.Until.After(c.From)
}
