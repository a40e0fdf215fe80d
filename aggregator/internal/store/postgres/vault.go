package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/internal/pgdb"
)

// Purposes of vaults, as the table vault has them.
const (
	PurposeHPKE = 1
	PurposeData = 2
	// PurposeSigned has no secrets: its state is the record of what was signed, of which there
	// is one (package signed).
	PurposeSigned = 3
	// purposeTasks has the roots of the tasks' secrets.
	purposeTasks = 4
)

// VaultOptions say which vault it is, and how its secrets are wrapped.
type VaultOptions struct {
	// Purpose is PurposeHPKE, PurposeData or PurposeSigned. Required.
	Purpose int
	// Wrapper wraps the secrets. Required.
	Wrapper wrap.Wrapper
	// Ahead is added to the server's clock: for tests, which have time pass. Default none.
	Ahead func() time.Duration
}

// Vault is a handle of one replica on the secrets of a purpose; see package vault. Its lives
// have random names, so a process that starts again is another replica.
type Vault struct {
	s     *Store
	opt   VaultOptions
	store []byte // id of the store

	mu     sync.Mutex
	staged map[string]wrap.Box // put, and not saved yet
	life   string              // the name of its row; empty before its first beat
}

var _ vault.Vault = (*Vault)(nil)

// Vault opens the vault of a purpose.
func (s *Store) Vault(ctx context.Context, opt VaultOptions) (*Vault, error) {
	if opt.Wrapper == nil || opt.Purpose < PurposeHPKE || opt.Purpose > purposeTasks {
		return nil, errors.New("store: VaultOptions.Wrapper and Purpose are required")
	}
	v := &Vault{s: s, opt: opt, staged: make(map[string]wrap.Box)}
	err := s.view(ctx, "store-id", func(tx *pgdb.Tx) error {
		_, err := tx.One("store-id", nil, &v.store)
		return err
	})
	return v, err
}

// domainSecretRow is in docs/registry.md.
const domainSecretRow = "starling secret row v1"

// aad says which secret it is that a row wraps.
func (v *Vault) aad(name string) []byte {
	b := append([]byte(domainSecretRow), v.store...)
	b = append(b, byte(v.opt.Purpose), byte(len(name)))
	return append(b, name...)
}

// State implements [vault.Vault]. A state older than the mark is damage.
func (v *Vault) State(ctx context.Context) (state []byte, version uint64, err error) {
	var mark uint64
	err = v.s.view(ctx, "vault-state", func(tx *pgdb.Tx) error {
		found, err := tx.One("vault-state", []any{v.opt.Purpose}, &state, &version, &mark)
		if err == nil && !found {
			err = fmt.Errorf("%w: the row of purpose %d is gone", vault.ErrDamaged, v.opt.Purpose)
		}
		return err
	})
	if err == nil && version != mark {
		err = fmt.Errorf("%w: version %d of it is there, and %d was: the table was put back", vault.ErrDamaged, version, mark)
	}
	return state, version, err
}

// Save implements [vault.Vault].
func (v *Vault) Save(ctx context.Context, state []byte, after uint64) error {
	v.mu.Lock()
	staged := maps.Clone(v.staged)
	clear(v.staged) // whatever becomes of it
	v.mu.Unlock()
	return v.s.update(ctx, "save-vault", func(tx *pgdb.Tx) error {
		n, err := tx.Exec("save-vault", v.opt.Purpose, after, append([]byte{}, state...))
		if err != nil {
			return err
		}
		if n != 1 {
			return vault.ErrStale
		}
		if _, err := tx.Exec("mark-vault", v.opt.Purpose, after+1); err != nil {
			return err
		}
		at, err := v.now(tx)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(staged)) {
			box := staged[name]
			n, err := tx.Exec("put-secret", v.opt.Purpose, name, box.Key, box.Sealed, at)
			if err == nil && n == 0 {
				err = ended(box.Key)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Put implements [vault.Vault].
func (v *Vault) Put(ctx context.Context, name string, secret []byte) error {
	box, err := v.opt.Wrapper.Wrap(ctx, secret, v.aad(name))
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.staged[name] = box
	return nil
}

// box is a secret as its row has it.
func (v *Vault) box(ctx context.Context, name string) (box wrap.Box, err error) {
	err = v.s.view(ctx, "secret", func(tx *pgdb.Tx) error {
		found, err := tx.One("secret", []any{v.opt.Purpose, name}, &box.Key, &box.Sealed)
		if err == nil && !found {
			err = fmt.Errorf("secret %s: %w", name, fs.ErrNotExist)
		}
		return err
	})
	return box, err
}

// Get implements [vault.Vault].
func (v *Vault) Get(ctx context.Context, name string) ([]byte, error) {
	box, err := v.box(ctx, name)
	if err != nil {
		return nil, err
	}
	secret, err := v.opt.Wrapper.Unwrap(ctx, box, v.aad(name))
	if errors.Is(err, wrap.ErrNoKey) {
		// It may have been wrapped again, and the wrapping key ended, since it was read.
		again, err2 := v.box(ctx, name)
		if err2 != nil {
			return nil, err2
		}
		if again.Key != box.Key {
			secret, err = v.opt.Wrapper.Unwrap(ctx, again, v.aad(name))
		}
	}
	if errors.Is(err, wrap.ErrBox) || errors.Is(err, wrap.ErrNoKey) {
		return nil, fmt.Errorf("%w: secret %s: %w", vault.ErrDamaged, name, err)
	}
	return secret, err
}

// Names implements [vault.Vault].
func (v *Vault) Names(ctx context.Context) (names []string, err error) {
	err = v.s.view(ctx, "secrets", func(tx *pgdb.Tx) error {
		names = nil
		return tx.Each("secrets", []any{v.opt.Purpose}, func(r pgdb.Row) error {
			var name string
			err := r.Scan(&name)
			names = append(names, name)
			return err
		})
	})
	return names, err
}

// Keep implements [vault.Vault]. Versions of the rows stay in the database, its log and its
// backups, wrapped.
func (v *Vault) Keep(ctx context.Context, names []string, version uint64) error {
	return v.s.update(ctx, "keep-vault", func(tx *pgdb.Tx) error {
		var one int
		found, err := tx.One("keep-vault", []any{v.opt.Purpose, version}, &one)
		if err != nil {
			return err
		}
		if !found {
			return vault.ErrStale
		}
		_, err = tx.Exec("drop-secrets", v.opt.Purpose, strings.Join(names, ","))
		return err
	})
}

// now is the time that all replicas go by, in microseconds.
func (v *Vault) now(tx *pgdb.Tx) (at int64, err error) {
	_, err = tx.One("vault-now", nil, &at)
	if v.opt.Ahead != nil {
		at += v.opt.Ahead().Microseconds()
	}
	return at, err
}

// Beat implements [vault.Vault]. A replica is held dead by taking its row away, which waits
// until the transactions that had found the row there are over.
func (v *Vault) Beat(ctx context.Context, r vault.Report) (turn vault.Turn, err error) {
	slices.Sort(r.Busy)
	busy := strings.Join(r.Busy, ",")
	v.mu.Lock()
	former := v.life
	v.mu.Unlock()
	fresh := make([]byte, 16)
	rand.Read(fresh)
	err = v.s.update(ctx, "beat", func(tx *pgdb.Tx) error {
		turn = vault.Turn{Life: former}
		at, err := v.now(tx)
		if err != nil {
			return err
		}
		turn.Now = time.UnixMicro(at).UTC()
		until := at + vault.Lease.Microseconds()
		renewed := int64(0)
		if former != "" {
			renewed, err = tx.Exec("renew-replica", v.opt.Purpose, former, until, r.Seen, proofs(former, &r), busy)
		}
		if err == nil && renewed == 0 {
			turn.Life = hex.EncodeToString(fresh)
			_, err = tx.Exec("put-replica", v.opt.Purpose, turn.Life, until, r.Seen, proofs(turn.Life, &r), busy)
		}
		if err != nil {
			return err
		}
		if err := v.noteProgram(tx, turn.Life); err != nil {
			return err
		}
		if r.Resigns {
			_, err = tx.Exec("resign-vault", v.opt.Purpose, turn.Life)
		} else {
			var led int64
			led, err = tx.Exec("lead-vault", v.opt.Purpose, turn.Life, at, until)
			turn.Maker = led == 1
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec("drop-dead-replicas", v.opt.Purpose, at); err != nil {
			return err
		}
		return tx.Each("peers", []any{v.opt.Purpose, turn.Life, at}, func(row pgdb.Row) error {
			var p vault.Peer
			var proofs []byte
			var busy string
			if err := row.Scan(&p.Name, &p.Seen, &proofs, &busy); err != nil {
				return err
			}
			for proof := range slices.Chunk(proofs, sha256.Size) {
				p.Proofs = append(p.Proofs, [sha256.Size]byte(proof))
			}
			if busy != "" {
				p.Busy = strings.Split(busy, ",")
			}
			turn.Peers = append(turn.Peers, p)
			return nil
		})
	})
	if err == nil {
		v.mu.Lock()
		v.life = turn.Life
		v.mu.Unlock()
	}
	return turn, err
}

// Life is the one that this replica has since its last beat; empty before its first.
func (v *Vault) Life() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.life
}

// proofs are those of a report, in the name of a life.
func proofs(life string, r *vault.Report) []byte {
	all := []byte{}
	for _, name := range slices.Sorted(maps.Keys(r.Held)) {
		proof := vault.Prove(life, name, r.Held[name])
		all = append(all, proof[:]...)
	}
	return all
}

// lives keeps the life of a replica from ending before the transaction does;
// [store.ErrCutOff] where it has ended. Empty is that of work which used no key of others.
func lives(tx *pgdb.Tx, life string) error {
	if life == "" {
		return nil
	}
	var one int
	found, err := tx.One("replica-lives", []any{life}, &one)
	if err == nil && !found {
		err = store.ErrCutOff
	}
	return err
}

// Lives is [store.ErrCutOff] where the life of a replica has ended. Empty is that of work
// which used no key of others.
func (s *Store) Lives(ctx context.Context, life string) error {
	if life == "" {
		return nil
	}
	return outcome("lives", s.db.Pass(ctx, "lives", func(tx *pgdb.Tx) error { return lives(tx, life) }))
}
