package disktest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/starling-agg/starling/internal/disk"
)

// ErrPowerLoss is what every call returns after [Mem.Cut].
var ErrPowerLoss = errors.New("disktest: power lost")

// SectorSize is the unit that the simulated disk writes as a whole, in bytes.
const SectorSize = 512

// Op names a kind of call for [Mem.Inject].
type Op string

// The calls that may change the disk, and the reads.
const (
	OpCreate   Op = "create" // Create, and OpenWrite where it creates
	OpOpen     Op = "open"   // Open, OpenAppend, OpenWrite of an existing file
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSync     Op = "sync"
	OpRename   Op = "rename"
	OpLink     Op = "link"
	OpRemove   Op = "remove"
	OpMkdir    Op = "mkdir"
	OpSyncDir  Op = "syncdir"
)

// Mem is a simulated disk. It implements [disk.FS] and is safe for many goroutines.
type Mem struct {
	mu     sync.Mutex
	rng    *rand.Rand
	root   *node
	cut    bool
	inject func(op Op, name string) error
	writes int          // calls so far that change the disk
	size   atomic.Int64 // bytes of all files, at most; 0: no bound, which is told without mu
}

// node is a file or a directory; names and bytes each have a current and a durable version.
type node struct {
	dir bool

	data    []byte // current content
	synced  []byte // durable content
	pending []fileOp

	names       map[string]*node // current
	syncedNames map[string]*node
	pendingDir  []dirOp
}

// fileOp is a write of data at offset, or where data is nil a truncation to offset.
type fileOp struct {
	offset int64
	data   []byte
}

// dirOp sets and deletes names of one directory in one step. A rename across directories
// is two ops that share a group and live or die together.
type dirOp struct {
	del   string
	set   string
	node  *node
	group *renameGroup
}

type renameGroup struct{ decided, kept bool }

func newDir() *node {
	return &node{dir: true, names: make(map[string]*node), syncedNames: make(map[string]*node)}
}

// NewMem returns an empty disk. All randomness of its failures comes from seed.
func NewMem(seed uint64) *Mem {
	return &Mem{rng: rand.New(rand.NewPCG(seed, 0x737461726c696e67)), root: newDir()}
}

// Cut stops the power: every call on the disk and its open files fails with ErrPowerLoss
// from now on.
func (m *Mem) Cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = true
}

// Inject sets a hook that runs before each call and may make it fail; nil removes it. The
// hook must not call the disk. A failing OpWrite writes a random prefix, as a full disk
// does; a failing OpSync leaves the state of the unsynced writes unknown for ever, even
// if a later sync of the file succeeds.
func (m *Mem) Inject(hook func(op Op, name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inject = hook
}

// SetSize bounds the bytes of all files; 0: no bound. A write that needs more writes what
// there is room for and fails with [syscall.ENOSPC]. What is there already stays, also
// where it is more.
func (m *Mem) SetSize(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.size.Store(bytes)
}

// Used is how many bytes all files have.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return used(m.root)
}

// used counts a file of two names once.
func used(root *node) (sum int64) {
	seen := make(map[*node]bool)
	var visit func(n *node)
	visit = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		sum += int64(len(n.data))
		for _, child := range n.names {
			visit(child)
		}
	}
	visit(root)
	return sum
}

// Free implements disk.Free.
func (m *Mem) Free() (int64, error) {
	size := m.size.Load()
	if size == 0 {
		return 1 << 50, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(0, size-used(m.root)), nil
}

// Writes is how many calls so far could have changed the disk.
func (m *Mem) Writes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

// Crash cuts the power and returns the disk as it is found afterwards, with no hook. m
// stays cut.
func (m *Mem) Crash() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = true
	return &Mem{rng: rand.New(rand.NewPCG(m.rng.Uint64(), m.rng.Uint64())), root: m.crashed(m.root, make(map[*node]*node))}
}

// crashed copies what a node is after the loss; a file reached by two names stays one.
func (m *Mem) crashed(n *node, seen map[*node]*node) *node {
	if c, ok := seen[n]; ok {
		return c
	}
	if !n.dir {
		content := m.crashedContent(n)
		c := &node{data: content, synced: slices.Clone(content)}
		seen[n] = c
		return c
	}
	c := newDir()
	seen[n] = c
	names := make(map[string]*node)
	for name, child := range n.syncedNames {
		names[name] = child
	}
	// Rolls come in the order of the ops, so that a seed repeats.
	prefix := len(n.pendingDir)
	subset := m.rng.IntN(2) == 0
	if !subset {
		prefix = m.rng.IntN(len(n.pendingDir) + 1)
	}
	for i, op := range n.pendingDir {
		keep := i < prefix
		if subset {
			keep = m.rng.IntN(2) == 0
		}
		if op.group != nil {
			if !op.group.decided {
				op.group.decided, op.group.kept = true, keep
			}
			keep = op.group.kept
		}
		if keep {
			op.apply(names)
		}
	}
	for _, name := range sortedKeys(names) {
		child := m.crashed(names[name], seen)
		c.names[name], c.syncedNames[name] = child, child
	}
	return c
}

func (op dirOp) apply(names map[string]*node) {
	if op.del != "" {
		delete(names, op.del)
	}
	if op.set != "" {
		names[op.set] = op.node
	}
}

// crashedContent rolls which unsynced writes of a file survived.
func (m *Mem) crashedContent(n *node) []byte {
	content := slices.Clone(n.synced)
	if len(n.pending) == 0 {
		return content
	}
	switch m.rng.IntN(4) {
	case 0:
		return content
	case 1:
		return slices.Clone(n.data)
	case 2:
		for _, op := range n.pending[:m.rng.IntN(len(n.pending)+1)] {
			content = op.apply(content)
		}
		if op := n.pending[m.rng.IntN(len(n.pending))]; op.data != nil {
			op.data = op.data[:m.rng.IntN(len(op.data)+1)]
			content = op.apply(content)
		}
		return content
	default:
		return m.crashedSectors(n)
	}
}

func (m *Mem) crashedSectors(n *node) []byte {
	lengths := []int{len(n.synced)}
	newest := slices.Clone(n.synced)
	for _, op := range n.pending {
		newest = op.apply(newest)
		lengths = append(lengths, len(newest))
	}
	content := make([]byte, lengths[m.rng.IntN(len(lengths))])
	rubbish := m.rng.IntN(2) == 0
	for at := 0; at < len(content); at += SectorSize {
		sector := content[at:min(at+SectorSize, len(content))]
		switch {
		case m.rng.IntN(2) == 0 && at < len(newest):
			copy(sector, newest[at:])
		case at < len(n.synced):
			copy(sector, n.synced[at:])
		case rubbish:
			for i := range sector {
				sector[i] = byte(m.rng.Uint32())
			}
		}
	}
	// The tail of a sector that straddles the durable length is as durable as the rest of
	// that sector.
	copy(content[:min(len(content), commonPrefix(n.synced, newest))], n.synced)
	return content
}

// commonPrefix is how many leading bytes no unsynced write changed: those are durable
// whatever happens.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func (op fileOp) apply(content []byte) []byte {
	if op.data == nil {
		return resize(content, op.offset)
	}
	if end := op.offset + int64(len(op.data)); end > int64(len(content)) {
		content = resize(content, end)
	}
	copy(content[op.offset:], op.data)
	return content
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	old := len(b)
	if size > int64(cap(b)) { // files grow page by page
		b = slices.Grow(b, max(int(size)-old, old))
	}
	b = b[:size]
	clear(b[old:])
	return b
}

// enter is called by every operation, with m.mu held.
func (m *Mem) enter(op Op, name string) error {
	if m.cut {
		return ErrPowerLoss
	}
	if op != OpRead && op != OpOpen {
		m.writes++
	}
	if m.inject != nil {
		if err := m.inject(op, name); err != nil {
			return fmt.Errorf("%s %s: %w", op, name, err)
		}
	}
	return nil
}

// find walks to a node; nil if it is not there.
func (m *Mem) find(name string) *node {
	n := m.root
	if name == "." {
		return n
	}
	for elem := range strings.SplitSeq(name, "/") {
		if n == nil || !n.dir {
			return nil
		}
		n = n.names[elem]
	}
	return n
}

// parent returns the directory that holds name, and name's last element.
func (m *Mem) parent(op, name string) (*node, string, error) {
	if err := disk.CheckName(name); err != nil {
		return nil, "", err
	}
	dir := m.find(path.Dir(name))
	if dir == nil || !dir.dir || name == "." {
		return nil, "", pathError(op, name, fs.ErrNotExist)
	}
	return dir, path.Base(name), nil
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

func (n *node) change(op dirOp) {
	op.apply(n.names)
	n.pendingDir = append(n.pendingDir, op)
}

func (m *Mem) create(name string) (*node, error) {
	dir, base, err := m.parent("create", name)
	if err != nil {
		return nil, err
	}
	if dir.names[base] != nil {
		return nil, pathError("create", name, fs.ErrExist)
	}
	n := &node{}
	dir.change(dirOp{set: base, node: n})
	return n, nil
}

// Create implements [disk.FS].
func (m *Mem) Create(name string) (disk.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpCreate, name); err != nil {
		return nil, err
	}
	n, err := m.create(name)
	if err != nil {
		return nil, err
	}
	return &file{mem: m, node: n, name: name, write: true}, nil
}

func (m *Mem) existing(name string) (*node, error) {
	if err := m.enter(OpOpen, name); err != nil {
		return nil, err
	}
	if err := disk.CheckName(name); err != nil {
		return nil, err
	}
	n := m.find(name)
	if n == nil {
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	if n.dir {
		return nil, pathError("open", name, errors.New("is a directory"))
	}
	return n, nil
}

// Open implements [disk.FS].
func (m *Mem) Open(name string) (disk.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.existing(name)
	if err != nil {
		return nil, err
	}
	return &file{mem: m, node: n, name: name}, nil
}

// OpenAppend implements [disk.FS].
func (m *Mem) OpenAppend(name string) (disk.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.existing(name)
	if err != nil {
		return nil, err
	}
	return &file{mem: m, node: n, name: name, write: true, offset: int64(len(n.data))}, nil
}

// OpenWrite implements [disk.FS].
func (m *Mem) OpenWrite(name string) (disk.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.existing(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := m.enter(OpCreate, name); err != nil {
			return nil, err
		}
		n, err = m.create(name)
	}
	if err != nil {
		return nil, err
	}
	return &file{mem: m, node: n, name: name, write: true}, nil
}

// Rename implements [disk.FS].
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpRename, oldName); err != nil {
		return err
	}
	from, oldBase, err := m.parent("rename", oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.parent("rename", newName)
	if err != nil {
		return err
	}
	n, target := from.names[oldBase], to.names[newBase]
	switch {
	case n == nil:
		return pathError("rename", oldName, fs.ErrNotExist)
	case target != nil && (target.dir || n.dir):
		return pathError("rename", newName, fs.ErrExist)
	case n == target:
		return nil
	}
	if from == to {
		from.change(dirOp{del: oldBase, set: newBase, node: n})
		return nil
	}
	g := new(renameGroup)
	to.change(dirOp{set: newBase, node: n, group: g})
	from.change(dirOp{del: oldBase, group: g})
	return nil
}

// Link implements [disk.FS].
func (m *Mem) Link(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpLink, oldName); err != nil {
		return err
	}
	from, oldBase, err := m.parent("link", oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.parent("link", newName)
	if err != nil {
		return err
	}
	n := from.names[oldBase]
	switch {
	case n == nil || n.dir:
		return pathError("link", oldName, fs.ErrNotExist)
	case to.names[newBase] != nil:
		return pathError("link", newName, fs.ErrExist)
	}
	to.change(dirOp{set: newBase, node: n})
	return nil
}

// Remove implements [disk.FS].
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpRemove, name); err != nil {
		return err
	}
	dir, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	n := dir.names[base]
	switch {
	case n == nil:
		return pathError("remove", name, fs.ErrNotExist)
	case n.dir && len(n.names) > 0:
		return pathError("remove", name, errors.New("directory not empty"))
	}
	dir.change(dirOp{del: base})
	return nil
}

// MkdirAll implements [disk.FS].
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpMkdir, name); err != nil {
		return err
	}
	if err := disk.CheckName(name); err != nil || name == "." {
		return err
	}
	n := m.root
	for elem := range strings.SplitSeq(name, "/") {
		child := n.names[elem]
		if child == nil {
			child = newDir()
			n.change(dirOp{set: elem, node: child})
		}
		if !child.dir {
			return pathError("mkdir", name, fs.ErrExist)
		}
		n = child
	}
	return nil
}

// SyncDir implements [disk.FS].
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpSyncDir, name); err != nil {
		return err
	}
	if err := disk.CheckName(name); err != nil {
		return err
	}
	n := m.find(name)
	if n == nil || !n.dir {
		return pathError("syncdir", name, fs.ErrNotExist)
	}
	// A rename into or out of another directory becomes durable there too: a journal
	// commits it as a whole.
	for _, op := range n.pendingDir {
		op.apply(n.syncedNames)
		if op.group != nil {
			op.group.decided, op.group.kept = true, true
		}
	}
	n.pendingDir = nil
	return nil
}

// ReadDir implements [disk.FS].
func (m *Mem) ReadDir(name string) ([]disk.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpRead, name); err != nil {
		return nil, err
	}
	if err := disk.CheckName(name); err != nil {
		return nil, err
	}
	n := m.find(name)
	if n == nil || !n.dir {
		return nil, pathError("readdir", name, fs.ErrNotExist)
	}
	var entries []disk.Entry
	for _, base := range sortedKeys(n.names) {
		entries = append(entries, n.names[base].entry(base))
	}
	return entries, nil
}

// Stat implements [disk.FS].
func (m *Mem) Stat(name string) (disk.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpRead, name); err != nil {
		return disk.Entry{}, err
	}
	if err := disk.CheckName(name); err != nil {
		return disk.Entry{}, err
	}
	n := m.find(name)
	if n == nil {
		return disk.Entry{}, pathError("stat", name, fs.ErrNotExist)
	}
	return n.entry(path.Base(name)), nil
}

func (n *node) entry(base string) disk.Entry {
	return disk.Entry{Name: base, Dir: n.dir, Size: int64(len(n.data))}
}

func sortedKeys(names map[string]*node) []string {
	keys := make([]string, 0, len(names))
	for k := range names {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// file is an open handle.
type file struct {
	mem    *Mem
	node   *node
	name   string
	write  bool
	offset int64 // guarded by mem.mu, like all else
	closed bool
}

func (f *file) enter(op Op) error {
	if f.closed {
		return pathError(string(op), f.name, fs.ErrClosed)
	}
	return f.mem.enter(op, f.name)
}

// ReadAt implements [disk.File].
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.enter(OpRead); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Write implements [disk.File].
func (f *file) Write(p []byte) (int, error) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	n, err := f.writeAt(p, f.offset)
	f.offset += int64(n)
	return n, err
}

// WriteAt implements [disk.File].
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	return f.writeAt(p, off)
}

func (f *file) writeAt(p []byte, off int64) (int, error) {
	err := f.enter(OpWrite)
	if !f.write || off < 0 {
		return 0, pathError("write", f.name, fs.ErrInvalid)
	}
	if errors.Is(err, ErrPowerLoss) || errors.Is(err, fs.ErrClosed) {
		return 0, err
	}
	if err != nil {
		p = p[:f.mem.rng.IntN(len(p)+1)]
	}
	if m := f.mem; err == nil && m.size.Load() > 0 {
		if more := off + int64(len(p)) - int64(len(f.node.data)); more > 0 {
			if free := max(0, m.size.Load()-used(m.root)); more > free {
				p, err = p[:max(0, int64(len(p))-(more-free))], pathError("write", f.name, syscall.ENOSPC)
			}
		}
	}
	if len(p) > 0 {
		op := fileOp{off, slices.Clone(p)}
		f.node.data = op.apply(f.node.data)
		f.node.pending = append(f.node.pending, op)
	}
	return len(p), err
}

// Truncate implements [disk.File].
func (f *file) Truncate(size int64) error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.enter(OpTruncate); err != nil {
		return err
	}
	if !f.write || size < 0 {
		return pathError("truncate", f.name, fs.ErrInvalid)
	}
	op := fileOp{offset: size}
	f.node.data = op.apply(f.node.data)
	f.node.pending = append(f.node.pending, op)
	return nil
}

// Sync implements [disk.File]. When a hook fails it, what is durable is rolled as in a
// crash, and what was not written never will be, though it can still be read: the kernel
// has marked the pages clean.
func (f *file) Sync() error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	err := f.enter(OpSync)
	if errors.Is(err, ErrPowerLoss) || errors.Is(err, fs.ErrClosed) {
		return err
	}
	n := f.node
	if err != nil {
		n.synced = f.mem.crashedContent(n)
		n.pending = nil
		return err
	}
	for _, op := range n.pending {
		n.synced = op.apply(n.synced)
	}
	n.pending = nil
	return nil
}

// Size implements [disk.File].
func (f *file) Size() (int64, error) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.enter(OpRead); err != nil {
		return 0, err
	}
	return int64(len(f.node.data)), nil
}

// Close implements [disk.File].
func (f *file) Close() error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if f.closed {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	if f.mem.cut {
		return ErrPowerLoss
	}
	return nil
}
