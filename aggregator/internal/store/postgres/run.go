package postgres

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// The shape of a run. Its entries ascend by their ids, and are read and proven page by page.
const (
	idSize    = len(dap.ReportID{})
	pageBytes = 4096
	pageHead  = idSize + sha256.Size // what a head has of a page: its first id, and its hash
)

// Domain strings of runs; docs/registry.md lists them.
const (
	domainRun     = "starling run row v1"
	domainHidden  = "starling run row v2" // of enciphered ids
	domainMarkRun = "starling mark run row v1"
	domainFilter  = "starling run filter v1"
)

// A runsName says whose runs they are: of the ids of a task's reports, or of the marks of one
// of its rounds, each of which has the id of its report behind it.
type runsName struct {
	task  dap.TaskID
	marks bool
	round uint64 // of marks
}

func idsOf(task dap.TaskID) runsName { return runsName{task: task} }

func marksOf(task dap.TaskID, round uint64) runsName { return runsName{task, true, round} }

// runsOf are runs of a task as a transaction found it.
type runsOf struct {
	runsName
	*kind
	t *task
}

func (n runsName) found(t *task) runsOf {
	if n.marks {
		return runsOf{n, &markRuns, t}
	}
	return runsOf{n, &idRuns, t}
}

// key is what statements take first.
func (of runsOf) key(more ...any) []any {
	if of.marks {
		return append([]any{of.t.row, int64(of.round)}, more...)
	}
	return append([]any{of.t.row}, more...)
}

// A kind of runs has a table, a size of entries, and a key of the task.
type kind struct {
	entry                                    int // bytes: an id, and its owner where it has one
	secret                                   string
	listed, heads, pages, entries, put, drop string // statements
}

var (
	idRuns   = kind{idSize, domainTaskIDs, "run-ids", "run-heads", "run-pages", "run-ids-of", "put-run", "drop-runs"}
	markRuns = kind{2 * idSize, domainTaskMarks, "spent-runs", "spent-run-heads", "spent-run-pages", "spent-run-entries", "put-spent-run", "drop-spent-runs"}
)

// perPage is how many entries a full page has.
func (k *kind) perPage() int { return pageBytes / k.entry }

// A head is what a handle has of a run in memory, some two bytes for each id: enough to say
// of nearly each id that is not in it that it is not, and to prove whatever is read of the
// rest.
type head struct {
	count  int
	digest segment.SetDigest // of the entries
	veil   []byte            // where the entries are enciphered, and the row's digest is covered
	stored segment.SetDigest // as the row has it
	pages  []byte            // a pageHead each
	filter filter
	sum    [sha256.Size]byte // of all of it
}

// own says whether the entries are enciphered under the task's key.
func (h *head) own() bool { return len(h.veil) > 0 }

func (h *head) size() int { return len(h.pages) + len(h.filter) }

// first is the least id of page i.
func (h *head) first(i int) []byte { return h.pages[i*pageHead : i*pageHead+idSize] }

func (h *head) len() int { return len(h.pages) / pageHead }

// find is the page that an id would be in; -1 where it is below all.
func (h *head) find(id []byte) int {
	return sort.Search(h.len(), func(i int) bool { return bytes.Compare(h.first(i), id) > 0 }) - 1
}

// proves says whether entries are those of the pages from i on.
func (h *head) proves(k *kind, i int, entries []byte) bool {
	for page := range slices.Chunk(entries, pageBytes) {
		if i >= h.len() || min(k.perPage(), h.count-i*k.perPage())*k.entry != len(page) {
			return false
		}
		if sum := sha256.Sum256(page); !bytes.Equal(h.pages[i*pageHead+idSize:(i+1)*pageHead], sum[:]) {
			return false
		}
		i++
	}
	return true
}

// hash is what the row says of itself.
func (h *head) hash(of runsOf) [sha256.Size]byte {
	var b []byte
	switch {
	case of.marks:
		b = append(append(b, domainMarkRun...), of.task[:]...)
		b = binary.BigEndian.AppendUint64(b, of.round)
	case h.own():
		b = append(append(b, domainHidden...), of.task[:]...)
	default:
		b = append(append(b, domainRun...), of.task[:]...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(h.count))
	if of.marks {
		b = append(b, byte(len(h.veil)))
	}
	b = append(b, h.stored[:]...)
	b = append(b, h.veil...)
	d := sha256.New()
	d.Write(b)
	d.Write(h.pages) // of as many bytes as count says
	d.Write(h.filter)
	return [sha256.Size]byte(d.Sum(nil))
}

// whole says whether the row is what was written, but for its entries.
func (h *head) whole(of runsOf) bool {
	return h.count > 0 && h.len() == (h.count+of.perPage()-1)/of.perPage() && len(h.pages)%pageHead == 0 &&
		len(h.filter) == filterSize(h.count) && h.sum == h.hash(of)
}

// putRun appends a run of entries with distinct ids, in any order, and says what they are.
func (s *Store) putRun(tx *pgdb.Tx, of runsOf, entries []byte) (total, error) {
	count := len(entries) / of.entry
	h := &head{count: count, filter: make(filter, filterSize(count))}
	for entry := range slices.Chunk(entries, of.entry) {
		h.digest.PutEntry(&s.setKey, entry)
	}
	h.stored = h.digest
	under, err := s.hidden(of)
	if err != nil {
		return total{}, err
	}
	if under != nil {
		entries = under.hide(entries)
		h.veil = make([]byte, veilSize)
		rand.Read(h.veil)
		h.stored = under.cover(h.digest, h.veil)
	}
	entries, distinct := inOrder(entries, of.entry)
	if !distinct {
		return total{}, fmt.Errorf("task %v: internal error: an id is in two runs", of.task)
	}
	for page := range slices.Chunk(entries, pageBytes) {
		sum := sha256.Sum256(page)
		h.pages = append(append(h.pages, page[:idSize]...), sum[:]...)
	}
	for entry := range slices.Chunk(entries, of.entry) {
		h.filter.put(s.hashOf(entry[:idSize]))
	}
	h.sum = h.hash(of)
	_, err = tx.Exec(of.put, of.key(h.count, entries, h.pages, []byte(h.filter), h.veil, h.stored[:], h.sum[:])...)
	return total{uint64(h.count), h.digest}, err
}

// A filter says of nearly all ids that are not in a run that they are not, and never so of
// one that is (a Bloom filter in blocks of a cache line): each id sets a few bits of one
// block. One in 700 others passes.
type filter []byte

const (
	filterBits  = 16 // for each id
	filterBlock = 64 // bytes
)

func filterSize(ids int) int {
	return max(1, (ids*filterBits+8*filterBlock-1)/(8*filterBlock)) * filterBlock
}

// An idHash says where in filters an id is. It is keyed, for whoever makes reports chooses
// their ids, and could have chosen such as pass.
type idHash [sha256.Size]byte

// filterKeyOf is the key of the filters of the store whose own key that is.
func filterKeyOf(store []byte) [32]byte { return sha256.Sum256(append([]byte(domainFilter), store...)) }

func (s *Store) hashOf(id []byte) *idHash {
	var b [32 + idSize]byte
	copy(b[:], s.filterKey[:])
	copy(b[32:], id)
	h := idHash(sha256.Sum256(b[:]))
	return &h
}

func (f filter) block(h *idHash) []byte {
	at := int(binary.BigEndian.Uint64(h[:]) % uint64(len(f)/filterBlock))
	return f[at*filterBlock : (at+1)*filterBlock]
}

// bit is one of those that an id has in its block.
func (h *idHash) bit(i int) (at int, mask byte) {
	n := binary.BigEndian.Uint16(h[8+2*i:]) % (8 * filterBlock)
	return int(n / 8), 1 << (n % 8)
}

// filterHashes is how many bits an id has.
const filterHashes = 8

func (f filter) put(h *idHash) {
	block := f.block(h)
	for i := range filterHashes {
		at, mask := h.bit(i)
		block[at] |= mask
	}
}

func (f filter) has(h *idHash) bool {
	block := f.block(h)
	for i := range filterHashes {
		if at, mask := h.bit(i); block[at]&mask == 0 {
			return false
		}
	}
	return true
}

// inPage is the entry of an id in entries that ascend; nil where there is none.
func (k *kind) inPage(entries, id []byte) []byte {
	n := len(entries) / k.entry
	i := sort.Search(n, func(i int) bool { return bytes.Compare(entries[i*k.entry:i*k.entry+idSize], id) >= 0 })
	if i == n || !bytes.Equal(entries[i*k.entry:i*k.entry+idSize], id) {
		return nil
	}
	return entries[i*k.entry : (i+1)*k.entry]
}

// inOrder has entries ascend, and says whether their ids are distinct.
func inOrder(entries []byte, size int) (out []byte, distinct bool) {
	all := slices.Collect(slices.Chunk(entries, size))
	slices.SortFunc(all, func(a, b []byte) int { return bytes.Compare(a[:idSize], b[:idSize]) })
	out, distinct = make([]byte, 0, len(entries)), true
	for i, entry := range all {
		distinct = distinct && (i == 0 || !bytes.Equal(all[i-1][:idSize], entry[:idSize]))
		out = append(out, entry...)
	}
	return out, distinct
}

// joinIDs is the encoding of ids, as they come.
func joinIDs(ids []dap.ReportID) []byte {
	out := make([]byte, 0, len(ids)*idSize)
	for i := range ids {
		out = append(out, ids[i][:]...)
	}
	return out
}

// ascending is the encoding of distinct ids in order.
func ascending(ids []dap.ReportID) []byte {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, compareIDs)
	return joinIDs(slices.Compact(sorted))
}

// meet says whether two lists of ids that ascend have one in common.
func meet(a, b []byte) bool {
	for len(a) > 0 && len(b) > 0 {
		switch bytes.Compare(a[:idSize], b[:idSize]) {
		case 0:
			return true
		case -1:
			a = a[idSize:]
		default:
			b = b[idSize:]
		}
	}
	return false
}
