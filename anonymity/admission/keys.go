package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/internal/wire"
)

// ErrKeys: not the one encoding of a list of keys, or one that no gateway could use.
var ErrKeys = errors.New("admission: malformed keys")

// Keys are a gateway's private keys for tokens of a recipe's rounds: one for each round
// that begins in a key epoch.
type Keys struct {
	// Deployment is what the tokens are of, Recipe what the manifest names their public
	// keys by, and Task the DAP task whose uploads they let in.
	Deployment, Recipe, Task [32]byte
	// First is the number of the first round. Round n lasts from n times Length to n+1
	// times Length, in seconds since 1970.
	First, Length uint64
	// Grace is for how long after its end a round's tokens are taken, in seconds: for
	// requests that are sent again, and for clocks that differ.
	Grace uint64
	// Keys are those of First and the rounds after it, 1 to 2,000.
	Keys []*voprf.Key
}

// maxKeys bounds a list: rounds of a minute for a day, and more.
const maxKeys = 2000

// latest bounds when a list ends, in seconds since 1970, so that times can be computed
// with: the year 10889.
const latest = 1 << 48 / 1000

// Rounds are those that begin in a key epoch, by the rule of credentials (arc.EpochOf):
// the first, and how many, which may be more than one list has. Both lengths are in
// seconds. The error wraps [ErrKeys].
func Rounds(epoch, roundLength, epochLength uint64) (first uint64, n int, err error) {
	if roundLength == 0 || roundLength > epochLength {
		return 0, 0, fmt.Errorf("%w: a round of %d seconds, an epoch of %d", ErrKeys, roundLength, epochLength)
	}
	over, begin := bits.Mul64(epoch, epochLength)
	if over != 0 || begin > latest || epochLength > latest {
		return 0, 0, fmt.Errorf("%w: epoch %d ends after the end of time", ErrKeys, epoch)
	}
	first = (begin + roundLength - 1) / roundLength
	count := (begin+epochLength+roundLength-1)/roundLength - first
	return first, int(count), nil
}

// Generate makes the keys of n rounds, beside what is set of k.
func (k *Keys) Generate(n int) {
	k.Keys = make([]*voprf.Key, n)
	for i := range k.Keys {
		k.Keys[i] = voprf.GenerateKey()
	}
}

// Validate says whether a gateway could use the keys. The error wraps [ErrKeys].
func (k *Keys) Validate() error {
	n := uint64(len(k.Keys))
	if n == 0 || n > maxKeys {
		return fmt.Errorf("%w: %d keys, from 1 to %d make a list", ErrKeys, n, maxKeys)
	}
	if k.Length == 0 || k.Length > latest || k.Grace > latest || k.First > math.MaxInt64 {
		return fmt.Errorf("%w: round %d of %d seconds, with a grace of %d", ErrKeys, k.First, k.Length, k.Grace)
	}
	if over, end := bits.Mul64(k.First+n, k.Length); over != 0 || end > latest {
		return fmt.Errorf("%w: they end after the end of time", ErrKeys)
	}
	seen := make(map[voprf.PublicKey]bool, n)
	for i, key := range k.Keys {
		if seen[key.PublicKey()] {
			return fmt.Errorf("%w: key %d stands in the list twice", ErrKeys, i)
		}
		seen[key.PublicKey()] = true
	}
	return nil
}

// Public are the public keys, whose digest the manifest has.
func (k *Keys) Public() *voprf.RoundKeys {
	l := &voprf.RoundKeys{First: k.First, Length: k.Length}
	for _, key := range k.Keys {
		l.Keys = append(l.Keys, key.PublicKey())
	}
	return l
}

// Name names the keys: 16 bytes of a hash of what all devices know of them.
func (k *Keys) Name() [16]byte {
	h := sha256.New()
	h.Write([]byte("starling admission list v1"))
	h.Write(k.Deployment[:])
	h.Write(k.Recipe[:])
	h.Write(k.Task[:])
	digest := k.Public().Digest()
	h.Write(digest[:])
	return [16]byte(h.Sum(nil))
}

// Of returns the key of a round, and nil if the list does not have it.
func (k *Keys) Of(round uint64) *voprf.Key {
	if round < k.First || round-k.First >= uint64(len(k.Keys)) {
		return nil
	}
	return k.Keys[round-k.First]
}

// Round is what a token of a round admits to.
func (k *Keys) Round(number uint64) voprf.Round {
	return voprf.Round{Deployment: k.Deployment, Number: number}
}

// skew is by how much a device's clock may be ahead of the gateway's.
const skew = time.Minute

// Open says whether tokens of a round of the list are taken at a time: from a minute before
// it starts until its grace is over.
func (k *Keys) Open(round uint64, now time.Time) bool {
	if k.Of(round) == nil {
		return false
	}
	start := time.Unix(int64(round*k.Length), 0)
	return !now.Before(start.Add(-skew)) && now.Before(k.end(round))
}

func (k *Keys) end(round uint64) time.Time {
	return time.Unix(int64((round+1)*k.Length), 0).Add(time.Duration(k.Grace) * time.Second)
}

// End is when the last round's grace is over: the keys are to be destroyed then.
func (k *Keys) End() time.Time { return k.end(k.First + uint64(len(k.Keys)) - 1) }

const keysMagic = "starling admission secret v1"

// MaxFile bounds the encoding, in bytes.
const MaxFile = 64 << 10

// Append encodes the keys as a file, private ones included:
//
//	opaque magic[28] = "starling admission secret v1";
//	opaque deployment[32], recipe[32], task[32];
//	uint64 first, length, grace; (seconds)
//	opaque keys[32]<0..2^32-1>;
//	opaque check[32]; (SHA-256 of all before it)
//
// It fails as [Keys.Validate].
func (k *Keys) Append(b []byte) ([]byte, error) {
	if err := k.Validate(); err != nil {
		return b, err
	}
	from := len(b)
	b, err := wire.Append(b, ErrKeys, k.code)
	if err != nil {
		return b[:from], err
	}
	return wire.AppendSum(b, from), nil
}

// ReadKeys reads what [Keys.Append] wrote. The error wraps [ErrKeys], and has no byte of a
// key.
func ReadKeys(b []byte) (*Keys, error) {
	if len(b) > MaxFile {
		return nil, fmt.Errorf("%w: %d bytes", ErrKeys, len(b))
	}
	content, ok := wire.CutSum(b)
	if !ok {
		return nil, fmt.Errorf("%w: wrong checksum", ErrKeys)
	}
	k := &Keys{}
	if err := wire.Read(content, ErrKeys, k.code); err != nil {
		return nil, err
	}
	return k, k.Validate()
}

func (k *Keys) code(c *wire.Coder) {
	c.Const(keysMagic, "wrong magic")
	c.Fixed(k.Deployment[:], "deployment")
	c.Fixed(k.Recipe[:], "recipe")
	c.Fixed(k.Task[:], "task")
	c.Uint64(&k.First, "first")
	c.Uint64(&k.Length, "length")
	c.Uint64(&k.Grace, "grace")
	c.Nested32("keys", func() {
		wire.Items(c, &k.Keys, func(_ int, key **voprf.Key) {
			var b [voprf.KeySize]byte
			if c.Writing() {
				(*key).Append(b[:0])
			}
			if c.Fixed(b[:], "key"); c.Writing() || c.Err() != nil {
				return
			}
			var err error
			*key, err = voprf.ReadKey(b[:])
			c.Check(err == nil, "key out of bounds")
		})
	})
}

// String names the keys without telling any.
func (k *Keys) String() string {
	name := k.Name()
	return "admission keys " + hex.EncodeToString(name[:])
}
