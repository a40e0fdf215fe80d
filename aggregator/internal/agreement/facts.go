package agreement

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/release"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/wire"
)

// domain opens everything that is hashed here.
const domain = "starling agreement v1"

// A Digest is a keyed digest. Two are equal where what they are of is; that is all they
// tell to whoever has not the token between the aggregators, and its holders hold the rest.
type Digest [16]byte

// String is its beginning, for people who compare by telephone.
func (d Digest) String() string { return hex.EncodeToString(d[:4]) }

// A Key makes the digests of one task.
type Key struct{ secret []byte }

// NewKey derives the key of a task from the token with which its leader comes to its
// helper.
func NewKey(peerToken string, id dap.TaskID) Key {
	return Key{mac([]byte(peerToken), []byte(domain), []byte{0}, id[:])}
}

func mac(key []byte, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, key)
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

// digest is of some bytes that mean what.
func (k Key) digest(what string, parts ...[]byte) Digest {
	return Digest(mac(k.secret, append([][]byte{[]byte(what), {0}}, parts...)...)[:len(Digest{})])
}

// A VerifyKey is a verification key that an aggregator holds.
type VerifyKey struct {
	ID     uint8
	Digest Digest
}

// Facts are what an aggregator holds of a task, as far as the other has to hold the same.
type Facts struct {
	// Config is of the TaskConfiguration, Collector of the key to which aggregate shares
	// are sealed, with its id. Calendar and Noise are zero in tasks without a recipe, where
	// noise is each aggregator's own affair.
	Config, Collector, Calendar, Noise Digest
	// Wire is the draft of DAP that the task speaks.
	Wire    uint16
	Framing dap.Framing
	// ClosedIn is the restore epoch in which the task was closed here; 0 while it is open.
	ClosedIn uint32
	// Keys are in the order of their ids. The leader begins jobs with the first.
	Keys []VerifyKey
	// Ledger is what was released.
	Ledger Tally
	// Seen is the most releases that the helper, in its life, was shown of its leader's, as
	// far as it has made them too; 0 at the leader.
	Seen uint64
	leaf *leaf // of a book, in its own facts
	// Closing is whether the task was closed here; messages of version 1 leave it out.
	Closing Closing
}

// Of are the facts of a task, but for its releases.
func Of(t *task.Task, k Key) (*Facts, error) {
	s := t.CollectorKey.Suite()
	collector, err := dap.HpkeConfig{ID: t.CollectorID, KEM: s.KEM, KDF: s.KDF, AEAD: s.AEAD, Key: t.CollectorKey.Bytes()}.Append(nil)
	if err != nil {
		return nil, fmt.Errorf("agreement: the collector's key: %w", err)
	}
	f := &Facts{
		Config: k.digest("configuration", t.Config.Bytes()), Collector: k.digest("collector", collector),
		Wire: t.Dialect.Version.Number(), Framing: t.Dialect.Framing,
	}
	if c := t.Calendar; c != nil {
		calendar := fmt.Appendf(nil, "%d %t %d", c.Units, c.Alone, c.Grace)
		if c.Views != nil {
			calendar = fmt.Appendf(calendar, " views %v keep %d", c.Spans(), c.Views.Keep)
		}
		f.Calendar = k.digest("calendar", calendar)
		f.Noise = k.digest("noise", []byte(release.Mechanisms(t)))
	}
	for id, key := range t.Keys {
		f.Keys = append(f.Keys, VerifyKey{id, k.digest("verification key", []byte{id}, key[:])})
	}
	slices.SortFunc(f.Keys, func(a, b VerifyKey) int { return cmp.Compare(a.ID, b.ID) })
	return f, nil
}

// key finds a verification key.
func (f *Facts) key(id uint8) (Digest, bool) {
	for _, k := range f.Keys {
		if k.ID == id {
			return k.Digest, true
		}
	}
	return Digest{}, false
}

// fence is what a request about jobs or shares carries, whose jobs use the verification key
// of that id: equal where the two hold the same of all that can spoil a report or a batch.
// It is false where there is no such key.
func (f *Facts) fence(k Key, id uint8) (Digest, bool) {
	key, ok := f.key(id)
	if !ok {
		return Digest{}, false
	}
	return k.digest("fence", wire.MustAppend(nil, f.bound), []byte{id}, key[:]), true
}

// Digest is equal at two aggregators that need not ask one another for more.
// in messages of that version.
func (f *Facts) Digest(k Key, version uint8) Digest {
	return k.digest("facts", wire.MustAppend(nil, func(c *wire.Coder) {
		f.bound(c)
		f.codeKeys(c)
		f.Ledger.code(c)
		if version >= 2 {
			c.Uint8((*uint8)(&f.Closing.State), "closing") // why, each has in its own words
		}
	}))
}

// said is what messages of a version say of the closing.
func (f *Facts) said(version uint8) ClosingState {
	if version < 2 {
		return Live
	}
	return f.Closing.State
}

// A Print stands for one release, at both aggregators.
type Print uint64

// A Tally is of a set of releases: how many, and a sum of keyed hashes, so that the order
// in which they were made, which differs between the two, does not matter.
type Tally struct {
	Releases uint64
	Sum      [32]byte // mod 2^256, big endian
}

// hash is of one release.
func (k Key) hash(r *store.Released) []byte {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], r.Count)
	return mac(k.secret, []byte("release\x00"), []byte{byte(len(r.Batch))}, r.Batch, n[:], r.Checksum[:])
}

// print is of one release.
func (k Key) print(r *store.Released) Print { return Print(binary.BigEndian.Uint64(k.hash(r))) }

// Add counts one release.
func (t *Tally) Add(k Key, r *store.Released) {
	h := k.hash(r)
	carry := uint64(0)
	for i := 24; i >= 0; i -= 8 {
		var sum uint64
		sum, carry = bits.Add64(binary.BigEndian.Uint64(t.Sum[i:]), binary.BigEndian.Uint64(h[i:]), carry)
		binary.BigEndian.PutUint64(t.Sum[i:], sum)
	}
	t.Releases++
}
