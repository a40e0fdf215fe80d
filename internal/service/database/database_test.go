package database_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service/database"
)

const first = `CREATE TABLE item (name TEXT PRIMARY KEY, number INTEGER CHECK (number >= 0), data BLOB) STRICT;`

const statements = `
-- name: put
INSERT INTO item (name, number, data) VALUES (?1, ?2, ?3)

-- name: get
SELECT number, data FROM item WHERE name = ?1

-- name: names
SELECT name FROM item ORDER BY name
`

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func options(fsys disk.FS) database.Options {
	return database.Options{
		FS: fsys, Name: "test.db", Prefix: "test",
		Migrations: fstest.MapFS{"0001_start.sql": file(first)},
		Statements: fstest.MapFS{"item.sql": file(statements)},
	}
}

func open(t *testing.T, opt database.Options) *database.DB {
	t.Helper()
	db, err := database.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func put(db *database.DB, name string, number uint64, data []byte) error {
	return db.Update(context.Background(), "put", func(tx *database.Tx) error {
		_, err := tx.Exec("put", name, number, data)
		return err
	})
}

func names(t *testing.T, db *database.DB) (all []string) {
	t.Helper()
	err := db.View(context.Background(), "names", func(tx *database.Tx) error {
		return tx.Each("names", nil, func(r database.Row) error {
			var name string
			err := r.Scan(&name)
			all = append(all, name)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestValuesComeBack(t *testing.T) {
	osfs, err := disk.OS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer osfs.Close()
	for name, fsys := range map[string]disk.FS{"mem": disktest.NewMem(1), "os": osfs} {
		t.Run(name, func(t *testing.T) {
			db := open(t, options(fsys))
			big := make([]byte, 3<<20)
			big[len(big)-1] = 7
			rows := map[string][]byte{"nil": nil, "empty": {}, "some": []byte("some"), "big": big}
			for name, data := range rows {
				if err := put(db, name, math.MaxInt64, data); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if err := put(db, "late", 0, nil); !errors.Is(err, database.ErrClosed) {
				t.Fatalf("a closed database says %v", err)
			}
			db = open(t, options(fsys))
			err := db.View(context.Background(), "check", func(tx *database.Tx) error {
				for name, want := range rows {
					var number uint64
					var data []byte
					found, err := tx.One("get", []any{name}, &number, &data)
					if err != nil || !found || number != math.MaxInt64 || !slices.Equal(data, want) || (data == nil) != (want == nil) {
						return fmt.Errorf("%s: %v %d %d bytes: %w", name, found, number, len(data), err)
					}
				}
				if found, err := tx.One("get", []any{"none"}, new(int), new([]byte)); found || err != nil {
					return fmt.Errorf("none: %v %w", found, err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestFailureRollsBack(t *testing.T) {
	db := open(t, options(disktest.NewMem(1)))
	ctx := context.Background()
	if err := put(db, "a", 1, nil); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	failures := map[string]struct {
		want error
		fn   func(tx *database.Tx) error
	}{
		"error":  {boom, func(tx *database.Tx) error { _, err := tx.Exec("put", "b", 1, nil); return errors.Join(err, boom) }},
		"unique": {database.ErrConstraint, func(tx *database.Tx) error { _, err := tx.Exec("put", "a", 1, nil); return err }},
		"check":  {database.ErrConstraint, func(tx *database.Tx) error { _, err := tx.Exec("put", "c", -1, nil); return err }},
		"range": {database.ErrConstraint, func(tx *database.Tx) error {
			_, err := tx.Exec("put", "c", uint64(math.MaxUint64), nil)
			return err
		}},
	}
	for name, f := range failures {
		if err := db.Update(ctx, name, f.fn); !errors.Is(err, f.want) || errors.Is(err, database.ErrUnknown) {
			t.Errorf("%s: got %v, want %v", name, err, f.want)
		}
	}
	func() {
		defer func() { recover() }()
		db.Update(ctx, "panic", func(tx *database.Tx) error {
			tx.Exec("put", "d", 1, nil)
			panic("boom")
		})
	}()
	err := db.View(ctx, "view", func(tx *database.Tx) error { _, err := tx.Exec("put", "e", 1, nil); return err })
	if err == nil {
		t.Error("a view wrote")
	}
	if got := names(t, db); !slices.Equal(got, []string{"a"}) {
		t.Errorf("items are %v, want a alone", got)
	}
}

func TestContextEndsTheWait(t *testing.T) {
	db := open(t, options(disktest.NewMem(1)))
	ctx, cancel := context.WithCancel(context.Background())
	err := db.Update(context.Background(), "outer", func(*database.Tx) error {
		cancel()
		err := db.Update(ctx, "inner", func(*database.Tx) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("waiting ended with %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTransactionsAreSerial(t *testing.T) {
	db := open(t, options(disktest.NewMem(1)))
	inside := 0
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			err := db.Update(context.Background(), "put", func(tx *database.Tx) error {
				inside++
				if inside != 1 {
					t.Error("two transactions at once")
				}
				_, err := tx.Exec("put", fmt.Sprint(i), i, nil)
				inside--
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(names(t, db)); n != 16 {
		t.Errorf("%d items, want 16", n)
	}
}

func TestMigrations(t *testing.T) {
	mem := disktest.NewMem(1)
	opt := options(mem)
	db := open(t, opt)
	if err := put(db, "a", 1, nil); err != nil {
		t.Fatal(err)
	}
	db.Close()

	later := options(mem)
	later.Migrations = fstest.MapFS{
		"0001_start.sql": file(first),
		"0002_more.sql":  file(`CREATE TABLE other (x INTEGER); INSERT INTO item VALUES ('b', 2, NULL);`),
	}
	broken := later
	broken.Migrations = fstest.MapFS{
		"0001_start.sql": file(first),
		"0002_more.sql":  file(`INSERT INTO item VALUES ('c', 2, NULL); INSERT INTO nowhere VALUES (1);`),
	}
	if _, err := database.Open(broken); err == nil {
		t.Fatal("a broken migration passed")
	}
	for range 2 {
		db = open(t, later)
		if got := names(t, db); !slices.Equal(got, []string{"a", "b"}) {
			t.Fatalf("items are %v", got)
		}
		db.Close()
	}
	if _, err := database.Open(opt); !errors.Is(err, database.ErrTooNew) {
		t.Fatalf("an older program got %v", err)
	}
	for _, name := range []string{"0003_gap.sql", "start.sql", "1_short.sql"} {
		bad := options(disktest.NewMem(2))
		bad.Migrations = fstest.MapFS{name: file(first)}
		if _, err := database.Open(bad); err == nil || !strings.Contains(err.Error(), "numbered") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStatementsAreChecked(t *testing.T) {
	says := map[string]string{"wrong": `statement "a"`, "twice": "twice", "empty": "empty", "two": "more than one"}
	for name, text := range map[string]string{
		"wrong": "-- name: a\nSELECT nothing FROM nowhere",
		"twice": "-- name: a\nSELECT 1\n-- name: a\nSELECT 2",
		"empty": "-- name: a\n\n-- name: b\nSELECT 1",
		"two":   "-- name: a\nSELECT 1; SELECT 2",
	} {
		opt := options(disktest.NewMem(1))
		opt.Statements = fstest.MapFS{"x.sql": file(text)}
		db, err := database.Open(opt)
		if err == nil {
			err = errors.Join(db.Prepare(t.Context()), db.Close())
		}
		if err == nil || !strings.Contains(err.Error(), says[name]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWrongStatement: a statement that cannot be prepared fails each time, takes its
// transaction back and leaves the rest of the database as it was.
func TestWrongStatement(t *testing.T) {
	for name, text := range map[string]string{
		"wrong": "-- name: x\nINSERT INTO nowhere VALUES (1)",
		"two":   "-- name: x\nDELETE FROM item; SELECT 2",
	} {
		opt := options(disktest.NewMem(1))
		opt.Statements = fstest.MapFS{"item.sql": file(statements), "x.sql": file(text)}
		db := open(t, opt)
		if err := put(db, "a", 1, nil); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			err := db.Update(t.Context(), "half", func(tx *database.Tx) error {
				if _, err := tx.Exec("put", "half", 1, nil); err != nil {
					return err
				}
				_, err := tx.Exec("x")
				return err
			})
			if err == nil || errors.Is(err, database.ErrUnknown) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := put(db, "b", 1, nil); err != nil {
			t.Error(name, err)
		}
		if got := names(t, db); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%s: items are %v", name, got)
		}
	}
}

func TestObserveAndFailpoints(t *testing.T) {
	opt := options(disktest.NewMem(1))
	opt.Failpoints = new(disk.Failpoints)
	seen := make(map[string]error)
	opt.Observe = func(name string, took time.Duration, err error) {
		if took < 0 {
			t.Errorf("%s took %v", name, took)
		}
		seen[name] = err
	}
	db := open(t, opt)
	if err := put(db, "a", 1, nil); err != nil {
		t.Fatal(err)
	}
	names(t, db)
	if len(seen) != 2 || seen["put"] != nil || seen["names"] != nil {
		t.Fatalf("observed %v", seen)
	}
	if got := slices.Sorted(maps.Keys(opt.Failpoints.Hits())); !slices.Equal(got, []string{"test.put.after-commit", "test.put.before-commit"}) {
		t.Fatalf("failpoints are %v", got)
	}
	boom := errors.New("boom")
	opt.Failpoints.Arm("test.put.before-commit", 0, func() error { return boom })
	if err := put(db, "b", 1, nil); !errors.Is(err, boom) || errors.Is(err, database.ErrUnknown) || !errors.Is(seen["put"], boom) {
		t.Fatalf("before the commit: %v, observed %v", err, seen["put"])
	}
	opt.Failpoints.Disarm("test.put.before-commit")
	if got := names(t, db); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("items are %v", got)
	}
	opt.Failpoints.Arm("test.put.after-commit", 0, func() error { return boom })
	for range 2 {
		if err := put(db, "c", 1, nil); !errors.Is(err, database.ErrUnknown) {
			t.Fatalf("after the commit: %v", err)
		}
	}
	db.Close()
	opt.Failpoints = nil
	if got := names(t, open(t, opt)); !slices.Equal(got, []string{"a", "c"}) {
		t.Fatalf("items are %v", got)
	}
}

// TestCommitsSurvivePowerLoss cuts the power after each of many commits, checkpoints
// between them included: what was committed is there, what was under way is whole or
// absent.
func TestCommitsSurvivePowerLoss(t *testing.T) {
	for seed := range uint64(24) {
		mem := disktest.NewMem(seed)
		db := open(t, options(mem))
		commits := int(seed) * 9
		var want []string
		for i := range commits {
			name := fmt.Sprintf("%04d", i)
			if err := put(db, name, uint64(i), make([]byte, 9000)); err != nil {
				t.Fatal(err)
			}
			want = append(want, name)
		}
		mem.Inject(func(op disktest.Op, _ string) error {
			if op == disktest.OpSync {
				return errors.New("power lost")
			}
			return nil
		})
		if err := put(db, "unknown", 1, make([]byte, 50000)); !errors.Is(err, database.ErrUnknown) {
			t.Fatalf("seed %d: a commit without sync: %v", seed, err)
		}
		db.Close()
		got := names(t, open(t, options(mem.Crash())))
		got = slices.DeleteFunc(got, func(s string) bool { return s == "unknown" })
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: %d items, want %d", seed, len(got), len(want))
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, change := range map[string]func(o *database.Options){
		"no FS":         func(o *database.Options) { o.FS = nil },
		"no migrations": func(o *database.Options) { o.Migrations = nil },
		"no prefix":     func(o *database.Options) { o.Prefix, o.Failpoints = "", new(disk.Failpoints) },
		"absolute name": func(o *database.Options) { o.Name = "/x" },
		"no name":       func(o *database.Options) { o.Name = "" },
	} {
		opt := options(disktest.NewMem(1))
		change(&opt)
		if _, err := database.Open(opt); err == nil {
			t.Errorf("%s: passed", name)
		}
	}
}

func Example() {
	opt := options(disktest.NewMem(1)) // a service gives disk.OS(directory), and files it embeds
	db, err := database.Open(opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	err = db.Update(context.Background(), "put-item", func(tx *database.Tx) error {
		_, err := tx.Exec("put", "seeds", 12, nil)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	err = db.View(context.Background(), "get-item", func(tx *database.Tx) error {
		var number int
		var data []byte
		_, err := tx.One("get", []any{"seeds"}, &number, &data)
		fmt.Println(number)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: 12
}
