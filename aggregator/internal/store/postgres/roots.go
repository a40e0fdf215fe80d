package postgres

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// rootPeriod is how long a root is the newest. A task's secret opens from a backup for as
// long after the task as the root of the backup lives, and the wrapping keys of then.
const rootPeriod = 24 * time.Hour

const (
	secretSize = 32
	rootName   = "%016x" // of rootSize bytes
	rootSize   = 16
	// secretsAtOnce is how many tasks of before there were secrets get one in one step.
	secretsAtOnce = 500
)

// Domain strings of what a task's secret is and makes; docs/registry.md lists them.
const (
	domainTaskSecret = "starling task secret v1"
	domainTaskIDs    = "starling task ids v1"
	domainTaskMarks  = "starling task marks v1"
	domainTaskKept   = "starling task kept v1"
)

// roots are the keys under which the secrets of tasks lie. There is no wrapped row for each
// task: a root is wrapped, and it seals them all.
type roots struct {
	v  *Vault
	mu sync.Mutex
	// those that were asked for, by name
	known map[string]cipher.AEAD
}

// openRoots opens the newest, and makes the first one, once the schema is one of which all
// programs read what is sealed with them.
func (s *Store) openRoots(ctx context.Context, open func(ctx context.Context) (wrap.Wrapper, error)) error {
	wrapper, err := open(ctx)
	if err != nil {
		return err
	}
	if err := s.useRoots(ctx, wrapper); err != nil {
		return err
	}
	for {
		begun, names, _, _, err := s.rootsThere(ctx)
		if err != nil || !begun {
			return err
		}
		if len(names) > 0 {
			err := s.roots.fetch(ctx, names[len(names)-1])
			if errors.Is(err, fs.ErrNotExist) { // another one followed it this moment
				continue
			}
			return err
		}
		if err := s.roots.add(ctx, 1); err != nil && !errors.Is(err, vault.ErrStale) {
			return fmt.Errorf("store: wrap a root of the tasks' secrets: %w", err)
		}
	}
}

// useRoots has the secrets of tasks opened, each root being read when it is asked for.
func (s *Store) useRoots(ctx context.Context, wrapper wrap.Wrapper) error {
	v, err := s.Vault(ctx, VaultOptions{Purpose: purposeTasks, Wrapper: wrapper})
	if err == nil {
		s.roots = &roots{v: v, known: make(map[string]cipher.AEAD)}
	}
	return err
}

// rootsThere are the roots, the newest last, when that one was made, and the time; begun is
// false where no program may make any yet.
func (s *Store) rootsThere(ctx context.Context) (begun bool, names []string, made, now int64, err error) {
	err = s.view(ctx, "roots", func(tx *pgdb.Tx) (err error) {
		names = nil
		var one int
		if begun, err = tx.One("roots-begun", nil, &one); err != nil || !begun {
			return err
		}
		if now, err = s.roots.v.now(tx); err != nil {
			return err
		}
		return tx.Each("roots", nil, func(r pgdb.Row) error {
			var name string
			err := r.Scan(&name, &made)
			names = append(names, name)
			return err
		})
	})
	return begun, names, made, now, err
}

// add makes a root of that number; [vault.ErrStale] where another replica was first.
func (r *roots) add(ctx context.Context, number uint64) error {
	_, version, err := r.v.State(ctx)
	if err != nil {
		return err
	}
	name := fmt.Sprintf(rootName, number)
	there, err := r.v.Names(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(there, name) { // before that version
		return vault.ErrStale
	}
	secret := make([]byte, secretSize)
	rand.Read(secret)
	defer clear(secret)
	if err := r.v.Put(ctx, name, secret); err != nil {
		return err
	}
	return r.v.Save(ctx, nil, version)
}

// A missingRoot is one that a transaction needs and this handle has not read: whoever runs
// the transaction reads it, with no lock held, and runs it again.
type missingRoot struct{ name string }

func (m *missingRoot) Error() string { return "root " + m.name + " of the tasks' secrets is not there" }

// rooted calls fn until it has the roots that it needs. One that has just ended is in no
// row any more that the next transaction reads.
func (s *Store) rooted(ctx context.Context, fn func() error) (err error) {
	for range 8 {
		var missing *missingRoot
		if err = fn(); !errors.As(err, &missing) {
			return err
		}
		if err := s.roots.fetch(ctx, missing.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", vault.ErrDamaged, err)
}

func (r *roots) fetch(ctx context.Context, name string) error {
	secret, err := r.v.Get(ctx, name)
	if err != nil {
		return err
	}
	defer clear(secret)
	if len(secret) != secretSize {
		return fmt.Errorf("%w: root %s of the tasks' secrets has %d bytes", vault.ErrDamaged, name, len(secret))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[name] = aead(secret)
	return nil
}

func (r *roots) by(name string) (cipher.AEAD, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.known[name]; known != nil {
		return known, nil
	}
	return nil, &missingRoot{name}
}

// aead is AES-256-GCM.
func aead(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err == nil {
		var a cipher.AEAD
		if a, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return a
		}
	}
	panic("store: internal error: " + err.Error()) // 32 bytes are a key
}

// aad says which task's secret it is that a root seals.
func (r *roots) aad(id dap.TaskID, root string) []byte {
	b := append([]byte(domainTaskSecret), r.v.store...)
	return append(append(b, id[:]...), root...)
}

// putSecret makes the secret of a task that has none, under the newest root; none where
// there is no root yet.
func (s *Store) putSecret(tx *pgdb.Tx, id dap.TaskID) error {
	var name string
	found, err := tx.One("root-newest", nil, &name)
	if err != nil || !found {
		return err
	}
	root, err := s.roots.by(name)
	if err != nil {
		return err
	}
	secret := make([]byte, secretSize)
	rand.Read(secret)
	defer clear(secret)
	_, err = tx.Exec("put-task-secret", id[:], name, root.Seal(nil, nil, secret, s.roots.aad(id, name)))
	return err
}

// own says whether the task has a secret: what is written of it lies under keys of its own.
func (t *task) own() bool { return len(t.sealed) > 0 }

// secret is a task's; the caller clears it.
func (s *Store) secret(t *task) ([]byte, error) {
	if len(t.sealed) <= rootSize {
		return nil, fmt.Errorf("task %v: its secret is gone, as it was retired: what was sealed for it opens no more", t.id)
	}
	name := string(t.sealed[:rootSize])
	root, err := s.roots.by(name)
	if err != nil {
		return nil, err
	}
	secret, err := root.Open(nil, nil, t.sealed[rootSize:], s.roots.aad(t.id, name))
	if err != nil {
		return nil, fmt.Errorf("%w: task %v: its secret is not what was written", vault.ErrDamaged, t.id)
	}
	return secret, nil
}

// expand makes a key of a task's secret.
func (s *Store) expand(t *task, domain string, size int) ([]byte, error) {
	secret, err := s.secret(t)
	if err != nil {
		return nil, err
	}
	defer clear(secret)
	key, err := hkdf.Expand(sha256.New, secret, domain+string(t.id[:]), size)
	if err != nil {
		panic("store: internal error: " + err.Error()) // the length is fixed
	}
	return key, nil
}

// taskKeys are the data keys of a task.
type taskKeys struct {
	s *Store
	t *task
}

// of is what a task seals with in the time of a data key. The caller wipes it.
func (k taskKeys) of(key *datakey.Key) (*datakey.Key, error) {
	if !k.t.own() {
		same := *key
		return &same, nil
	}
	secret, err := k.s.secret(k.t)
	if err != nil {
		return nil, err
	}
	defer clear(secret)
	return key.Of(k.t.id, secret), nil
}

// by is what a row of the task was sealed with: under a key of the task's own, or, before
// there were any, under the data key.
func (k taskKeys) by(serial uint64, own bool) (*datakey.Key, error) {
	key, err := k.s.keys.By(serial)
	if err != nil || !own {
		return key, err
	}
	defer key.Wipe()
	secret, err := k.s.secret(k.t)
	if err != nil {
		return nil, err
	}
	defer clear(secret)
	return key.Of(k.t.id, secret), nil
}

// StepSecrets makes a root when the newest has had its time, seals the secrets of all tasks
// under the newest, ends those of before, and gives tasks of before there were secrets one.
// It says whether it did anything. Replicas do it side by side.
func (s *Store) StepSecrets(ctx context.Context) (worked bool, err error) {
	begun, names, made, now, err := s.rootsThere(ctx)
	if err != nil || !begun {
		return false, err
	}
	var last uint64
	if len(names) > 0 {
		if last, err = strconv.ParseUint(names[len(names)-1], 16, 64); err != nil {
			return false, fmt.Errorf("%w: a root of the tasks' secrets has no number: %w", vault.ErrDamaged, err)
		}
	}
	if len(names) == 0 || now-made >= rootPeriod.Microseconds() {
		if err := s.roots.add(ctx, last+1); err != nil && !errors.Is(err, vault.ErrStale) {
			return false, err
		}
		return true, nil // the next step goes on
	}
	if worked, err = s.giveSecrets(ctx); err != nil || len(names) == 1 {
		return worked, err
	}
	newest := names[len(names)-1]
	for more := true; more; worked = worked || more {
		if more, err = s.resealSecrets(ctx, newest); err != nil {
			return worked, err
		}
	}
	ended, err := s.endRoots(ctx, newest)
	return worked || ended, err
}

// endRoots ends all roots but the newest. None does that a secret lies under, which another
// replica seals anew at the moment, or has made since.
func (s *Store) endRoots(ctx context.Context, newest string) (ended bool, err error) {
	_, version, err := s.roots.v.State(ctx)
	if err != nil {
		return false, err
	}
	switch err := s.roots.v.Keep(ctx, []string{newest}, version); {
	case errors.Is(err, vault.ErrStale) || errors.Is(err, pgdb.ErrConstraint):
		return false, nil // the next step ends them
	case err != nil:
		return false, err
	}
	s.roots.mu.Lock()
	defer s.roots.mu.Unlock()
	for name := range s.roots.known {
		if name < newest {
			delete(s.roots.known, name)
		}
	}
	return true, nil
}

// giveSecrets makes secrets for tasks that came before there were any, while nothing that the
// task's lock keeps out is under way.
func (s *Store) giveSecrets(ctx context.Context) (worked bool, err error) {
	var ids []dap.TaskID
	err = s.view(ctx, "tasks-without-secret", func(tx *pgdb.Tx) error {
		ids = nil
		return tx.Each("tasks-without-secret", []any{secretsAtOnce}, func(r pgdb.Row) error {
			var id []byte
			err := r.Scan(&id)
			ids = append(ids, dap.TaskID(id))
			return err
		})
	})
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		err := s.update(ctx, "give-secret", func(tx *pgdb.Tx) error {
			t, err := find(tx, excluding, id)
			if err != nil || t.retired || t.own() { // another replica was first
				return err
			}
			return s.putSecret(tx, id)
		})
		if err != nil {
			return worked, err
		}
		worked = true
	}
	return worked, nil
}

// resealSecrets seals some secrets under another root.
func (s *Store) resealSecrets(ctx context.Context, newest string) (more bool, err error) {
	err = s.update(ctx, "reseal-secrets", func(tx *pgdb.Tx) error {
		more = false
		root, err := s.roots.by(newest)
		if err != nil {
			return err
		}
		var some []*task
		err = tx.Each("task-secrets-to-reseal", []any{newest}, func(r pgdb.Row) error {
			t := new(task)
			var id, box []byte
			var former string
			err := r.Scan(&t.row, &id, &former, &box)
			t.id, t.sealed = dap.TaskID(id), append([]byte(former), box...)
			some = append(some, t)
			return err
		})
		if err != nil || len(some) == 0 {
			return err
		}
		var rows []int64
		var boxes [][]byte
		for _, t := range some {
			secret, err := s.secret(t)
			if err != nil {
				return err
			}
			rows, boxes = append(rows, t.row), append(boxes, root.Seal(nil, nil, secret, s.roots.aad(t.id, newest)))
			clear(secret)
		}
		more = true
		_, err = tx.Exec("reseal-task-secrets", newest, rows, boxes)
		return err
	})
	return more, err
}
