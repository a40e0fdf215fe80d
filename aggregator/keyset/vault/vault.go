// Package vault is where an aggregator's secrets are: in a directory of one process ([Dir]),
// or wrapped in rows that replicas share (package store/postgres). A vault holds the secrets
// of one purpose by name, and a state without secrets that says which of them live.
//
// # One state, whoever changes it
//
// A state has a version, and a change names the version that it follows ([Vault.Save]); of
// two that follow the same one the second fails with [ErrStale]. So replicas need no lock to
// be safe. To be quiet, one of them makes and ends secrets, the maker, for as long as its
// lease lasts ([Vault.Beat]); where two believe that they are, one loses at each change.
//
// # What all replicas have
//
// Each replica says at each beat which state it has taken over, which secrets it holds and
// which ones work under way may use. That it holds a secret it proves, by a MAC under the
// secret itself: a replica without the wrapping key, or one that lies, cannot. A replica
// that has not been heard for [Lease], by the vault's clock, is dead, and nobody waits for
// it.
//
// # Lives
//
// A replica that was held dead may go on: it was cut off, or stopped. From its next beat it
// is another one, with a life of its own ([Turn.Life]). Its work of the life before must not
// become durable any more, for the secrets that it used may be destroyed: so whoever
// commits such work says of which life it is, and the commit looks whether that one goes on.
package vault

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"time"
)

// Vault keeps secrets. Methods may be called from many goroutines; Put, Save and Keep are
// one caller's at a time. A change is durable when its call returns nil; after another
// error than the package's it may have taken place, and State tells.
type Vault interface {
	// State is the state that was saved last, and its version; 0 where there is none yet.
	State(ctx context.Context) (state []byte, version uint64, err error)
	// Save replaces the state of a version, and gives it the one that follows. Secrets that
	// Put kept are durable before the state is. [ErrStale]: the state is another by now,
	// and those secrets are not kept.
	Save(ctx context.Context, state []byte, after uint64) error
	// Put keeps a secret that the next state will name. A name is used once.
	Put(ctx context.Context, name string, secret []byte) error
	// Get is a secret; [fs.ErrNotExist] or [ErrDamaged]. The caller clears it.
	Get(ctx context.Context, name string) ([]byte, error)
	// Names lists the secrets that are there, and what is left of others.
	Names(ctx context.Context) ([]string, error)
	// Keep destroys all secrets but these, which the state of that version names.
	Keep(ctx context.Context, names []string, version uint64) error
	// Beat says that this replica lives, and what it has, and says who else does.
	Beat(ctx context.Context, r Report) (Turn, error)
	// Leave says that this replica lives no more, so that nobody waits for it: the others are
	// told so at their next beats, and not when the lease is over. Nothing of it is durable
	// from then on. A beat afterwards is that of another life.
	Leave(ctx context.Context) error
}

var (
	// ErrStale: the state has been changed by somebody else.
	ErrStale = errors.New("vault: another replica has changed the state")
	// ErrDamaged: what is there is not what was kept there, or cannot be unwrapped. It is
	// for the operator.
	ErrDamaged = errors.New("vault: damaged")
)

// Lease is how long a replica counts as live after its last beat, and how long a maker is
// one.
const Lease = 30 * time.Second

// A Report is what a replica says of itself.
type Report struct {
	// Seen is the version of the state that it has taken over; 0: none yet.
	Seen uint64
	// Held are the secrets that it holds, by name.
	Held map[string][]byte
	// Busy names those that work under way may use.
	Busy []string
	// Resigns: this replica is not to be the maker, until its next beat at least.
	Resigns bool
}

// A Turn is the answer to a beat.
type Turn struct {
	// Alone: no other replica can be there. Then all of the below is empty.
	Alone bool
	// Life is the one that this replica has from this beat on, at least; see Lives.
	Life string
	// Maker: this replica makes and ends secrets.
	Maker bool
	// Now is the time by the clock that all replicas share.
	Now time.Time
	// Peers are the other replicas that live.
	Peers []Peer
}

// A Peer is another replica, as its last beat has it.
type Peer struct {
	Name   string
	Seen   uint64
	Proofs [][sha256.Size]byte
	Busy   []string
}

// domainHeld is in docs/registry.md.
const domainHeld = "starling secret held v1"

// Prove is a replica's proof that it holds a secret of that name.
func Prove(replica, name string, secret []byte) [sha256.Size]byte {
	m := hmac.New(sha256.New, secret)
	for _, part := range []string{domainHeld, replica, name} {
		m.Write([]byte{byte(len(part))})
		m.Write([]byte(part))
	}
	return [sha256.Size]byte(m.Sum(nil))
}

// Holds says whether the peer has proved that it holds a secret.
func (p *Peer) Holds(name string, secret []byte) bool {
	want := Prove(p.Name, name, secret)
	found := false
	for _, proof := range p.Proofs {
		found = hmac.Equal(proof[:], want[:]) || found
	}
	return found
}
