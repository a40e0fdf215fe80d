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
	"github.com/starling-agg/starling/aggregator/internal/store/postgres/pgdb"
	"github.com/starling-agg/starling/dap"
)

// The shape of a run. Its ids ascend, and are read and proven page by page.
const (
	idSize    = len(dap.ReportID{})
	pageIDs   = 256
	pageBytes = pageIDs * idSize
	pageHead  = idSize + sha256.Size // what a head has of a page: its first id, and its hash
)

// Domain strings of runs; docs/registry.md lists them.
const (
	domainRun    = "starling run row v1"
	domainHidden = "starling run row v2" // of enciphered ids
	domainFilter = "starling run filter v1"
)

// A head is what a handle has of a run in memory, two bytes for each id: enough to say of
// nearly each id that is not in it that it is not, and to prove whatever is read of the rest.
type head struct {
	count  int
	digest segment.SetDigest // of the ids
	veil   []byte            // where the ids are enciphered, and the row's digest is covered
	stored segment.SetDigest // as the row has it
	pages  []byte            // a pageHead each
	filter filter
	sum    [sha256.Size]byte // of all of it
}

// own says whether the ids are enciphered under the task's key.
func (h *head) own() bool { return len(h.veil) > 0 }

func (h *head) size() int { return len(h.pages) + len(h.filter) }

// first is the least id of page i.
func (h *head) first(i int) []byte { return h.pages[i*pageHead : i*pageHead+idSize] }

func (h *head) len() int { return len(h.pages) / pageHead }

// find is the page that an id would be in; -1 where it is below all.
func (h *head) find(id []byte) int {
	return sort.Search(h.len(), func(i int) bool { return bytes.Compare(h.first(i), id) > 0 }) - 1
}

// proves says whether ids are those of the pages from i on.
func (h *head) proves(i int, ids []byte) bool {
	for page := range slices.Chunk(ids, pageBytes) {
		if i >= h.len() || min(pageIDs, h.count-i*pageIDs)*idSize != len(page) {
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
func (h *head) hash(t *task) [sha256.Size]byte {
	domain := domainRun
	if h.own() {
		domain = domainHidden
	}
	b := append([]byte(domain), t.id[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.count))
	b = append(b, h.stored[:]...)
	b = append(b, h.veil...)
	d := sha256.New()
	d.Write(b)
	d.Write(h.pages) // of as many bytes as count says
	d.Write(h.filter)
	return [sha256.Size]byte(d.Sum(nil))
}

// whole says whether the row is what was written, but for its ids.
func (h *head) whole(t *task) bool {
	return h.count > 0 && h.len() == (h.count+pageIDs-1)/pageIDs && len(h.pages)%pageHead == 0 &&
		len(h.filter) == filterSize(h.count) && h.sum == h.hash(t)
}

// putRun appends a run of distinct ids, in any order, to those of a task.
func (s *Store) putRun(tx *pgdb.Tx, t *task, list []dap.ReportID) error {
	h := &head{count: len(list), filter: make(filter, filterSize(len(list)))}
	for _, id := range list {
		h.digest.Put(&s.setKey, segment.ReportID(id))
	}
	h.stored = h.digest
	under, err := s.hidden(t)
	if err != nil {
		return err
	}
	if under != nil {
		list = under.hide(list)
		h.veil = make([]byte, veilSize)
		rand.Read(h.veil)
		h.stored = under.cover(h.digest, h.veil)
	}
	ids := ascending(list)
	if len(ids) != h.count*idSize {
		return fmt.Errorf("task %v: internal error: an id is in two runs", t.id)
	}
	for page := range slices.Chunk(ids, pageBytes) {
		sum := sha256.Sum256(page)
		h.pages = append(append(h.pages, page[:idSize]...), sum[:]...)
	}
	for id := range slices.Chunk(ids, idSize) {
		h.filter.put(s.hashOf(id))
	}
	h.sum = h.hash(t)
	_, err = tx.Exec("put-run", t.row, h.count, ids, h.pages, []byte(h.filter), h.veil, h.stored[:], h.sum[:])
	return err
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

// inPage says whether ids that ascend have that one.
func inPage(ids, id []byte) bool {
	n := len(ids) / idSize
	i := sort.Search(n, func(i int) bool { return bytes.Compare(ids[i*idSize:(i+1)*idSize], id) >= 0 })
	return i < n && bytes.Equal(ids[i*idSize:(i+1)*idSize], id)
}

// ascending is the encoding of distinct ids in order.
func ascending(ids []dap.ReportID) []byte {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b dap.ReportID) int { return bytes.Compare(a[:], b[:]) })
	sorted = slices.Compact(sorted)
	out := make([]byte, 0, len(sorted)*idSize)
	for _, id := range sorted {
		out = append(out, id[:]...)
	}
	return out
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
