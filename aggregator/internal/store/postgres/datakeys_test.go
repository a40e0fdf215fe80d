//go:build postgres

package postgres_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

const day = 24 * time.Hour

// dayClock is set by hand.
type dayClock struct{ nanos atomic.Int64 }

func newDayClock() *dayClock {
	c := new(dayClock)
	c.nanos.Store(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *dayClock) Now() time.Time                      { return time.Unix(0, c.nanos.Load()).UTC() }
func (c *dayClock) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }
func (c *dayClock) advance(d time.Duration)             { c.nanos.Add(int64(d)) }

// dataKeys opens a replica's data keys, which last for a day, and ten more.
func (v *vaults) dataKeys(t *testing.T, clock disk.Clock, fail *disk.Failpoints) (*datakey.Set, error) {
	t.Helper()
	v.of = postgres.PurposeData
	return datakey.Open(t.Context(), datakey.Options{
		Vault: v.with(t, v.files), Book: v.all, Clock: clock, Period: day, Keep: 10 * day, Failpoints: fail,
	})
}

func noneed(context.Context, datakey.Record) (string, error) { return "", nil }

// noiseAt is a value of the key of a time, which tells keys apart.
func noiseAt(t *testing.T, s *datakey.Set, at time.Time) string {
	t.Helper()
	k, err := s.At(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Wipe()
	return fmt.Sprintf("%x", *k.Noise())
}

// TestSharedDataKeys: each time has one key, whichever replica is asked, while they make and
// end keys side by side, with clocks that differ, and one of them dies between a key and its
// note.
func TestSharedDataKeys(t *testing.T) {
	v, fail := newVaults(t), new(disk.Failpoints)
	clocks := []*dayClock{newDayClock(), newDayClock(), newDayClock()}
	clocks[1].advance(5 * time.Hour)
	clocks[2].advance(-30 * time.Hour)
	var sets []*datakey.Set
	for _, c := range clocks {
		s, err := v.dataKeys(t, c, fail)
		is(t, err, nil)
		sets = append(sets, s)
	}
	start := clocks[0].Now()
	was := make(map[time.Time]string)
	same := func() {
		t.Helper()
		for at := start.Add(-3 * day); at.Before(clocks[0].Now()); at = at.Add(7 * time.Hour) {
			for i, s := range sets {
				key := noiseAt(t, s, at)
				if before, known := was[at]; known && before != key {
					t.Fatalf("%v has another key at replica %d", at, i)
				}
				was[at] = key
			}
		}
	}
	same()
	for round := range 4 {
		for _, c := range clocks {
			c.advance(2 * day)
		}
		if round == 2 {
			power := errors.New("power")
			fail.Arm("datakeys.after-file", 0, func() error { fail.Disarm("datakeys.after-file"); return power })
			is(t, sets[0].Make(t.Context()), power)
		}
		var wg sync.WaitGroup
		for _, s := range sets {
			wg.Go(func() { is(t, s.Make(context.Background()), nil) })
		}
		wg.Wait()
		same()
	}
	_, known, err := v.all.DataKeys(t.Context())
	is(t, err, nil)
	for i, r := range known {
		if r.Serial != uint64(i+1) || i > 0 && !r.From.Equal(known[i-1].Until) {
			t.Errorf("%+v follows %+v", r, known[max(i-1, 0)])
		}
	}
	// A key that one replica has made just now opens at another by its serial.
	clocks[0].advance(20 * day)
	is(t, sets[0].Make(t.Context()), nil)
	newest, err := sets[0].Held(clocks[0].Now())
	is(t, err, nil)
	there, err := sets[1].By(newest.Serial)
	is(t, err, nil)
	if *there.Noise() != *newest.Noise() {
		t.Error("another key of that serial")
	}
	// Ended by one, it is gone at all.
	worked, err := sets[0].Step(t.Context(), noneed)
	if is(t, err, nil); !worked {
		t.Error("no key ended")
	}
	for _, s := range sets[1:] {
		_, err = s.Step(t.Context(), func(context.Context, datakey.Record) (string, error) { return "needed", nil })
		is(t, err, nil)
	}
	for i, s := range sets {
		var gone *datakey.GoneError
		if _, err := s.Held(start); !errors.As(err, &gone) || gone.Lost {
			t.Errorf("replica %d: %v", i, err)
		}
		if faults, err := s.Audit(t.Context()); err != nil || len(faults) > 0 {
			t.Errorf("replica %d: %v, %q", i, err, faults)
		}
	}
}

// TestDataKeyNotedAtOnce: replicas that note one key at the same moment all have noted it,
// whichever constraint of the table they meet in.
func TestDataKeyNotedAtOnce(t *testing.T) {
	v := newVaults(t)
	set := datakey.SetID{1}
	for serial := range uint64(100) {
		k := datakey.Record{Serial: serial + 1, From: time.Unix(int64(serial)*100, 0), Until: time.Unix(int64(serial+1)*100, 0)}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { is(t, v.all.NoteDataKey(context.Background(), set, k), nil) })
		}
		wg.Wait()
	}
	over := datakey.Record{Serial: 101, From: time.Unix(9_950, 0), Until: time.Unix(10_100, 0)}
	is(t, v.all.NoteDataKey(t.Context(), set, over), store.ErrDifferent)
	_, known, err := v.all.DataKeys(t.Context())
	if is(t, err, nil); len(known) != 100 {
		t.Errorf("%d keys", len(known))
	}
}

// TestDataKeysPutBack: without the newest key that the store has used, or with a row that
// is another's, no key is made and no replica starts.
func TestDataKeysPutBack(t *testing.T) {
	for what, sql := range map[string]string{
		"gone":      "DELETE FROM secret WHERE purpose = 2",
		"older":     "DELETE FROM secret WHERE purpose = 2 AND name = (SELECT max(name) FROM secret WHERE purpose = 2)",
		"damaged":   "UPDATE secret SET box = set_byte(box, 20, get_byte(box, 20) # 1) WHERE purpose = 2",
		"exchanged": "UPDATE secret AS s SET box = (SELECT box FROM secret WHERE purpose = 2 AND name <> s.name LIMIT 1) WHERE purpose = 2",
	} {
		v, clock := newVaults(t), newDayClock()
		_, err := v.dataKeys(t, clock, nil)
		is(t, err, nil)
		connect(t, v.Schema, v.Service).ok(sql)
		if _, err := v.dataKeys(t, clock, nil); !errors.Is(err, datakey.ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// thief opens what was sealed under a data key with the key's bytes, as docs/registry.md has
// it.
func thief(file, aad, box []byte) ([]byte, error) {
	key, err := hkdf.Expand(sha256.New, file[len(file)-64:len(file)-32], "starling data key share v1", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return gcm.Open(nil, nil, box, aad)
}

// TestShredded: after the end of a key nothing that is there opens what it had sealed: not
// the database with the wrapping keys, whatever of it is tried. A backup of before holds the
// key, wrapped, and opens as long as the wrapping key of then lives; when that has ended,
// neither does.
func TestShredded(t *testing.T) {
	ctx, v := t.Context(), newVaults(t)
	clock := newDayClock()
	data, err := v.dataKeys(t, clock, nil)
	is(t, err, nil)
	key, err := data.At(ctx, clock.Now())
	is(t, err, nil)
	share := key.Seal([]byte("what it is"), []byte("noised share"))
	v.of = postgres.PurposeHPKE
	hpke, err := v.set(t, v.with(t, v.files))
	is(t, err, nil)
	offered, _ := hpke.List()
	list, err := dap.ReadHpkeConfigList(offered)
	is(t, err, nil)
	report, err := dap.Seal(list[0], []byte("info"), []byte("aad"), []byte("report"))
	is(t, err, nil)

	// opened says which of the two somebody opens who has the rows of a table and the
	// wrapping keys of now.
	x := connect(t, v.Schema, v.Service)
	x.ok("SET search_path = " + v.Name + ", pg_temp")
	x.ok("CREATE TEMP TABLE backup AS SELECT * FROM secret")
	var store []byte
	is(t, x.QueryRow(ctx, "SELECT store_id FROM identity").Scan(&store), nil)
	opened := func(table string) (shares, reports bool) {
		t.Helper()
		rows, err := x.Query(ctx, "SELECT purpose, name, wrapping, box FROM "+table)
		is(t, err, nil)
		defer rows.Close()
		for rows.Next() {
			var purpose int
			var name string
			var box wrap.Box
			is(t, rows.Scan(&purpose, &name, &box.Key, &box.Sealed), nil)
			aad := append([]byte("starling secret row v1"), store...)
			aad = append(append(aad, byte(purpose), byte(len(name))), name...)
			secret, err := v.files.Unwrap(ctx, box, aad)
			if errors.Is(err, wrap.ErrNoKey) {
				continue
			}
			is(t, err, nil)
			if purpose != postgres.PurposeHPKE && purpose != postgres.PurposeData {
				continue // of another test
			}
			if purpose == postgres.PurposeHPKE {
				pair, err := sealed.ParseKeyPair(secret)
				is(t, err, nil)
				text, err := pair.Open(report.Enc, []byte("info"), []byte("aad"), report.Payload)
				reports = reports || err == nil && string(text) == "report"
				continue
			}
			text, err := thief(secret, []byte("what it is"), share)
			shares = shares || err == nil && string(text) == "noised share"
		}
		is(t, rows.Err(), nil)
		return shares, reports
	}
	want := func(table string, open bool) {
		t.Helper()
		if shares, reports := opened(table); shares != open || reports != open {
			t.Errorf("%s opens shares %v and reports %v, want %v", table, shares, reports, open)
		}
	}
	want("secret", true)
	want("backup", true)

	clock.advance(40 * day)
	for range 3 {
		_, err = data.Step(ctx, noneed)
		is(t, err, nil)
	}
	for range 4 {
		v.Advance(10 * time.Minute)
		for range 3 {
			_, err = hpke.Step(ctx, unneeded)
			is(t, err, nil)
		}
	}
	want("secret", false)
	want("backup", true)

	old, err := v.files.Newest(ctx)
	is(t, err, nil)
	_, err = v.files.Add(clock.Now())
	is(t, err, nil)
	for _, purpose := range []int{postgres.PurposeHPKE, postgres.PurposeData} {
		v.of = purpose
		n, err := v.with(t, v.files).Rewrap(ctx)
		if is(t, err, nil); n == 0 {
			t.Error("no secret was wrapped again")
		}
	}
	is(t, v.files.End(old), nil)
	want("secret", false)
	want("backup", false)
	// All that lives goes on.
	v.of = postgres.PurposeHPKE
	again, err := v.set(t, v.with(t, v.files))
	is(t, err, nil)
	if !slices.EqualFunc(again.Keyring().Keys(), hpke.Keyring().Keys(), func(a, b *sealed.KeyPair) bool { return a.ID() == b.ID() }) {
		t.Error("other keys live than before")
	}
	if _, err := v.dataKeys(t, clock, nil); err != nil {
		t.Error(err)
	}
}
