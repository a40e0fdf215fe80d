package segment

import (
	"bytes"
	"cmp"
	"hash"
	"slices"

	"github.com/starling-agg/starling/internal/disk"
)

// logSlices lists the slices of what is whole of a log, by task and batch bucket, and of
// each in order of arrival. A slice has at most maxBytes bytes of reports and maxReports
// reports, what a job takes, unless one piece alone has more. The list is a function of the
// log, so that each attempt to have it named names the same. Records that are whole, and
// yet none of ours, are left out and returned.
func logSlices(name string, scan *disk.Scan, came int64, maxBytes, maxReports int) (list []Slice, malformed [][]byte) {
	open := make(map[place]*logSlice)
	var done []*logSlice
	for i, record := range slices.Concat(scan.Records, scan.Behind) {
		blocks, err := cutBlocks(record)
		if err != nil {
			malformed = append(malformed, record)
			continue
		}
		at := scan.At[i]
		for _, b := range blocks {
			s := open[b.place]
			if s == nil || !s.takes(&b, maxBytes, maxReports) {
				s = &logSlice{
					Slice:  Slice{Object: name, TaskID: b.task, Bucket: b.bucket, Came: came},
					sum:    sliceSum(b.task, b.bucket),
					number: len(done),
				}
				open[b.place] = s
				done = append(done, s)
			}
			s.add(&b, at+blockHeader)
			at += blockHeader + int64(len(b.table)+len(b.body))
		}
	}
	slices.SortFunc(done, func(a, b *logSlice) int {
		return cmp.Or(bytes.Compare(a.TaskID[:], b.TaskID[:]), cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.number, b.number))
	})
	for _, s := range done {
		s.Sum = Sum(s.sum.Sum(nil))
		list = append(list, s.Slice)
	}
	return list, malformed
}

// cutBlocks are the blocks of a record.
func cutBlocks(record []byte) (blocks []block, err error) {
	for len(record) > 0 {
		var b block
		if b, record, err = cutBlock(record); err != nil {
			return nil, err
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// logSlice is a slice that is being listed.
type logSlice struct {
	Slice
	sum    hash.Hash
	number int // in order of their first pieces
	bytes  int // of reports
	large  bool
}

// takes says whether a block is to be a piece of the slice.
func (s *logSlice) takes(b *block, maxBytes, maxReports int) bool {
	if s.large {
		maxBytes = min(maxBytes, LargeBytes)
	}
	return s.Count+b.count <= maxReports && s.bytes+len(b.body) <= maxBytes
}

// add takes in a block, whose piece begins at an offset of the log.
func (s *logSlice) add(b *block, offset int64) {
	s.large = s.large || b.length(0) >= LargeReport
	s.sum.Write(b.table)
	s.Pieces = append(s.Pieces, Piece{offset, uint32(len(b.table) + len(b.body)), uint32(b.count)})
	s.Count += b.count
	s.bytes += len(b.body)
}
