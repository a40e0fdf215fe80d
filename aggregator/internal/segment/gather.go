package segment

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/starling-agg/starling/aggregator/internal/payload"
)

// gathered are the reports of several slices of one task and batch bucket, as one job
// takes them: in the order of the slices, and of reports with one id the first. It is a
// function of the slices and their order, so that a job made again is the same.
type gathered struct {
	slices     []*openedSlice
	reports    []gatheredReport
	duplicates int // left out, because their id came in an earlier slice
}

type gatheredReport struct{ slice, report int }

// sliceError is a slice that could not be opened, of several.
type sliceError struct {
	slice slice
	err   error
}

func (e *sliceError) Error() string { return e.err.Error() }
func (e *sliceError) Unwrap() error { return e.err }

// gatherReads is how many slices are read at once: an object store answers each in its
// own time, and memory is bounded by the job.
const gatherReads = 8

// gather reads slices and verifies them against their rows. Where some cannot be opened
// the error has a [*sliceError] of each, so that those that are damaged can be set aside
// and the others claimed again; nothing stays open then.
func gather(ctx context.Context, store payload.Store, rows []slice) (*gathered, error) {
	g := &gathered{slices: make([]*openedSlice, len(rows))}
	errs := make([]error, len(rows))
	var reads errgroup.Group
	reads.SetLimit(gatherReads)
	for i, row := range rows {
		reads.Go(func() error {
			var err error
			if row.task != rows[0].task || row.bucket != rows[0].bucket {
				err = fmt.Errorf("segment: gather %s: %w: of another task or batch bucket than the first", &row, ErrCorrupt)
			} else {
				g.slices[i], err = openSlice(ctx, store, row)
			}
			if err != nil {
				errs[i] = &sliceError{row, err}
			}
			return nil // every slice is tried
		})
	}
	_ = reads.Wait() // none fails
	if err := errors.Join(errs...); err != nil {
		g.close()
		return nil, err
	}
	seen := make(map[ReportID]struct{})
	for i, s := range g.slices {
		for j := range s.rows {
			if _, is := seen[s.id(j)]; is {
				g.duplicates++
				continue
			}
			seen[s.id(j)] = struct{}{}
			g.reports = append(g.reports, gatheredReport{i, j})
		}
	}
	return g, nil
}

// len is the number of reports.
func (g *gathered) len() int { return len(g.reports) }

// id is the id of report i. Ids are distinct.
func (g *gathered) id(i int) ReportID { return g.slices[g.reports[i].slice].id(g.reports[i].report) }

// report is report i as the client sent it; see [openedSlice.report].
func (g *gathered) report(i int) []byte {
	return g.slices[g.reports[i].slice].report(g.reports[i].report)
}

// close gives the memory back.
func (g *gathered) close() {
	for _, s := range g.slices {
		if s != nil {
			s.close()
		}
	}
}
