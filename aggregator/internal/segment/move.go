package segment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/buffer"
	"github.com/starling-agg/starling/internal/wire"
)

// MoveSlices copies slices, of whatever tasks and batch buckets, out of an object, be it a
// log, into a new one, durably, so that the old one may go: where it is damaged, or mostly
// reports that are done. It says what the rows are then, in the order of the slices. Only
// where they are has changed: their reports, the numbers of these and the sum are the
// same, so that a job that has sent some is not disturbed.
//
// Where some cannot be opened the error has a [*SliceError] of each, and nothing is put.
// Memory holds all of the slices, so that the caller bounds them.
func MoveSlices(ctx context.Context, from, to payload.Store, object string, list []Slice) ([]Slice, error) {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &list[i], &list[j]
		return cmp.Or(bytes.Compare(a.TaskID[:], b.TaskID[:]), cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(i, j))
	})
	var d directory
	parts := [][]byte{nil} // the head, when all else is known
	var errs []error
	for _, i := range order {
		s := &list[i]
		data, table, reports, err := s.layOut(ctx, from)
		defer buffer.Put(data)
		if err != nil {
			errs = append(errs, &SliceError{i, *s, err})
			continue
		}
		parts = append(append(parts, table), reports...)
		d = append(d, slice{
			task: s.TaskID, bucket: s.Bucket, count: uint32(s.Count), duplicates: uint32(s.Duplicates),
			length: uint32(s.Size()), sum: s.Sum,
		})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var err error
	if parts[0], err = d.head(object); err == nil {
		err = payload.Keep(ctx, to, object, parts...)
	}
	if err != nil {
		return nil, fmt.Errorf("segment: move to %s: %w", object, err)
	}
	moved := make([]Slice, len(list))
	for k, i := range order {
		moved[i] = d[k].row(list[i].Came)
	}
	return moved, nil
}

// layOut reads a slice and says how an object has it: one table, and all reports behind
// it. The reports are in data, which is lent.
func (s *Slice) layOut(ctx context.Context, from payload.Store) (data, table []byte, reports [][]byte, err error) {
	if err := s.Check(); err != nil {
		return nil, nil, nil, err
	}
	data = buffer.Get(int(s.Size()))[:s.Size()]
	if err := s.read(ctx, from, data); err != nil {
		return data, nil, nil, err
	}
	rows, at := make([]reportRow, s.Count), make([]int, s.Count)
	if err := s.parse(data, rows, at, 0); err != nil {
		return data, nil, nil, err
	}
	for i := range rows {
		if table, err = wire.Append(table, ErrCorrupt, rows[i].code); err != nil {
			return data, nil, nil, err
		}
	}
	rest := data
	for _, p := range s.Pieces {
		reports = append(reports, rest[p.Count*reportEntry:p.Length])
		rest = rest[p.Length:]
	}
	return data, table, reports, nil
}
