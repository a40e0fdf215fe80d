package sealed

import "fmt"

// Keyring holds the key pairs that a party accepts, by id. It is immutable and safe for
// concurrent use; to rotate keys, make another.
type Keyring struct {
	keys  []*KeyPair // in the order given
	index [256]*KeyPair
}

// NewKeyring takes any number of key pairs of distinct ids, in order of preference.
func NewKeyring(keys ...*KeyPair) (*Keyring, error) {
	r := &Keyring{keys: append([]*KeyPair(nil), keys...)}
	for _, k := range keys {
		if r.index[k.id] != nil {
			return nil, fmt.Errorf("%w: id %d is there twice", ErrKey, k.id)
		}
		r.index[k.id] = k
	}
	return r, nil
}

// Keys are the key pairs in the order given to [NewKeyring].
func (r *Keyring) Keys() []*KeyPair { return append([]*KeyPair(nil), r.keys...) }

// Has says whether there is a key of that id: all that an upload may ask before it is
// acknowledged.
func (r *Keyring) Has(id uint8) bool { return r.index[id] != nil }

// Open decrypts one message. It fails with [ErrUnknownKey] or [ErrOpen].
func (r *Keyring) Open(id uint8, enc, info, aad, ciphertext []byte) ([]byte, error) {
	k := r.index[id]
	if k == nil {
		return nil, fmt.Errorf("%w: %d", ErrUnknownKey, id)
	}
	return k.Open(enc, info, aad, ciphertext)
}

// Item is one message of a batch, owned by the caller and only read here, but for its
// last two fields.
type Item struct {
	ID         uint8 // of the key
	Enc        []byte
	AAD        []byte
	Ciphertext []byte

	Plaintext []byte // result: freshly allocated; nil where Err is set
	Err       error  // result: nil, ErrUnknownKey or ErrOpen. An item that has an error on entry is skipped
}

// Runner calls f once for every i in [0, n), in any order, perhaps at the same time, and
// returns when all calls have.
type Runner func(n int, f func(i int))

// Serial is the runner that uses the calling goroutine alone.
func Serial(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// OpenBatch opens every item under one info. An item that fails never changes the outcome
// of another.
func (r *Keyring) OpenBatch(info []byte, items []Item, run Runner) {
	run(len(items), func(i int) {
		if it := &items[i]; it.Err == nil {
			it.Plaintext, it.Err = r.Open(it.ID, it.Enc, info, it.AAD, it.Ciphertext)
		}
	})
}
