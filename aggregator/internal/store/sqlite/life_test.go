package sqlite_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service/database"
	"github.com/starling-agg/starling/vdaf"
)

const (
	lifeBytes   = 232 // of a Count report
	lifeRequest = 200 // reports
	lifeGroup   = 1000
	lifeJob     = 4096 // reports
)

func lifeID(n int) (id dap.ReportID) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	sum := sha256.Sum256(b[:])
	copy(id[:], sum[:])
	return id
}

// BenchmarkLife takes reports through all that a leader's store does with them, from the
// acknowledgement over the job to the commit that makes each a replay for ever: as
// segments and runs, and as a row each. Verification is left out of both, each report is
// acknowledged durably, four clients send 200 at a time, and at most 1,000 share a sync.
// The bytes are those written through the file system.
func BenchmarkLife(b *testing.B) {
	for _, x := range []struct {
		name    string
		life    func(b *testing.B, fsys disk.FS, reports int)
		reports int
	}{{"segments", segmentLife, 100_000}, {"rows", rowLife, 100_000}, {"segments", segmentLife, 1_000_000}, {"rows", rowLife, 1_000_000}} {
		b.Run(fmt.Sprintf("%s=%d", x.name, x.reports), func(b *testing.B) {
			var written atomic.Uint64
			var took time.Duration
			for b.Loop() {
				osfs, err := disk.OS(b.TempDir())
				if err != nil {
					b.Fatal(err)
				}
				begin := time.Now()
				x.life(b, disk.Counted(osfs, func(string) *atomic.Uint64 { return &written }), x.reports)
				took += time.Since(begin)
				osfs.Close()
			}
			all := float64(b.N * x.reports)
			b.ReportMetric(all/took.Seconds(), "reports/s")
			b.ReportMetric(float64(written.Load())/all, "bytes/report")
		})
	}
}

// clients has four clients send requests of 200 reports, by the number of the first.
func clients(reports int, send func(first int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for n := next.Add(1) - 1; n < int64(reports/lifeRequest); n = next.Add(1) - 1 {
				send(int(n) * lifeRequest)
			}
		})
	}
	all.Wait()
}

func segmentLife(b *testing.B, fsys disk.FS, reports int) {
	ctx := b.Context()
	st, err := sqlite.Open(ctx, options(fsys, nil))
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	task := storetest.Task(b, dap.TimeInterval, 1)
	if err := st.PutTask(ctx, task); err != nil {
		b.Fatal(err)
	}
	inbox, err := segment.OpenInbox(ctx, fsys, st, segment.InboxOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer inbox.Close()
	sorter, err := segment.NewSorter(inbox, segment.SorterOptions{})
	if err != nil {
		b.Fatal(err)
	}
	clients(reports, func(first int) {
		entries := make([]segment.Entry, lifeRequest)
		for i := range entries {
			entries[i] = segment.Entry{TaskID: task.ID, Bucket: 1, ReportID: segment.ReportID(lifeID(first + i)), Report: make([]byte, lifeBytes)}
		}
		if err := inbox.Put(ctx, entries); err != nil {
			b.Error(err)
		}
	})
	if _, err := sorter.Sort(ctx); err != nil {
		b.Fatal(err)
	}
	done := 0
	for done < reports {
		jobs, err := st.ClaimJobs(ctx, storetest.Epoch, time.Hour, 1, store.Most{Bytes: segment.DefaultBytes, Reports: segment.DefaultReports})
		if err != nil || len(jobs) == 0 {
			b.Fatalf("%d reports done, %v", done, err)
		}
		j := jobs[0]
		r, err := segment.OpenSlices(ctx, payload.OpenFiles(fsys), j.Slices)
		if err != nil {
			b.Fatal(err)
		}
		c := &store.Commit{Task: task.ID, Batches: []store.Batch{j.Batch}, Candidates: make([]store.Candidate, r.Len())}
		for i := range c.Candidates {
			c.Candidates[i] = store.Candidate{ID: dap.ReportID(r.ReportID(i)), Time: 1, Report: int32(i)}
		}
		c.Fold = func([]dap.ReportError) ([]*vdaf.AggShare, error) {
			return []*vdaf.AggShare{task.VDAF.NewAggShare()}, nil
		}
		if err := st.FinishJob(ctx, j, c); err != nil {
			b.Fatal(err)
		}
		done += r.Len()
		r.Close()
	}
	if err := st.Bury(ctx); err != nil {
		b.Fatal(err)
	}
}

// rowSchema has a row for each report that waits, in the order in which they came, and one
// for each id that was counted. A job is a range of rows, so that a claim writes none.
const rowSchema = `
CREATE TABLE report (number INTEGER PRIMARY KEY, id BLOB NOT NULL, bucket INTEGER NOT NULL, data BLOB NOT NULL) STRICT;
CREATE TABLE seen (id BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE batch (bucket INTEGER PRIMARY KEY, count INTEGER NOT NULL) STRICT;
CREATE TABLE job (first INTEGER PRIMARY KEY, last INTEGER NOT NULL) STRICT;
INSERT INTO batch VALUES (1, 0);
`

const rowStatements = `
-- name: put
INSERT INTO report (id, bucket, data) VALUES (?1, ?2, ?3)

-- name: ends
SELECT coalesce(min(number), 0), coalesce(max(number), 0) FROM report

-- name: claim
INSERT INTO job (first, last) VALUES (?1, ?2)

-- name: read
SELECT number, id, bucket, data FROM report WHERE number BETWEEN ?1 AND ?2

-- name: count
INSERT INTO seen (id) SELECT id FROM report WHERE number BETWEEN ?1 AND ?2

-- name: add
UPDATE batch SET count = count + ?1 WHERE bucket = 1

-- name: drop
DELETE FROM report WHERE number BETWEEN ?1 AND ?2

-- name: end
DELETE FROM job WHERE first = ?1
`

func rowLife(b *testing.B, fsys disk.FS, reports int) {
	ctx := b.Context()
	db, err := database.Open(database.Options{FS: fsys, Name: "rows.db",
		Migrations: fstest.MapFS{"0001_start.sql": {Data: []byte(rowSchema)}}, Statements: fstest.MapFS{"rows.sql": {Data: []byte(rowStatements)}}})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	update := func(name string, fn func(tx *database.Tx) error) {
		if err := db.Update(ctx, name, fn); err != nil {
			b.Error(err)
		}
	}
	// Requests that come while others are committed are committed together.
	type request struct {
		first int
		done  chan struct{}
	}
	queue := make(chan request, lifeGroup/lifeRequest)
	var writer sync.WaitGroup
	writer.Go(func() {
		for r := range queue {
			group := []request{r}
			for more := true; more && len(group) < lifeGroup/lifeRequest; {
				select {
				case r, more = <-queue:
					if more {
						group = append(group, r)
					}
				default:
					more = false
				}
			}
			update("put", func(tx *database.Tx) error {
				for _, r := range group {
					for i := range lifeRequest {
						id := lifeID(r.first + i)
						if _, err := tx.Exec("put", id[:], 1, make([]byte, lifeBytes)); err != nil {
							return err
						}
					}
				}
				return nil
			})
			for _, r := range group {
				close(r.done)
			}
		}
	})
	clients(reports, func(first int) {
		r := request{first, make(chan struct{})}
		queue <- r
		<-r.done
	})
	close(queue)
	writer.Wait()
	for done := 0; done < reports; {
		var first, last int
		update("claim", func(tx *database.Tx) error {
			if _, err := tx.One("ends", nil, &first, &last); err != nil {
				return err
			}
			last = min(last, first+lifeJob-1)
			_, err := tx.Exec("claim", first, last)
			return err
		})
		n := 0
		err := db.View(ctx, "read", func(tx *database.Tx) error {
			return tx.Each("read", []any{first, last}, func(r database.Row) error {
				var number, bucket int
				var id, data []byte
				n++
				return r.Scan(&number, &id, &bucket, &data)
			})
		})
		if err != nil || n == 0 {
			b.Fatalf("%d reports done, %v", done, err)
		}
		update("commit", func(tx *database.Tx) error {
			for _, s := range []struct {
				name string
				args []any
			}{{"count", []any{first, last}}, {"add", []any{n}}, {"drop", []any{first, last}}, {"end", []any{first}}} {
				if _, err := tx.Exec(s.name, s.args...); err != nil {
					return err
				}
			}
			return nil
		})
		done += n
	}
}
