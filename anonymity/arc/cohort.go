package arc

import "math/bits"

// A Cohort is what is said of the credentials of an epoch when it begins, each number over
// the signature of its party.
type Cohort struct {
	// Leader and Helper are how many devices the issuer beside each has answered.
	Leader, Helper uint64
	// Attested is how many devices the attester let ask, one of the issuers or both.
	Attested uint64
}

// Open reports whether a device may present in the epoch, given the least number of
// devices that the recipe wants to hold both credentials (min, at least 1).
//
// Two counts of issuers alone do not say that they are of the same devices: issuers that
// answer a half each, and one device in common, leave that one alone. But of the devices
// attested at least Leader + Helper - Attested were answered by both, and this must reach
// min. Neither count may be above Attested, and the two must lie within 2 % of the larger:
// a larger gap is a fault, or somebody choosing.
//
// An attester and an issuer that give credentials to one device alone would know every
// presentation as hers. Credentials for an epoch are therefore issued only before it
// begins, the counts are published at its start, and nobody presents before. An issuer that
// lies about its count, together with the attester, is not found out so
// (docs/proofs/tokens.md, theorem 4).
func (c Cohort) Open(min uint64) bool {
	small, large := c.Leader, c.Helper
	if small > large {
		small, large = large, small
	}
	// both = small - (Attested - large): no sum, and so no overflow.
	if min == 0 || large > c.Attested || small < c.Attested-large || small-(c.Attested-large) < min {
		return false
	}
	// small/large >= 98/100, without overflow.
	h1, l1 := bits.Mul64(small, 100)
	h2, l2 := bits.Mul64(large, 98)
	return h1 > h2 || h1 == h2 && l1 >= l2
}
