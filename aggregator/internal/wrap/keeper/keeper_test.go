package keeper_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/internal/wrap/keeper"
	"github.com/starling-agg/starling/aggregator/internal/wrap/wraptest"
	"github.com/starling-agg/starling/internal/disk"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, d *aggregator.Database) *keeper.Keeper {
	t.Helper()
	k, err := keeper.Open(t.Context(), d)
	ok(t, err)
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// add makes a wrapping key in a directory.
func add(t *testing.T, dir string) {
	t.Helper()
	fsys, err := disk.OS(filepath.Dir(dir))
	ok(t, err)
	defer fsys.Close()
	files, err := wrap.OpenFiles(fsys, filepath.Base(dir), nil)
	ok(t, err)
	_, err = files.Add(time.Unix(0, 0))
	ok(t, err)
}

// TestFiles: without a service the files wrap, and there must be one.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wrapping")
	for _, d := range []aggregator.Database{{}, {WrappingKeys: dir}} {
		if _, err := keeper.Open(t.Context(), &d); err == nil || d.WrappingKeys != "" && !errors.Is(err, wrap.ErrNoKey) {
			t.Errorf("%+v: %v", d, err)
		}
	}
	add(t, dir)
	k := open(t, &aggregator.Database{WrappingKeys: dir})
	ok(t, k.Try(t.Context()))
	wraptest.Run(t, k, 24, false)
	first, err := k.Newest(t.Context())
	ok(t, err)
	if gone, err := k.End(first); gone || err != nil {
		t.Errorf("the only one ends: %v, %v", gone, err)
	}
	add(t, dir)
	if gone, err := k.End(first); !gone || err != nil {
		t.Errorf("an older one: %v, %v", gone, err)
	}
	if names, err := k.Keys(); err != nil || len(names) != 1 || names[0] == first {
		t.Errorf("%q, %v", names, err)
	}
}
