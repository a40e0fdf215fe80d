package tlog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	merkle "golang.org/x/mod/sumdb/tlog"
)

// A tile has this height, and is 256 hashes wide.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// A Tile is one of the files in which a log shows its tree and its entries: tlog-tiles's.
type Tile struct {
	// Entries says that it holds entries; else it holds hashes.
	Entries bool
	// Level is that of the hashes, 0 for leaves, to 63.
	Level int
	// N is the tile's number in its level.
	N int64
	// Width is how many entries or hashes it has, 1 to 256.
	Width int
}

// ErrTile: no tile that a log may have, or not what a tile must hold.
var ErrTile = errors.New("tlog: no such tile")

// Path is where a log with a prefix has the tile, such as tile/0/x001/234.p/7.
func (t Tile) Path() string {
	level := "entries"
	if !t.Entries {
		level = strconv.Itoa(t.Level)
	}
	n := fmt.Sprintf("%03d", t.N%1000)
	for rest := t.N / 1000; rest > 0; rest /= 1000 {
		n = fmt.Sprintf("x%03d/%s", rest%1000, n)
	}
	if t.Width != tileWidth {
		n += ".p/" + strconv.Itoa(t.Width)
	}
	return "tile/" + level + "/" + n
}

// ParseTile reads the one path of a tile. It fails with [ErrTile].
func ParseTile(path string) (t Tile, err error) {
	bad := fmt.Errorf("%w: %.100q", ErrTile, path)
	if len(path) > 100 {
		return t, bad
	}
	rest, ok := strings.CutPrefix(path, "tile/")
	level, rest, found := strings.Cut(rest, "/")
	if !ok || !found {
		return t, bad
	}
	if t.Entries = level == "entries"; !t.Entries {
		if t.Level, err = strconv.Atoi(level); err != nil {
			return t, bad
		}
	}
	t.Width = tileWidth
	if number, width, partial := strings.Cut(rest, ".p/"); partial {
		rest = number
		if t.Width, err = strconv.Atoi(width); err != nil || t.Width < 1 || t.Width >= tileWidth {
			return t, bad
		}
	}
	for part := range strings.SplitSeq(rest, "/") {
		n, err := strconv.Atoi(strings.TrimPrefix(part, "x"))
		if err != nil || n < 0 || n > 999 || t.N > MaxSize/1000 {
			return t, bad
		}
		t.N = t.N*1000 + int64(n)
	}
	if t.Level < 0 || t.Level > 63 || t.Path() != path {
		return t, bad
	}
	return t, nil
}

// Within says whether a log of a size has the tile.
func (t Tile) Within(size int64) bool {
	for range t.Level {
		size /= tileWidth
	}
	return t.N*tileWidth+int64(t.Width) <= size
}

// Hashes are the tile's, from what reads a log's tree. It fails with [ErrTile] for a tile
// of entries.
func (t Tile) Hashes(tree merkle.HashReader) ([]byte, error) {
	if t.Entries {
		return nil, ErrTile
	}
	return merkle.ReadTileData(merkle.Tile{H: tileHeight, L: t.Level, N: t.N, W: t.Width}, tree)
}

// EntryTiles are the tiles that hold the entries from one place up to another, in a log
// whose size that other is.
func EntryTiles(from, to int64) []Tile {
	var tiles []Tile
	for n := from / tileWidth; n*tileWidth < to; n++ {
		tiles = append(tiles, Tile{Entries: true, N: n, Width: int(min(tileWidth, to-n*tileWidth))})
	}
	return tiles
}

// AppendTiled appends an entry to a tile of entries: behind its length in two bytes.
func AppendTiled(dst, entry []byte) []byte {
	return append(append(dst, byte(len(entry)>>8), byte(len(entry))), entry...)
}

// ReadTiled reads the entries of a tile. It fails with [ErrTile] where there are not as
// many as the tile is wide.
func (t Tile) ReadTiled(b []byte) ([][]byte, error) {
	var entries [][]byte
	for len(b) >= 2 {
		n := int(b[0])<<8 | int(b[1])
		if b = b[2:]; n > len(b) {
			break
		}
		entries, b = append(entries, b[:n]), b[n:]
	}
	if len(b) > 0 || len(entries) != t.Width {
		return nil, fmt.Errorf("%w: %s does not hold %d entries", ErrTile, t.Path(), t.Width)
	}
	return entries, nil
}

// A Tree reads the hashes of a log's tree from its tiles, and holds each to the root of a
// checkpoint: the log need not be trusted. It keeps what it has read. Not safe for
// concurrent use.
type Tree struct {
	tree  merkle.Tree
	fetch func(path string) ([]byte, error)
	read  map[string][]byte
}

// NewTree returns the tree of a checkpoint; fetch gets the file at a path below the log's
// prefix.
func NewTree(c *Checkpoint, fetch func(path string) ([]byte, error)) *Tree {
	return &Tree{merkle.Tree{N: c.Size, Hash: c.Root}, fetch, make(map[string][]byte)}
}

// Height implements the tile reader of x/mod.
func (t *Tree) Height() int { return tileHeight }

// ReadTiles implements the tile reader of x/mod.
func (t *Tree) ReadTiles(tiles []merkle.Tile) ([][]byte, error) {
	all := make([][]byte, len(tiles))
	for i, x := range tiles {
		path := Tile{Level: x.L, N: x.N, Width: x.W}.Path()
		b, ok := t.read[path]
		if !ok {
			var err error
			if b, err = t.fetch(path); err != nil {
				return nil, err
			}
			if len(b) != x.W*merkle.HashSize {
				return nil, fmt.Errorf("%w: %s has %d bytes", ErrTile, path, len(b))
			}
			t.read[path] = b
		}
		all[i] = b
	}
	return all, nil
}

// SaveTiles implements the tile reader of x/mod: what it calls this for has been held to
// the root.
func (t *Tree) SaveTiles([]merkle.Tile, [][]byte) {}

// Prove is the proof that an entry is at a place.
func (t *Tree) Prove(index int64) ([]Hash, error) {
	if index < 0 || index >= t.tree.N {
		return nil, fmt.Errorf("%w: no place %d in a log of %d entries", ErrProof, index, t.tree.N)
	}
	return merkle.ProveRecord(t.tree.N, index, merkle.TileHashReader(t.tree, t))
}

// Leaf is the hash of the entry at a place.
func (t *Tree) Leaf(index int64) (Hash, error) {
	if index < 0 || index >= t.tree.N {
		return Hash{}, fmt.Errorf("%w: no place %d in a log of %d entries", ErrProof, index, t.tree.N)
	}
	h, err := merkle.TileHashReader(t.tree, t).ReadHashes([]int64{merkle.StoredHashIndex(0, index)})
	if err != nil {
		return Hash{}, err
	}
	return h[0], nil
}

// Continue is the proof that the tree continues that of a smaller size.
func (t *Tree) Continue(size int64) ([]Hash, error) {
	return ProveContinued(t.tree.N, size, merkle.TileHashReader(t.tree, t))
}

// ProveContinued is the proof that a tree of a size continues an older one, from what reads
// the tree; none is needed from the empty one.
func ProveContinued(size, old int64, tree merkle.HashReader) ([]Hash, error) {
	if old == 0 || old == size {
		return nil, nil
	}
	if old < 0 || old > size {
		return nil, fmt.Errorf("%w: from size %d to %d", ErrProof, old, size)
	}
	return merkle.ProveTree(size, old, tree)
}
