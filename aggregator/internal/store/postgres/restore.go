package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// Restored is what a restore did.
type Restored struct {
	Epoch     uint64
	Tasks     int    // closed
	Forgotten int    // released something after the backup, and are not in it
	Reports   uint64 // dropped, that were waiting
}

// Restore takes a database that was put back for the aggregator's own from now on: its
// marks begin a new epoch. Every task is closed, for what it released and took after the
// backup nobody knows; its ledger stays, and so do the answers of collections that are
// ready. Reports that waited count as dropped, and HPKE keys, some of which were
// destroyed since, go. A task that released after the backup and is not in it is never
// taken again. No process may have the database open. Again is harmless: it is another
// epoch. Of the options Database, Role, Party and Marks count.
func Restore(ctx context.Context, opt Options) (done Restored, err error) {
	if opt.Marks == nil {
		return done, errors.New("store: restore: a database without marks is not known to have been put back")
	}
	db, err := reach(ctx, opt.Database, pgdb.Open)
	if err != nil {
		return done, err
	}
	defer db.Close()
	s := &Store{db: db, role: opt.Role.String()}
	opt.Wrapper = nil
	if err := s.recognize(ctx, &opt); err != nil {
		return done, err
	}
	m := &marks{objects: opt.Marks, role: opt.Role.String()}
	if err := s.ownMarks(ctx, m, opt.Party); err != nil {
		return done, err
	}
	released, err := s.unknown(ctx, m)
	if err != nil {
		return done, err
	}
	if done.Epoch, err = m.begin(ctx); err != nil {
		return done, err
	}
	err = s.update(ctx, "restore", func(tx *pgdb.Tx) error {
		done.Forgotten = 0
		for _, id := range released {
			n, err := tx.Exec("forget-task", id[:])
			if err != nil {
				return err
			}
			done.Forgotten += int(n)
		}
		return s.closeAll(tx, &done)
	})
	return done, err
}

// begin takes the next epoch.
func (m *marks) begin(ctx context.Context) (epoch uint64, err error) {
	last, err := m.last(ctx, "epoch/")
	if err != nil {
		return 0, err
	}
	if last != "" {
		if _, err := fmt.Sscanf(last, "epoch/%d.mark", &epoch); err != nil {
			return 0, fmt.Errorf("store: marks: %s: %w", last, err)
		}
	}
	if epoch++; epoch > math.MaxUint32 {
		return 0, errors.New("store: marks: no epoch is left")
	}
	word := make([]byte, 16)
	rand.Read(word)
	// Where the outcome is not known the epoch is left to nobody.
	if err := m.objects.Put(ctx, epochMark(epoch), word); err != nil {
		return 0, fmt.Errorf("store: marks: begin epoch %d: %w", epoch, err)
	}
	return epoch, nil
}

// unknown lists the tasks of releases that the marks of any epoch have and the ledger does
// not.
func (s *Store) unknown(ctx context.Context, m *marks) (tasks []dap.TaskID, err error) {
	last, err := m.last(ctx, "epoch/")
	if err != nil {
		return nil, err
	}
	seen := make(map[dap.TaskID]bool)
	for epoch := uint64(0); epochMark(epoch) <= last || epoch == 0; epoch++ {
		folder := prefixOf(epoch) + "releases/"
		for name := ""; ; {
			page, err := m.objects.List(ctx, folder, name, payload.MaxPage)
			if err != nil {
				return nil, fmt.Errorf("store: marks: %w", err)
			}
			if len(page) == 0 {
				break
			}
			// Marks that are the ledger's are a beginning of the epoch's: of a page whose last
			// one is the ledger's all are.
			if same, _, err := s.isOurs(ctx, m, page[len(page)-1].Name); err != nil {
				return nil, err
			} else if !same {
				for _, o := range page {
					same, id, err := s.isOurs(ctx, m, o.Name)
					if err != nil {
						return nil, err
					}
					if !same && !seen[id] {
						seen[id] = true
						tasks = append(tasks, id)
					}
				}
			}
			name = page[len(page)-1].Name
		}
	}
	return tasks, nil
}

// isOurs says whether a mark is of a release that the ledger has, and whose it is.
func (s *Store) isOurs(ctx context.Context, m *marks, name string) (same bool, id dap.TaskID, err error) {
	var seq uint64
	if _, err := fmt.Sscanf(name[strings.LastIndexByte(name, '/')+1:], "%d.mark", &seq); err != nil {
		return false, id, fmt.Errorf("store: marks: %s: %w", name, err)
	}
	var there [65]byte
	n, err := m.objects.ReadAt(ctx, name, there[:], 0)
	if err != io.EOF || n != 64 {
		return false, id, fmt.Errorf("store: marks: %s is no mark of a release: %w", name, err)
	}
	var total []byte
	err = s.view(ctx, "total-at", func(tx *pgdb.Tx) error {
		_, err := tx.One("total-at", []any{min(seq, math.MaxInt64)}, &total)
		return err
	})
	return bytes.Equal(total, there[:32]), dap.TaskID(there[32:64]), err
}

// closeAll closes all tasks in the epoch, and drops what waits.
func (s *Store) closeAll(tx *pgdb.Tx, done *Restored) error {
	if _, err := tx.Exec("new-epoch", done.Epoch); err != nil {
		return err
	}
	type waiting struct {
		row     int64
		reports uint64
	}
	var list []waiting
	err := tx.Each("waiting-of-tasks", nil, func(r pgdb.Row) error {
		var w waiting
		err := r.Scan(&w.row, &w.reports)
		list = append(list, w)
		return err
	})
	if err != nil {
		return err
	}
	done.Reports = 0
	for _, w := range list {
		if err := (&task{row: w.row}).reject(tx, dap.ReportDropped, w.reports); err != nil {
			return err
		}
		done.Reports += w.reports
	}
	for _, statement := range []string{"drop-all-slices", "drop-all-jobs", "drop-all-runs", "drop-all-noise", "drop-all-flights",
		"drop-all-hpke-keys", "forget-replicas"} {
		if _, err := tx.Exec(statement); err != nil {
			return err
		}
	}
	if begun, err := members(tx); err != nil {
		return err
	} else if begun { // a process that goes on all the same does not find itself
		if _, err := tx.Exec("forget-members"); err != nil {
			return err
		}
	}
	version, err := tx.Version()
	if err != nil {
		return err
	}
	if version.Number >= viewsSince { // nothing more is released
		if _, err := tx.Exec("drop-kept-parts"); err != nil {
			return err
		}
	}
	if version.Number >= spentSince {
		// Which marks were given after the backup nobody knows: none is new any more.
		for _, statement := range []string{"drop-all-spent-runs", "end-all-rounds"} {
			if _, err := tx.Exec(statement); err != nil {
				return err
			}
		}
	}
	if version.Number >= issuedSince {
		// Of the two epochs after the newest requests may have come after the backup, as
		// devices visit for the one that comes.
		for _, statement := range []string{"doubt-issuances", "doubt-coming-issuances"} {
			if _, err := tx.Exec(statement); err != nil {
				return err
			}
		}
	}
	none, err := keyset.NoKeys()
	if err != nil {
		return err
	}
	if _, err := tx.Exec("empty-hpke-vault", none); err != nil {
		return err
	}
	if _, err := tx.Exec("mark-hpke-vault"); err != nil {
		return err
	}
	n, err := tx.Exec("close-tasks", done.Epoch)
	done.Tasks = int(n)
	return err
}
