//go:build postgres

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/keyset/keysettest"
	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/aggregator/keyset/vault/vaulttest"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// vaults are replicas' handles on one schema, with a wrapping key in a file, and time that
// passes when it is told to.
type vaults struct {
	*pgtest.Schema
	mem   *disktest.Mem
	files *wrap.Files
	ahead atomic.Int64
	of    int
	all   *postgres.Store // on which the handles are
}

func newVaults(t *testing.T) *vaults {
	t.Helper()
	v := &vaults{Schema: pgtest.New(t), mem: disktest.NewMem(1), of: postgres.PurposeHPKE}
	v.files = wrapping(t, v.mem)
	v.all = openWith(t, v.Schema, func(o *postgres.Options) { o.Wrapper = wrapped(v.files) })
	connect(t, v.Schema, v.Owner).ok("DELETE FROM " + v.Name + ".secret") // the root of the secrets of tasks, of which there are none
	return v
}

// wrapping is the wrapping keys in a directory, with one at least.
func wrapping(t *testing.T, mem *disktest.Mem) *wrap.Files {
	t.Helper()
	f, err := wrap.OpenFiles(mem, "wrapping", nil)
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := f.Keys(); err != nil {
		t.Fatal(err)
	} else if len(keys) == 0 {
		if _, err := f.Add(time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (v *vaults) Shared() bool            { return true }
func (v *vaults) Advance(d time.Duration) { v.ahead.Add(int64(d)) }

func (v *vaults) Open(t *testing.T) vault.Vault { return v.with(t, v.files) }

func (v *vaults) with(t *testing.T, w wrap.Wrapper) *postgres.Vault {
	t.Helper()
	got, err := v.all.Vault(t.Context(), postgres.VaultOptions{
		Purpose: v.of, Wrapper: w, Ahead: func() time.Duration { return time.Duration(v.ahead.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Clock is a replica's, which goes with the vault's.
func (v *vaults) Clock(ahead time.Duration) disk.Clock { return skewed{v, ahead} }

type skewed struct {
	v     *vaults
	ahead time.Duration
}

func (c skewed) Now() time.Time                      { return time.Now().Add(time.Duration(c.v.ahead.Load()) + c.ahead) }
func (c skewed) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }

func TestVault(t *testing.T) {
	vaulttest.Run(t, func(t *testing.T) vaulttest.Harness { return newVaults(t) })
}

// TestKeySet: HPKE keys that replicas share.
func TestKeySet(t *testing.T) {
	keysettest.Run(t, func(t *testing.T) keysettest.Harness { return newVaults(t) })
}

// set opens a set of keys on a vault.
func (v *vaults) set(t *testing.T, on vault.Vault) (*keyset.Set, error) {
	t.Helper()
	return keyset.Open(t.Context(), keyset.Options{
		Schedule: keyset.Schedule{Period: 10 * time.Minute, MaxAge: 4 * time.Minute, Overlap: time.Minute}, Vault: on, Clock: v.Clock(0),
	})
}

// filled has two secrets in a vault.
func (v *vaults) filled(t *testing.T) *postgres.Vault {
	t.Helper()
	a := v.with(t, v.files)
	for _, name := range []string{"00a", "00b"} {
		is(t, a.Put(t.Context(), name, []byte("secret of "+name)), nil)
	}
	is(t, a.Save(t.Context(), []byte("state"), 0), nil)
	return a
}

// TestSecretRows: a row that was changed, exchanged with another one, or brought from
// another purpose or another store opens nothing, nor does one without its wrapping key.
func TestSecretRows(t *testing.T) {
	ctx := t.Context()
	v := newVaults(t)
	a := v.filled(t)
	v.of = postgres.PurposeData
	v.filled(t)
	x := connect(t, v.Schema, v.Service)
	shut := func(what string) {
		t.Helper()
		if got, err := a.Get(ctx, "00a"); !errors.Is(err, vault.ErrDamaged) {
			t.Errorf("%s: got %q, %v", what, got, err)
		}
	}
	opens := func(what string) {
		t.Helper()
		if got, err := a.Get(ctx, "00a"); err != nil || string(got) != "secret of 00a" {
			t.Errorf("%s: got %q, %v", what, got, err)
		}
	}
	change := func(sql string) {
		t.Helper()
		x.ok("CREATE TEMP TABLE was AS SELECT * FROM secret")
		opens("before " + sql)
		x.ok(sql)
		shut(sql)
		x.ok("UPDATE secret AS s SET box = was.box, wrapping = was.wrapping FROM was WHERE was.purpose = s.purpose AND was.name = s.name")
		x.ok("DROP TABLE was")
	}
	x.ok("SET search_path = " + v.Name + ", pg_temp")
	change("UPDATE secret SET box = (SELECT box FROM secret WHERE purpose = 1 AND name = '00b') WHERE purpose = 1 AND name = '00a'")
	change("UPDATE secret SET box = (SELECT box FROM secret WHERE purpose = 2 AND name = '00a') WHERE purpose = 1 AND name = '00a'")
	change("UPDATE secret SET box = substr(box, 2)")
	change("UPDATE secret SET box = box || '\\x00'")
	change("UPDATE secret SET wrapping = 'another'")
	for _, at := range []int{0, 11, 12, 20, 40} {
		change(fmt.Sprintf("UPDATE secret SET box = set_byte(box, %d, get_byte(box, %d) # 1)", at, at))
	}
	// The store's id is bound, too.
	owner := connect(t, v.Schema, v.Owner)
	owner.ok("GRANT UPDATE ON identity TO CURRENT_USER")
	owner.ok("UPDATE identity SET store_id = decode(repeat('77', 16), 'hex')")
	v.of = postgres.PurposeHPKE
	other := v.with(t, v.files)
	if _, err := other.Get(ctx, "00a"); !errors.Is(err, vault.ErrDamaged) {
		t.Errorf("a row of another store: %v", err)
	}
	opens("the handle of before")
	stranger := wrapping(t, disktest.NewMem(2))
	if _, err := v.with(t, stranger).Get(ctx, "00a"); !errors.Is(err, vault.ErrDamaged) || !errors.Is(err, wrap.ErrNoKey) {
		t.Errorf("with another wrapping key: %v", err)
	}
	if _, err := a.Get(ctx, "00c"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no row: %v", err)
	}
}

// TestWrappingKeyIsNowhere: no table, and no log of the server, has a secret or a wrapping
// key; a dump of the database and other wrapping keys open nothing.
func TestWrappingKeyIsNowhere(t *testing.T) {
	v := newVaults(t)
	s, err := v.set(t, v.with(t, v.files))
	is(t, err, nil)
	raw, err := disk.ReadFile(v.mem, "wrapping/0000000000000001.wrap", 1<<10)
	is(t, err, nil)
	key := fmt.Sprintf("%x", raw[len(raw)-64:len(raw)-32])
	file, err := s.Keyring().Keys()[0].Marshal()
	is(t, err, nil)
	private := fmt.Sprintf("%x", file[len(file)-66:len(file)-34])
	x := connect(t, v.Schema, v.Owner)
	found := 0
	for _, table := range []string{"vault", "vault_mark", "secret", "replica"} {
		rows, err := x.Query(t.Context(), "SELECT t::text FROM "+table+" AS t")
		is(t, err, nil)
		for rows.Next() {
			var text string
			is(t, rows.Scan(&text), nil)
			found++
			if strings.Contains(text, key) || strings.Contains(text, private) {
				t.Errorf("%s has a secret", table)
			}
		}
		is(t, rows.Err(), nil)
	}
	if found < 6 {
		t.Errorf("only %d rows", found)
	}
}

// TestRewrap: with a newer wrapping key what lives is wrapped again, whatever a crash
// interrupts; then the old one ends, and a copy of the rows of before opens nothing.
func TestRewrap(t *testing.T) {
	ctx := t.Context()
	v := newVaults(t)
	a := v.filled(t)
	old, err := v.files.Newest(ctx)
	is(t, err, nil)
	x := connect(t, v.Schema, v.Service)
	x.ok("SET search_path = " + v.Name + ", pg_temp")
	x.ok("CREATE TEMP TABLE backup AS SELECT * FROM secret")
	wrapped := func(want map[string]uint64) {
		t.Helper()
		list, err := v.secrets(t, v.files).Wrappings(ctx)
		is(t, err, nil)
		got := make(map[string]uint64)
		for _, w := range list {
			got[w.Key] = w.Secrets
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("wrapped by %v, want %v", got, want)
		}
	}
	opens := func() {
		t.Helper()
		for _, name := range []string{"00a", "00b"} {
			if got, err := a.Get(ctx, name); err != nil || string(got) != "secret of "+name {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
	newest, err := v.files.Add(time.Unix(0, 0))
	is(t, err, nil)
	opens()
	wrapped(map[string]uint64{old: 2})
	// The wrapper fails after the first one.
	failing := &failing{Wrapper: v.files, left: 1}
	if n, err := v.with(t, failing).Rewrap(ctx); n != 1 || !errors.Is(err, wrap.ErrUnavailable) {
		t.Errorf("%d, %v", n, err)
	}
	wrapped(map[string]uint64{old: 1, newest: 1})
	opens()
	if n, err := a.Rewrap(ctx); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := a.Rewrap(ctx); n != 0 || err != nil {
		t.Errorf("again: %d, %v", n, err)
	}
	wrapped(map[string]uint64{newest: 2})
	is(t, v.files.End(old), nil)
	opens()
	x.ok("UPDATE secret AS s SET box = b.box, wrapping = b.wrapping FROM backup AS b WHERE b.purpose = s.purpose AND b.name = s.name")
	for _, name := range []string{"00a", "00b"} {
		if got, err := a.Get(ctx, name); !errors.Is(err, wrap.ErrNoKey) {
			t.Errorf("a backup's row opens with the keys of now: %q, %v", got, err)
		}
	}
}

// secrets opens those of all vaults.
func (v *vaults) secrets(t *testing.T, w wrap.Wrapper) *postgres.Secrets {
	t.Helper()
	opt := options(v.Schema).Database
	opt.Connection, opt.Connections = v.Service, 4
	x, err := postgres.OpenSecrets(t.Context(), opt, w)
	is(t, err, nil)
	t.Cleanup(x.Close)
	return x
}

// TestWrappingKeyEnds: a wrapping key ends when it wraps nothing, and from then on wraps
// nothing, for a process that still has it for the newest too. Two wrap again at once, and
// each secret is counted by one.
func TestWrappingKeyEnds(t *testing.T) {
	ctx, v := t.Context(), newVaults(t)
	a := v.filled(t)
	v.of = postgres.PurposeData
	b := v.filled(t)
	x := v.secrets(t, v.files)
	old, err := v.files.Newest(ctx)
	is(t, err, nil)
	// What another machine wraps, which has the files of now and not those to come.
	early, err := v.files.Wrap(ctx, []byte("secret of 00c"), nil)
	is(t, err, nil)
	stale := &stuck{Wrapper: v.files, newest: old, box: early}

	is(t, x.End(ctx, old, time.Now()), postgres.ErrWraps)
	_, err = v.files.Add(time.Unix(0, 0))
	is(t, err, nil)
	var counts [2]int
	var wg sync.WaitGroup
	for i := range counts {
		y := v.secrets(t, v.files)
		wg.Go(func() {
			n, err := y.Rewrap(context.Background())
			if counts[i] = n; err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if counts[0]+counts[1] != 4 {
		t.Errorf("%v secrets were wrapped again, want 4 in all", counts)
	}
	is(t, x.End(ctx, old, time.Now()), nil)
	is(t, x.End(ctx, old, time.Now()), nil)
	is(t, v.files.End(old), nil)
	for _, at := range []*postgres.Vault{a, b} {
		if got, err := at.Get(ctx, "00a"); err != nil || string(got) != "secret of 00a" {
			t.Errorf("%q, %v", got, err)
		}
	}
	// A process that has not got the newer key wraps nothing that would be lost.
	late := v.with(t, stale)
	is(t, late.Put(ctx, "00c", []byte("secret of 00c")), nil)
	is(t, late.Save(ctx, []byte("state"), 1), wrap.ErrNoKey)
	if _, version, err := late.State(ctx); version != 1 || err != nil {
		t.Errorf("the state without its secret: version %d, %v", version, err)
	}
	if n, err := v.secrets(t, stale).Rewrap(ctx); n != 0 || !errors.Is(err, wrap.ErrNoKey) {
		t.Errorf("wrapped back: %d, %v", n, err)
	}
	list, err := x.Wrappings(ctx)
	is(t, err, nil)
	for _, w := range list {
		if ended := w.Key == old; w.Ended != ended || (w.Secrets == 0) != ended {
			t.Errorf("%+v", w)
		}
	}
	if len(list) != 2 {
		t.Errorf("%+v", list)
	}
}

// stuck is a wrapper that has one key for the newest, whatever was added since.
type stuck struct {
	wrap.Wrapper
	newest string
	box    wrap.Box
}

func (s *stuck) Newest(context.Context) (string, error) { return s.newest, nil }

func (s *stuck) Wrap(context.Context, []byte, []byte) (wrap.Box, error) { return s.box, nil }

// TestWrappingKeyRaces: of one who ends a wrapping key and one who writes a secret under it
// either finds the other.
func TestWrappingKeyRaces(t *testing.T) {
	ctx, v := t.Context(), newVaults(t)
	old, err := v.files.Newest(ctx)
	is(t, err, nil)
	a, x := v.with(t, v.files), v.secrets(t, v.files)
	for i := range 20 {
		name := fmt.Sprintf("%03x", i)
		is(t, a.Put(ctx, name, []byte("secret")), nil)
		var wg sync.WaitGroup
		var saved, ended error
		wg.Go(func() { saved = a.Save(context.Background(), nil, uint64(i)) })
		wg.Go(func() { ended = x.End(context.Background(), old, time.Now()) })
		wg.Wait()
		if saved == nil && ended == nil {
			t.Fatal("a key has ended that wraps a secret")
		}
		if ended == nil {
			return // the secrets that it did not wrap were refused
		}
		is(t, ended, postgres.ErrWraps)
		is(t, a.Keep(ctx, []string{"none"}, uint64(i+1)), nil)
	}
}

// failing is a wrapper that is not available after so many calls of Wrap.
type failing struct {
	wrap.Wrapper
	left int
}

func (f *failing) Wrap(ctx context.Context, secret, aad []byte) (wrap.Box, error) {
	if f.left--; f.left < 0 {
		return wrap.Box{}, wrap.ErrUnavailable
	}
	return f.Wrapper.Wrap(ctx, secret, aad)
}

// TestVaultPutBack: a table of keys that was put back is found out: by itself at any time,
// and with its mark by each replica that lives. Nobody serves an older list for it.
func TestVaultPutBack(t *testing.T) {
	for _, marked := range []bool{false, true} {
		v := newVaults(t)
		a, err := v.set(t, v.with(t, v.files))
		is(t, err, nil)
		x := connect(t, v.Schema, v.Service)
		x.ok("SET search_path = " + v.Name + ", pg_temp")
		x.ok("CREATE TEMP TABLE old_vault AS SELECT * FROM vault")
		x.ok("CREATE TEMP TABLE old_secret AS SELECT * FROM secret")
		before, _ := a.List()
		v.Advance(10 * time.Minute)
		for range 2 {
			_, err := a.Step(t.Context(), unneeded)
			is(t, err, nil)
		}
		after, _ := a.List()
		if slices.Equal(before, after) {
			t.Fatal("no new key")
		}
		x.ok("DELETE FROM secret")
		x.ok("INSERT INTO secret SELECT * FROM old_secret")
		x.ok("UPDATE vault AS v SET version = o.version, state = o.state FROM old_vault AS o WHERE o.purpose = v.purpose")
		if marked {
			x.ok("UPDATE vault_mark AS m SET version = o.version FROM old_vault AS o WHERE o.purpose = m.purpose")
		}
		if _, err := a.Step(t.Context(), unneeded); !errors.Is(err, keyset.ErrDamaged) && !errors.Is(err, vault.ErrDamaged) {
			t.Errorf("with its mark %v: %v", marked, err)
		}
		if now, _ := a.List(); !slices.Equal(now, after) {
			t.Errorf("with its mark %v: the old list is offered again", marked)
		}
		if faults, err := a.Audit(t.Context()); err == nil && len(faults) == 0 {
			t.Errorf("with its mark %v: the audit finds nothing", marked)
		}
		if marked {
			continue
		}
		v.Advance(time.Minute)
		if _, err := v.set(t, v.with(t, v.files)); !errors.Is(err, vault.ErrDamaged) {
			t.Errorf("a new replica: %v", err)
		}
	}
}

func unneeded(context.Context, uint8, time.Time) (string, error) { return "", nil }

// TestLyingReplica: a replica that says that it holds a key, and does not, holds it up until
// it is dead; one that cannot unwrap keys does not start.
func TestLyingReplica(t *testing.T) {
	v := newVaults(t)
	a, err := v.set(t, v.with(t, v.files))
	is(t, err, nil)
	first, _ := a.List()
	v.Advance(10*time.Minute - time.Second)
	_, err = a.Step(t.Context(), unneeded)
	is(t, err, nil)
	v.Advance(time.Second)
	stranger := v.with(t, wrapping(t, disktest.NewMem(2)))
	if _, err := v.set(t, stranger); !errors.Is(err, keyset.ErrDamaged) || !errors.Is(err, wrap.ErrNoKey) {
		t.Errorf("without the wrapping key: %v", err)
	}
	names, err := stranger.Names(t.Context())
	is(t, err, nil)
	lie := func() {
		t.Helper()
		r := vault.Report{Seen: 1 << 40, Held: make(map[string][]byte)}
		names, err := stranger.Names(t.Context())
		is(t, err, nil)
		for _, name := range names {
			r.Held[name] = []byte("as if")
		}
		_, err = stranger.Beat(t.Context(), r)
		is(t, err, nil)
	}
	for range 4 {
		lie()
		_, err := a.Step(t.Context(), unneeded)
		is(t, err, nil)
	}
	if now, _ := a.List(); !slices.Equal(now, first) {
		t.Error("a key is offered that a replica does not hold")
	}
	if after, err := stranger.Names(t.Context()); err != nil || len(after) != len(names)+1 {
		t.Errorf("%q, %v", after, err)
	}
	v.Advance(vault.Lease + time.Second)
	_, err = a.Step(t.Context(), unneeded)
	is(t, err, nil)
	if now, _ := a.List(); slices.Equal(now, first) {
		t.Error("a dead replica holds a key up")
	}
}
