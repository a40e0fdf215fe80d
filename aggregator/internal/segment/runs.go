package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/starling-agg/starling/internal/disk"
)

// The shape of a set of runs. A commit writes a run of [AllIDs]. Runs of one range that
// are of about one size are merged, mergeFanIn or more at a time; a range that has come
// to [RangeIDs] ids is divided: all of its runs go into ranges of their own, or, where
// AllIDs was divided before, into those. So the ranges below AllIDs are disjoint, an id
// lies in one of them and in AllIDs, and no run has more than RangeIDs ids.
const (
	RangeIDs   = leafIDs << (2 * (tiers - 1)) // 2^20 ids, 16 MiB
	mergeFanIn = 4
	leafIDs    = 4096 // the lowest tier: 16 blocks
	tiers      = 5

	// MaxReads is how many runs a lookup of one id reads at most, a block of each, when
	// merges are done.
	MaxReads = 2 * tiers * (mergeFanIn - 1)
)

// A Damage is a run that a row names and that cannot be read, or is not what the row
// says.
type Damage struct {
	RunMeta
	Why string
}

// DamagedError says that a question about ids cannot be answered, since they may be in
// runs that are damaged.
type DamagedError struct{ Runs []Damage }

func (e *DamagedError) Error() string {
	whys := make([]string, len(e.Runs))
	for i, d := range e.Runs {
		whys[i] = d.Why
	}
	return "the replay protection is damaged: " + strings.Join(whys, "; ")
}

// Is makes it an [ErrCorrupt].
func (e *DamagedError) Is(target error) bool { return target == ErrCorrupt }

// ErrClosed says that a set of runs was closed while it was asked.
var ErrClosed = errors.New("segment: the runs are closed")

// Runs is the set of ids already aggregated in one task, or of the marks of a round, each
// with its owner: the union of its committed runs. It keeps of each its file open, and in
// memory 16 bytes for 255 ids or 127 marks. Lookups may run together;
// Add, Replace and Close wait for them. Their order is the caller's matter.
//
// A run that is damaged is no error of the whole: what may be in it has no answer, a
// [DamagedError], until it is mended.
type Runs struct {
	fs    disk.FS
	limit int64 // RangeIDs, but for tests

	mu      sync.RWMutex
	runs    []*run
	damaged []Damage
	closed  bool
}

// OpenRuns opens the committed runs of one task and verifies each, every byte. There may
// be none.
func OpenRuns(fsys disk.FS, metas []RunMeta) (*Runs, error) {
	r := &Runs{fs: fsys, limit: RangeIDs}
	for _, meta := range metas {
		if err := r.Add(meta); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// SetLimit replaces RangeIDs, for tests.
func (r *Runs) SetLimit(ids int64) { r.limit = ids }

// AddWhole is [Runs.Add] of a run that should be whole: damage is an error, and nothing
// is taken in.
func (r *Runs) AddWhole(meta RunMeta) error {
	opened, damage, err := r.open(meta)
	if damage != nil {
		err = &DamagedError{[]Damage{*damage}}
	}
	if err != nil {
		return err
	}
	r.take(meta, opened, nil)
	return nil
}

// Add takes in a run after the transaction that names it. Again is harmless.
func (r *Runs) Add(meta RunMeta) error {
	opened, damage, err := r.open(meta)
	if err != nil {
		return err
	}
	r.take(meta, opened, damage)
	return nil
}

// take takes in what Runs.open returned of a run that is not there yet.
func (r *Runs) take(meta RunMeta, opened *run, damage *Damage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.named(meta.Name) {
		if opened != nil {
			opened.file.Close() // read only
		}
		return
	}
	r.put(opened, damage)
}

// open tells damage from what may pass, as too many open files may.
func (r *Runs) open(meta RunMeta) (*run, *Damage, error) {
	opened, err := openRun(r.fs, meta)
	if why := damageOf(err); why != "" {
		return nil, &Damage{meta, meta.Name + " " + why}, nil
	}
	return opened, nil, err
}

// damageOf says in words what is wrong with a file; nothing where the error is of another
// kind.
func damageOf(err error) string {
	var read *readError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is missing"
	case errors.Is(err, ErrCorrupt), errors.Is(err, io.ErrUnexpectedEOF):
		return "is not what was written"
	case errors.As(err, &read):
		return "cannot be read from the disk"
	}
	return ""
}

// put takes in what open returned.
func (r *Runs) put(opened *run, damage *Damage) {
	if damage != nil {
		r.damaged = append(r.damaged, *damage)
	} else {
		r.runs = append(r.runs, opened)
	}
}

func (r *Runs) named(name string) bool {
	return slices.ContainsFunc(r.runs, func(x *run) bool { return x.meta.Name == name }) ||
		slices.ContainsFunc(r.damaged, func(x Damage) bool { return x.Name == name })
}

// Damaged lists the runs that are damaged, as far as that is known.
func (r *Runs) Damaged() []Damage {
	r.setAside()
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.damaged)
}

// setAside moves the runs in which a block was found damaged.
func (r *Runs) setAside() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = slices.DeleteFunc(r.runs, func(x *run) bool {
		if x.bad.Load() {
			x.file.Close() // read only
			r.damaged = append(r.damaged, Damage{x.meta, x.meta.Name + " is not what was written"})
			return true
		}
		return false
	})
}

// Recheck reads the damaged runs again: somebody may have mended them.
func (r *Runs) Recheck() error {
	for _, d := range r.Damaged() {
		opened, damage, err := r.open(d.RunMeta)
		if err != nil {
			return err
		}
		r.mu.Lock()
		before := len(r.damaged)
		r.damaged = slices.DeleteFunc(r.damaged, func(x Damage) bool { return x.Name == d.Name })
		if !r.closed && len(r.damaged) < before {
			r.put(opened, damage)
		} else if opened != nil {
			opened.file.Close() // read only
		}
		r.mu.Unlock()
	}
	return nil
}

// Follow makes the set that of the rows: it takes in the runs that have come, and lets go
// of those that are gone.
func (r *Runs) Follow(metas []RunMeta) error {
	named := make(map[string]bool, len(metas))
	for _, m := range metas {
		named[m.Name] = true
		r.mu.RLock()
		known := r.named(m.Name)
		r.mu.RUnlock()
		if known {
			continue
		}
		if err := r.Add(m); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = slices.DeleteFunc(r.runs, func(x *run) bool {
		if named[x.meta.Name] {
			return false
		}
		x.file.Close() // read only
		return true
	})
	r.damaged = slices.DeleteFunc(r.damaged, func(d Damage) bool { return !named[d.Name] })
	return nil
}

// Renew puts a new run in the place of damaged ones, after the transaction that did the
// same to the rows.
func (r *Runs) Renew(damaged []Damage, meta RunMeta) error {
	r.mu.Lock()
	r.damaged = slices.DeleteFunc(r.damaged, func(x Damage) bool {
		return slices.ContainsFunc(damaged, func(d Damage) bool { return d.Name == x.Name })
	})
	r.mu.Unlock()
	return r.Add(meta)
}

// Contains reports whether a run holds id.
func (r *Runs) Contains(id ReportID) (bool, error) {
	seen, err := r.FilterNew([]ReportID{id})
	if err != nil {
		return false, err
	}
	return seen[0], nil
}

// FilterNew reports for each id whether it is a replay: held by a run, or equal to an id
// before it in the same call. It looks them up in sorted order, so that a batch reads
// each block of a run at most once. len(seen) == len(ids).
func (r *Runs) FilterNew(ids []ReportID) (seen []bool, err error) { return r.filter(ids, nil, false) }

// Known is FilterNew of the runs that are whole.
func (r *Runs) Known(ids []ReportID) (seen []bool, err error) { return r.filter(ids, nil, true) }

// Owners is FilterNew of distinct ids in runs of which each id has an owner, and says which.
func (r *Runs) Owners(ids []ReportID) (owners []ReportID, seen []bool, err error) {
	owners = make([]ReportID, len(ids))
	seen, err = r.filter(ids, owners, false)
	return owners, seen, err
}

func (r *Runs) filter(ids, owners []ReportID, partial bool) (seen []bool, err error) {
	seen = make([]bool, len(ids))
	order := make([]int, len(ids))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(compareIDs(ids[a], ids[b]), cmp.Compare(a, b)) })
	for i := 1; i < len(order); i++ {
		if ids[order[i]] == ids[order[i-1]] {
			seen[order[i]] = true
		}
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return nil, ErrClosed
	}
	damaged := slices.Clone(r.damaged)
	buf := make([]byte, blockSize)
	for _, x := range r.runs {
		err := x.mark(ids, x.meta.Range.of(ids, order), seen, owners, buf)
		if why := damageOf(err); why != "" {
			x.bad.Store(true)
			damaged = append(damaged, Damage{x.meta, x.meta.Name + " " + why})
		} else if err != nil {
			return nil, err
		}
	}
	if partial {
		return seen, nil
	}
	unknown := func(i int) bool { return !seen[i] }
	damaged = slices.DeleteFunc(damaged, func(d Damage) bool {
		return !slices.ContainsFunc(d.Range.of(ids, order), unknown)
	})
	if len(damaged) > 0 {
		return nil, &DamagedError{damaged}
	}
	return seen, nil
}

// IDs lists the ids of a range that the runs hold, ascending, n at most. Ids in damaged
// runs are left out.
func (r *Runs) IDs(in Range, n int) (ids []ReportID, err error) {
	r.setAside()
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return nil, ErrClosed
	}
	m, err := newMerger(r.runs, in.Low)
	if err != nil {
		return nil, err
	}
	var entry []byte
	for len(ids) < n {
		entry, err = m.next(entry[:0])
		if errors.Is(err, io.EOF) || err == nil && compareIDs(ReportID(entry), in.High) > 0 {
			break
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, ReportID(entry))
	}
	return ids, nil
}

// Each calls fn with every id, in ascending order. An id that two runs hold is an error,
// and so is a damaged run.
func (r *Runs) Each(fn func(ReportID)) error {
	if d := r.Damaged(); len(d) > 0 {
		return &DamagedError{d}
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	m, err := newMerger(r.runs, ReportID{})
	if err != nil {
		return err
	}
	var entry []byte
	for {
		entry, err = m.next(entry[:0])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		fn(ReportID(entry))
	}
}

// metas lists the runs that are whole, in no order.
func (r *Runs) metas() []RunMeta {
	r.mu.RLock()
	defer r.mu.RUnlock()
	metas := make([]RunMeta, len(r.runs))
	for i, run := range r.runs {
		metas[i] = run.meta
	}
	return metas
}

// Len is how many files are open.
func (r *Runs) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.runs)
}

// blockReads counts the blocks that lookups have read of the runs that are here now.
func (r *Runs) blockReads() (n int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, x := range r.runs {
		n += x.reads.Load()
	}
	return n
}

// MergePlan is a merge that is due, or nil. Merging until there is none keeps a lookup at
// [MaxReads] runs, and rewrites each id about log4 of how many ids there are, in jobs.
func (r *Runs) MergePlan() *Plan {
	r.mu.RLock()
	damaged := make(map[Range]bool) // its whole ranges stay as they are, for whoever mends it
	for _, d := range r.damaged {
		damaged[d.Range] = true
	}
	r.mu.RUnlock()
	groups := make(map[Range][]RunMeta)
	for _, m := range r.metas() {
		groups[m.Range] = append(groups[m.Range], m)
	}
	var parts []Range // those below AllIDs
	for at := range groups {
		if at != AllIDs {
			parts = append(parts, at)
		}
	}
	for at := range damaged {
		if _, whole := groups[at]; at != AllIDs && !whole {
			parts = append(parts, at)
		}
	}
	slices.SortFunc(parts, func(a, b Range) int { return compareIDs(a.Low, b.Low) })
	for _, at := range append([]Range{AllIDs}, parts...) {
		if damaged[at] {
			continue
		}
		if p := r.planOf(at, groups[at], parts); p != nil {
			return p
		}
	}
	return nil
}

// planOf is what is due among the runs of one range.
func (r *Runs) planOf(at Range, metas []RunMeta, parts []Range) *Plan {
	var total int64
	for _, m := range metas {
		total += m.Count
	}
	if total >= r.limit {
		if at == AllIDs && len(parts) > 0 {
			return &Plan{Runs: metas, Into: parts}
		}
		half := max(r.limit/2, 1)
		return &Plan{Runs: metas, Into: []Range{at}, Cut: int((total + half - 1) / half)}
	}
	slices.SortFunc(metas, func(a, b RunMeta) int {
		return cmp.Or(cmp.Compare(a.Count, b.Count), cmp.Compare(a.Name, b.Name))
	})
	for start := 0; start < len(metas); {
		end := start
		for end < len(metas) && tier(metas[end].Count) == tier(metas[start].Count) {
			end++
		}
		if end-start >= mergeFanIn {
			return &Plan{Runs: metas[start:end], Into: []Range{at}}
		}
		start = end
	}
	return nil
}

// tier is 0 up to leafIDs, and one more for each fourfold.
func tier(count int64) int {
	t := 0
	for ; count > leafIDs; count = (count + mergeFanIn - 1) / mergeFanIn {
		t++
	}
	return t
}

// Replace puts merged runs in the place of those they were made of, after the transaction
// that did the same to the rows. The old files are closed; removing them is the caller's
// next step.
func (r *Runs) Replace(old, merged []RunMeta) error {
	var opened []*run
	var damaged []*Damage
	for _, meta := range merged {
		x, d, err := r.open(meta)
		if err != nil {
			for _, x := range opened {
				if x != nil {
					x.file.Close() // read only
				}
			}
			return fmt.Errorf("segment: open merged run: %w", err)
		}
		opened, damaged = append(opened, x), append(damaged, d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = slices.DeleteFunc(r.runs, func(x *run) bool {
		gone := slices.Contains(old, x.meta)
		if gone {
			x.file.Close() // read only
		}
		return gone
	})
	for i, x := range opened {
		if r.closed {
			x.file.Close() // read only
			continue
		}
		r.put(x, damaged[i])
	}
	return nil
}

// Close releases the files; whoever asks afterwards gets [ErrClosed]. It may be repeated.
func (r *Runs) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.runs {
		x.file.Close() // read only
	}
	r.runs, r.damaged, r.closed = nil, nil, true
}
