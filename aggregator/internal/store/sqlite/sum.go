package sqlite

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// domainBatch is in docs/registry.md.
const domainBatch = "starling batch row v1"

// sum is the hash beside the aggregate share in a row of the table batch. It covers all
// that is added up with the share, and whose it is, so that a row in the place of another
// does not fit.
func (t *task) sum(r *batchRow) []byte {
	b := append([]byte(domainBatch), t.ID[:]...)
	b = append(b, byte(t.Mode))
	if t.Mode == dap.LeaderSelected {
		b = append(b, r.batch...)
	} else {
		b = binary.BigEndian.AppendUint64(b, r.bucket)
	}
	for _, n := range []uint64{r.verified, r.first, r.last} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	h := sha256.New()
	h.Write(append(b, r.checksum...))
	h.Write(r.share)
	return h.Sum(nil)
}

// whole says whether a row that is not closed is what was written.
func (t *task) whole(r *batchRow) bool {
	if r.verified == 0 {
		return r.share == nil && r.sum == nil
	}
	return bytes.Equal(r.sum, t.sum(r))
}

// check refuses a row that is not what was written. The store answers nothing after it.
func (t *task) check(r *batchRow) error {
	if r.closed || t.whole(r) {
		return nil
	}
	return fmt.Errorf("%w: %s", database.ErrDamaged, t.broken(r))
}

func (t *task) broken(r *batchRow) string {
	b := auditBatch{task: t, bucket: int64(r.bucket), id: r.batch}
	return b.String() + ": its aggregate share is not what was written"
}

// checkBatches reads every batch that is open.
func (s *Store) checkBatches(tx *database.Tx) error {
	return tx.Each("open-batches", nil, func(r database.Row) error {
		var row batchRow
		var task int64
		if err := r.Scan(append([]any{&task}, row.dest()...)...); err != nil {
			return err
		}
		t := s.rows[task]
		if t == nil {
			return fmt.Errorf("%w: a batch is of no task", database.ErrDamaged)
		}
		return t.check(&row)
	})
}

// responseSum is the hash beside a response that was released; none beside that of an
// aggregation job, which nothing is computed from.
func responseSum(response []byte) []byte {
	sum := sha256.Sum256(response)
	return sum[:]
}

// checkResponse refuses an answer that is not what was released.
func (t *task) checkResponse(r *resourceRow, sum []byte) error {
	if r.Kind == store.KindAggregation || r.State != store.Ready || bytes.Equal(sum, responseSum(r.Response)) {
		return nil
	}
	return fmt.Errorf("%w: task %v resource %s: its response is not what was written", database.ErrDamaged, t.ID, r.ID)
}
