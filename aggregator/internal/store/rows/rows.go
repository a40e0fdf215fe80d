// Package rows has what every engine reads from columns of one meaning, or writes into
// them, by statements of one name: registrations of tasks, quotas, what is stuck, keys,
// times.
package rows

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// ErrDamaged: a row has what nobody wrote into it.
var ErrDamaged = errors.New("damaged row")

// A Row is one that a statement found.
type Row interface {
	Scan(dest ...any) error
}

// Tx is a transaction of an engine.
type Tx interface {
	// One runs a statement and scans its first row, where there is one.
	One(name string, args []any, dest ...any) (found bool, err error)
}

// Registration scans a row of the registry: id, form, sum, first, tenant, source, by, added,
// begin, end, KEM, signed, change, closing time, person and reason, made, terms. It fails
// with [ErrDamaged].
func Registration(row Row) (*store.Registration, error) {
	r := new(store.Registration)
	var id, sum, first []byte
	var form, source, kem int
	var added, begins, ends, closed int64 // 0 for NULL
	var by, why string
	err := row.Scan(&id, &form, &sum, &first, &r.Tenant, &source, &r.By, &added, &begins, &ends, &kem, &r.Signed, &r.Change,
		&closed, &by, &why, &r.Made, &r.Terms)
	if err != nil {
		return nil, err
	}
	if len(id) != len(r.ID) || len(sum) != sha256.Size || len(first) != sha256.Size {
		return nil, fmt.Errorf("%w: a registration with an id of %d bytes, a digest of %d", ErrDamaged, len(id), len(sum))
	}
	r.ID, r.Sum, r.First = dap.TaskID(id), [sha256.Size]byte(sum), [sha256.Size]byte(first)
	if r.Made != nil && sha256.Sum256(r.Made) != r.Sum {
		return nil, fmt.Errorf("%w: the bytes that task %v was made of are not what was written", ErrDamaged, r.ID)
	}
	r.Form, r.Source, r.KEM = aggregator.Form(form), aggregator.Source(source), uint16(kem)
	r.Added = time.Unix(0, added).UTC()
	if begins != 0 {
		r.Begin = time.Unix(begins, 0).UTC()
	}
	if ends != 0 {
		r.End = time.Unix(ends, 0).UTC()
	}
	if by != "" {
		r.Closed = &store.Closing{At: time.Unix(0, closed).UTC(), By: by, Why: why}
	}
	return r, nil
}

// PutRegistration are the arguments that write a registration down: the task's row, the
// number of the change, and the rest.
func PutRegistration(row int64, change uint64, p *store.Provision) []any {
	// Windows may end after what nanoseconds can hold.
	var begins, ends any
	if !p.Begin.IsZero() {
		begins = p.Begin.Unix()
	}
	if !p.End.IsZero() {
		ends = p.End.Unix()
	}
	first := sha256.Sum256(p.Terms)
	return []any{row, change, int(p.Form), p.Made, p.Sum[:], p.Terms, first[:], p.Tenant, int(p.Source), p.By,
		p.Added.UnixNano(), begins, ends, int(p.KEM), p.Signed}
}

// Within fails with [store.FullError] where a task is one too many, of its peer or of the
// store. No other transaction may register tasks meanwhile.
func Within(tx Tx, p *store.Provision) error {
	if p.Most > 0 {
		if live, err := liveTasks(tx, p.Added); err != nil {
			return err
		} else if live >= p.Most {
			return &store.FullError{Task: p.ID, Most: p.Most, Live: true}
		}
	}
	if p.Quota == nil {
		return nil
	}
	var live, added int
	var oldest int64
	if _, err := tx.One("count-live", []any{p.By, p.Quota.Now.Unix()}, &live); err != nil {
		return err
	}
	if live >= p.Quota.Live {
		return &store.FullError{Task: p.ID, Live: true}
	}
	if _, err := tx.One("count-added", []any{p.By, p.Quota.Since.UnixNano()}, &added, &oldest); err != nil {
		return err
	}
	if added >= p.Quota.Added {
		return &store.FullError{Task: p.ID, Free: time.Unix(0, oldest).Add(p.Quota.Now.Sub(p.Quota.Since)).UTC()}
	}
	return nil
}

// Usage reads what there is at a time of that which a quota bounds.
func Usage(tx Tx, now time.Time) (u store.Usage, err error) {
	if u.Tasks, err = liveTasks(tx, now); err == nil {
		_, err = tx.One("stored-bytes", nil, &u.Bytes)
	}
	return u, err
}

// liveTasks is how many registered tasks are live at a time.
func liveTasks(tx Tx, now time.Time) (n int, err error) {
	_, err = tx.One("live-tasks", []any{now.Unix()}, &n)
	return n, err
}

// Stuck scans a job that does not get on: number, reports, attempts, set aside, parked, why,
// and the time of the next attempt.
func Stuck(row Row) (x store.Stuck, err error) {
	var next int64
	if err := row.Scan(&x.Job, &x.Reports, &x.Attempts, &x.Quarantined, &x.Parked, &x.Why, &next); err != nil {
		return x, err
	}
	if !x.Quarantined && !x.Parked {
		x.Next = time.Unix(0, next).UTC()
	}
	return x, nil
}

// DataKey scans what is known of a data key: serial number, begin, end, whether it has ended.
func DataKey(row Row) (k datakey.Record, err error) {
	var from, until int64
	err = row.Scan(&k.Serial, &from, &until, &k.Ended)
	k.From, k.Until = time.Unix(from, 0).UTC(), time.Unix(until, 0).UTC()
	return k, err
}

// SeenTime is the time that was saved last; zero where none was.
func SeenTime(tx Tx) (t time.Time, err error) {
	var seen int64
	found, err := tx.One("seen-time", nil, &seen)
	if found {
		t = time.Unix(0, seen).UTC()
	}
	return t, err
}
