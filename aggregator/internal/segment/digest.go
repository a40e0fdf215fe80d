package segment

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// A SetKey is a secret of one store, under which sets of ids are digested.
type SetKey [32]byte

// domainSetKey makes of a store's key the one of its digests; docs/registry.md lists it.
const domainSetKey = "starling replay digest v1"

// SetKeyOf is the key of the digests of the store whose own key that is.
func SetKeyOf(store []byte) SetKey {
	return sha256.Sum256(append([]byte(domainSetKey), store...))
}

// A SetDigest tells sets of ids apart, and the digest of a union of disjoint sets is the
// sum of theirs: the sum, modulo 2^256, of SHA-256(key || id), or of
// SHA-256(key || id || owner). It proves several runs
// that were lost together, of which nobody knows which id was in which. An attacker who
// does not know the key can only guess another set of the same digest; a digest without a
// key could be met, as an XOR can.
type SetDigest [32]byte

// Add adds the digest of a set that has no id in common.
func (d *SetDigest) Add(other SetDigest) {
	var carry uint64
	for i := 24; i >= 0; i -= 8 {
		var sum uint64
		sum, carry = bits.Add64(binary.BigEndian.Uint64(d[i:]), binary.BigEndian.Uint64(other[i:]), carry)
		binary.BigEndian.PutUint64(d[i:], sum)
	}
}

// Put adds one id.
func (d *SetDigest) Put(key *SetKey, id ReportID) { d.PutEntry(key, id[:]) }

// PutEntry adds one entry of a run: an id, with its owner where it has one.
func (d *SetDigest) PutEntry(key *SetKey, entry []byte) {
	var b [len(SetKey{}) + 2*idSize]byte
	n := copy(b[:], key[:])
	n += copy(b[n:], entry)
	d.Add(sha256.Sum256(b[:n]))
}

// DigestOf is the digest of distinct ids.
func DigestOf(key *SetKey, ids []ReportID) (d SetDigest) {
	for _, id := range ids {
		d.Put(key, id)
	}
	return d
}
