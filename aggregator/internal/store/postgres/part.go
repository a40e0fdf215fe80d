package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/commits"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/vdaf"
)

// Keys are the data keys under which shares lie in rows; a [*datakey.Set] is one. All
// replicas have the same.
type Keys interface {
	At(ctx context.Context, at time.Time) (*datakey.Key, error)
	By(serial uint64) (*datakey.Key, error)
}

var _ Keys = (*datakey.Set)(nil)

// Domain strings of parts; docs/registry.md lists them.
const (
	domainPart    = "starling part row v1"
	domainOwnPart = "starling part row v2" // under the task's own key
)

// partRow is what a row of the table part has beside its share.
type partRow struct {
	batch       int64
	of          store.Batch
	reports     uint64
	first, last uint64
	checksum    dap.Checksum
	key         uint64
	own         bool // under the task's key, too
}

// name is what a share belongs to: it is sealed as the share of this row and no other.
func (t *task) name(p *partRow) []byte {
	domain := domainPart
	if p.own {
		domain = domainOwnPart
	}
	b := append([]byte(domain), t.id[:]...)
	b = append(b, byte(t.mode))
	if t.mode == dap.LeaderSelected {
		b = append(b, p.of.ID[:]...)
	} else {
		b = binary.BigEndian.AppendUint64(b, uint64(p.of.Start))
	}
	for _, n := range []uint64{p.reports, p.first, p.last, p.key} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return append(b, p.checksum[:]...)
}

// sum is the hash beside a sealed share, which tells without the key whether the row is
// what was written.
func (t *task) sum(p *partRow, box []byte) []byte {
	h := sha256.New()
	h.Write(t.name(p))
	h.Write(box)
	return h.Sum(nil)
}

// putPart appends what a commit adds to a batch, and says how many parts that had, as far as
// partsMost. The key is what [taskKeys.of] says.
func (t *task) putPart(tx *pgdb.Tx, key *datakey.Key, batch int64, of store.Batch, p commits.Part) (before int, err error) {
	row := &partRow{
		batch: batch, of: of, reports: p.Reports, first: uint64(p.First), last: uint64(p.Last), checksum: p.Checksum, key: key.Serial, own: t.own(),
	}
	share := p.Share.Append(nil)
	defer clear(share)
	box := key.Seal(t.name(row), share)
	_, err = tx.One("put-part", []any{batch, row.reports, row.first, row.last, row.checksum[:], row.key, row.own, box, t.sum(row, box), partsMost}, &before)
	return before, err
}

// open is the share of a row that is what was written.
func (t *task) open(keys taskKeys, v vdaf.VDAF, p *partRow, box, sum []byte) (*vdaf.AggShare, error) {
	if !bytes.Equal(sum, t.sum(p, box)) {
		return nil, t.broken(p)
	}
	key, err := keys.by(p.key, p.own)
	if err != nil {
		return nil, err
	}
	defer key.Wipe()
	plain, err := key.Open(t.name(p), box)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	return v.ReadAggShare(plain)
}

func (t *task) broken(p *partRow) error {
	return fmt.Errorf("task %v %s: a part of its aggregate share is not what was written", t.id, t.call(p.of))
}

// call is what a batch is called in words.
func (t *task) call(b store.Batch) string {
	if t.mode == dap.LeaderSelected {
		return fmt.Sprintf("batch %v", b.ID)
	}
	return fmt.Sprintf("bucket %d", b.Start)
}
