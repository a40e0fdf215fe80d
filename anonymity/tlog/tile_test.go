package tlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
)

func TestTilePaths(t *testing.T) {
	for path, want := range map[string]tlog.Tile{
		"tile/0/000":                 {Width: 256},
		"tile/5/x001/x234/067":       {Level: 5, N: 1234067, Width: 256},
		"tile/63/999.p/255":          {Level: 63, N: 999, Width: 255},
		"tile/entries/x001/000.p/1":  {Entries: true, N: 1000, Width: 1},
		"tile/entries/x001/x000/000": {Entries: true, N: 1000000, Width: 256},
		"tile/0/x001/x000/x000/007":  {N: 1000000007, Width: 256},
		"tile/1/x123/x456/789.p/128": {Level: 1, N: 123456789, Width: 128},
	} {
		if got, err := tlog.ParseTile(path); err != nil || got != want || got.Path() != path {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	for _, path := range []string{"", "tile", "tile/0", "tile/0/", "tile/00/000", "tile/64/000", "tile/-1/000", "tile/0/00", "tile/0/0000", "tile/0/x000/000",
		"tile/0/001/000", "tile/0/x001/x000", "tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/01", "tile/0/000.p/", "tile/0/000/", "tile/0/+01", "tile/8/0/000",
		"tile/0/../000", "/tile/0/000", "tile/entries", "tile/0/x999/x999/x999/x999/x999/999"} {
		if got, err := tlog.ParseTile(path); !errors.Is(err, tlog.ErrTile) {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
}

// TestTileWithin: the example of tlog-tiles, a tree of 70,000 entries, and its edges.
func TestTileWithin(t *testing.T) {
	for path, want := range map[string]bool{
		"tile/0/272": true, "tile/0/273.p/112": true, "tile/0/273.p/113": false, "tile/0/273": false, "tile/0/274.p/1": false,
		"tile/1/000": true, "tile/1/001.p/17": true, "tile/1/001.p/18": false, "tile/2/000.p/1": true, "tile/2/000.p/2": false, "tile/3/000.p/1": false,
		"tile/63/000.p/1": false, "tile/entries/273.p/112": true, "tile/entries/273.p/113": false,
	} {
		tile, err := tlog.ParseTile(path)
		if err != nil || tile.Within(70000) != want {
			t.Errorf("%s: want %v, %v", path, want, err)
		}
	}
}

// TestTree: proofs from tiles are those from the log itself, over sizes on both sides of a
// tile's edge; a tile with one bit changed is refused.
func TestTree(t *testing.T) {
	l := tlogtest.New(t, "log.example")
	for _, size := range []int64{1, 3, 255, 256, 257, 700} {
		for l.Size() < size {
			l.Add(t, release(t, int(l.Size())))
		}
		files := make(map[string][]byte)
		fetch := func(path string) ([]byte, error) {
			tile, err := tlog.ParseTile(path)
			if err != nil || !tile.Within(size) {
				return nil, fmt.Errorf("%s: not in the log, %v", path, err)
			}
			if files[path] == nil {
				if files[path], err = tile.Hashes(l); err != nil {
					return nil, err
				}
			}
			return files[path], nil
		}
		c := l.Checkpoint(t)
		tree := tlog.NewTree(c, fetch)
		for _, i := range []int64{0, size / 2, size - 1} {
			hashes, err := tree.Prove(i)
			if err != nil {
				t.Fatal(err)
			}
			p := policy(t, l, "quorum none")
			if _, err := p.OpenProof(&tlog.Proof{Index: i, Hashes: hashes, Note: l.Sign(t, now)}, l.Entries[i], now); err != nil {
				t.Errorf("size %d, entry %d: %v", size, i, err)
			}
			if leaf, err := tree.Leaf(i); err != nil || leaf != tlog.LeafHash(l.Entries[i]) {
				t.Errorf("size %d, entry %d: %x, %v", size, i, leaf, err)
			}
		}
		if _, err := tree.Prove(size); !errors.Is(err, tlog.ErrProof) {
			t.Errorf("at the end: %v", err)
		}
		if proof, err := tree.Continue(size/2 + 1); err != nil {
			t.Errorf("size %d: %v", size, err)
		} else if want, err := tlog.ProveContinued(size, size/2+1, l); err != nil || fmt.Sprint(proof) != fmt.Sprint(want) {
			t.Errorf("size %d: %v, want %v, %v", size, proof, want, err)
		}
		for path := range files {
			changed := bytes.Clone(files[path])
			changed[len(changed)-1] ^= 1
			bad := tlog.NewTree(c, func(p string) ([]byte, error) {
				if p == path {
					return changed, nil
				}
				return fetch(p)
			})
			believed := true
			for _, i := range []int64{0, size / 2, size - 1} {
				_, err := bad.Leaf(i)
				believed = believed && err == nil
			}
			if believed {
				t.Errorf("size %d: %s changed, and believed", size, path)
			}
		}
		short := tlog.NewTree(c, func(p string) ([]byte, error) { return make([]byte, 31), nil })
		if _, err := short.Leaf(0); !errors.Is(err, tlog.ErrTile) {
			t.Errorf("short tiles: %v", err)
		}
	}
}

func TestEntryTiles(t *testing.T) {
	var got []string
	for _, x := range tlog.EntryTiles(250, 520) {
		got = append(got, x.Path())
	}
	if fmt.Sprint(got) != "[tile/entries/000 tile/entries/001 tile/entries/002.p/8]" {
		t.Error(got)
	}
	if len(tlog.EntryTiles(0, 0)) != 0 {
		t.Error("of nothing")
	}
	tile := tlog.Tile{Entries: true, Width: 2}
	b := tlog.AppendTiled(tlog.AppendTiled(nil, []byte("one")), make([]byte, tlog.MaxEntry))
	if e, err := tile.ReadTiled(b); err != nil || string(e[0]) != "one" || len(e[1]) != tlog.MaxEntry {
		t.Error(err)
	}
	for _, bad := range [][]byte{nil, b[:len(b)-1], append(bytes.Clone(b), 0), append(bytes.Clone(b), 0, 0)} {
		if _, err := tile.ReadTiled(bad); !errors.Is(err, tlog.ErrTile) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}
