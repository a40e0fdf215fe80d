package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/internal/pgdb"
)

const (
	// issuedSince is the first version of a schema that has issuers' registers.
	issuedSince = 9
	// issuedConnections are few: requests of one epoch are entered one after the other.
	issuedConnections = 3
	forgetAtOnce      = 2000 // requests: erased by one transaction
	// issuedResolve bounds a commit, and then the look for its outcome: a device comes again.
	issuedResolve = 5 * time.Second
)

// lookEvery is how often a register looks whether the database is the one that it was, though
// nobody asks it anything: as often as processes beat.
var lookEvery = 10 * time.Second

// Issued is the register of the issuer beside an aggregator, in the aggregator's schema:
// one for all processes. It is safe for concurrent use, by any number of handles.
//
// Each request is entered by a transaction that has the row of its epoch, so that of
// requests at several processes no more are entered than may be, and one that comes twice is
// entered once. The process that counts an epoch ends it by the same row: its number stays,
// and triggers hold the role that serves to it.
//
// A database that was put back has forgotten requests that were answered. So each transaction
// looks for the process whose beat this handle saw last, and for the restore epoch: where the
// one is not as it was or later, or the other is new, nothing is entered, counted or said to
// be nobody's any more, from memory neither, and the process is to be started anew. A process
// that beats ends by itself (see [Member]), and this is for the seconds before.
type Issued struct {
	db         *pgdb.DB
	deployment [32]byte
	stop       context.CancelFunc // of looks
	looks      sync.WaitGroup

	mu     sync.Mutex
	counts map[uint32]uint64 // of epochs that have ended, which change no more
	seen   *incarnation      // nil: the database was not looked at
	wrong  error             // set once it was put back
}

// incarnation is what tells a database from one that was put back in its place.
type incarnation struct {
	restores uint64 // how often it was restored
	name     string // of the process that was seen last; empty where none was
	beats    uint64
	at       int64 // when that was, in microseconds
}

// OpenIssued opens the register for a deployment, on connections of its own. A schema of
// before there were registers is an [*aggregator.StoreError].
func OpenIssued(ctx context.Context, opt pgdb.Options, deployment [32]byte) (*Issued, error) {
	opt.Connections, opt.Resolve = issuedConnections, issuedResolve
	db, err := reach(ctx, opt, pgdb.Open)
	if err != nil {
		return nil, err
	}
	version, err := db.Version(ctx)
	if needs := max(issuedSince, spentSince); err == nil && version.Number < needs { // for what it gives out is spent
		err = &aggregator.StoreError{Fault: aggregator.OlderSchema,
			Detail: fmt.Sprintf("%s: it is of version %d, and an issuer needs %d", opt.Schema, version.Number, needs)}
	}
	if err != nil {
		db.Close()
		return nil, unfit("open", opt.Schema, err)
	}
	x := &Issued{db: db, deployment: deployment, counts: make(map[uint32]uint64)}
	if _, err := x.Now(ctx); err != nil {
		db.Close()
		return nil, err
	}
	ctx, x.stop = context.WithCancel(context.WithoutCancel(ctx))
	x.looks.Go(func() { x.look(ctx, lookEvery) })
	return x, nil
}

// Close ends the handle when its transactions are over.
func (x *Issued) Close() error {
	x.stop()
	x.looks.Wait()
	x.db.Close()
	return nil
}

// look looks at the database now and then. Where it is not to be had the next look says more.
func (x *Issued) look(ctx context.Context, every time.Duration) {
	for t := time.NewTicker(every); ; {
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
			ask, cancel := context.WithTimeout(ctx, every)
			_, _ = x.Now(ask)
			cancel()
		}
	}
}

// Now is the time by the database's clock, which all processes share.
func (x *Issued) Now(ctx context.Context) (now time.Time, err error) {
	err = x.view(ctx, "issuer-now", func(tx *pgdb.Tx) error {
		var at int64
		_, err := tx.One("vault-now", nil, &at)
		now = time.UnixMicro(at)
		return err
	})
	return now, err
}

func (x *Issued) view(ctx context.Context, name string, fn func(*pgdb.Tx) error) error {
	return x.run(ctx, name, x.db.View, fn)
}

func (x *Issued) update(ctx context.Context, name string, fn func(*pgdb.Tx) error) error {
	return x.run(ctx, name, x.db.Update, fn)
}

func (x *Issued) run(ctx context.Context, name string, how func(context.Context, string, func(*pgdb.Tx) error) error, fn func(*pgdb.Tx) error) error {
	if err := x.fault(); err != nil {
		return err
	}
	return outcome(name, how(ctx, name, func(tx *pgdb.Tx) error {
		if err := x.recognize(tx); err != nil {
			return err
		}
		return fn(tx)
	}))
}

// fault is why nothing is done any more; nil while all is well.
func (x *Issued) fault() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.wrong
}

// recognize looks whether the database is the one that was seen before. It comes first in a
// transaction, whose state is then no older than what was seen.
func (x *Issued) recognize(tx *pgdb.Tx) error {
	x.mu.Lock()
	before := x.seen
	x.mu.Unlock()
	if before == nil {
		before = new(incarnation)
	}
	var now incarnation
	var time int64
	var there bool
	if _, err := tx.One("issuer-incarnation", []any{before.name, before.beats}, &now.restores, &time, &now.name, &now.beats, &now.at, &there); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.wrong != nil:
		return x.wrong
	case x.seen == nil, now.restores == x.seen.restores && (there || before.name == "" || time-before.at >= keptMembers.Microseconds()):
		if x.seen == nil || now.at >= x.seen.at {
			x.seen = &now
		}
		return nil
	}
	x.wrong = fmt.Errorf("%w: %w", store.ErrUnknown, &aggregator.StoreError{Fault: aggregator.OlderDatabase, Detail: fmt.Sprintf(
		"it is of restore epoch %d, and was of %d; a process that had beaten %d times is there as it was, or later: %v", now.restores, x.seen.restores, before.beats, there)})
	return x.wrong
}

// issuance is the row of an epoch.
type issuance struct {
	requests uint64
	ended    bool  // nothing more is entered
	over     bool  // its key is destroyed
	doubt    error // [errDoubted] where the number is not known
}

// find reads the row of an epoch.
func (x *Issued) find(tx *pgdb.Tx, statement string, epoch uint32) (row issuance, found bool, err error) {
	var state int
	var known bool
	found, err = tx.One(statement, []any{x.deployment[:], int64(epoch)}, &row.requests, &state, &known)
	row.ended, row.over = state > 0, state > 1
	if found && !known {
		row.doubt = fmt.Errorf("epoch %d: %w", epoch, errDoubted)
	}
	return row, found, err
}

// errDoubted: what was answered between the backup and the day it was put back is not known.
var errDoubted = errors.New("the database was put back while requests of the epoch were answered, and how many were is not known")

// take has the row of an epoch until the transaction ends.
func (x *Issued) take(tx *pgdb.Tx, epoch uint32) (row issuance, err error) {
	if _, err := tx.Exec("begin-issuance", x.deployment[:], int64(epoch)); err != nil {
		return row, err
	}
	row, found, err := x.find(tx, "lock-issuance", epoch)
	return row, expect(found, err, "issuance")
}

// Enter enters the name of a request of an epoch, durably, unless it is there, the epoch has
// ended, or as many are there as may be: then entered is false, and true of one that was
// there.
func (x *Issued) Enter(ctx context.Context, epoch uint32, name [32]byte, most uint64) (repeated, entered bool, err error) {
	err = x.update(ctx, "enter-issued", func(tx *pgdb.Tx) error {
		repeated, entered = false, false
		row, err := x.take(tx, epoch)
		if err != nil || row.ended || row.doubt != nil {
			return errors.Join(err, row.doubt)
		}
		at := []any{x.deployment[:], int64(epoch), name[:]}
		var one int
		if repeated, err = tx.One("find-issued", at, &one); err != nil || repeated || row.requests >= most {
			entered = repeated
			return err
		}
		if _, err := tx.Exec("put-issued", at...); err != nil {
			return err
		}
		_, err = tx.Exec("count-issued", at[:2]...)
		entered = err == nil
		return err
	})
	if err != nil {
		return false, false, err
	}
	return repeated, entered, nil
}

// Count is how many requests of an epoch were entered, once no more are: since one process
// has counted them, or since this call, where the epoch has begun.
func (x *Issued) Count(ctx context.Context, epoch uint32, begun bool) (n uint64, counted bool, err error) {
	x.mu.Lock()
	n, counted = x.counts[epoch]
	counted = counted && x.wrong == nil
	x.mu.Unlock()
	if counted {
		return n, true, nil
	}
	var row issuance
	err = x.view(ctx, "count-issued", func(tx *pgdb.Tx) error {
		row, _, err = x.find(tx, "issuance", epoch)
		return err
	})
	if err == nil && row.doubt == nil && !row.ended && begun {
		err = x.update(ctx, "end-issuance", func(tx *pgdb.Tx) error {
			if row, err = x.take(tx, epoch); err != nil || row.ended || row.doubt != nil {
				return err
			}
			_, err = tx.Exec("end-issuance", x.deployment[:], int64(epoch))
			row.ended = err == nil
			return err
		})
	}
	if err = cmp.Or(err, row.doubt); err != nil || !row.ended {
		return 0, false, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts[epoch] = row.requests
	return row.requests, true, nil
}

// None says whether nothing can hold that is shown of an epoch whose key is not there: no
// request of it was entered, or another process has destroyed its key.
func (x *Issued) None(ctx context.Context, epoch uint32) (none bool, err error) {
	err = x.view(ctx, "issuance", func(tx *pgdb.Tx) error {
		row, _, err := x.find(tx, "issuance", epoch)
		none = row.over || row.requests == 0 && row.doubt == nil
		return err
	})
	return none && err == nil, err
}

// Keep ends an epoch, whose number of requests stays.
func (x *Issued) Keep(ctx context.Context, epoch uint32) error {
	_, _, err := x.Count(ctx, epoch, true)
	if errors.Is(err, errDoubted) { // and nobody ever knows it
		return nil
	}
	return err
}

// Forget erases the requests of epochs up to one, whose keys are destroyed.
func (x *Issued) Forget(ctx context.Context, last uint32) error {
	for more := true; more; {
		err := x.update(ctx, "forget-issued", func(tx *pgdb.Tx) error {
			if _, err := tx.Exec("issuances-over", x.deployment[:], int64(last)); err != nil {
				return err
			}
			gone, err := tx.Exec("forget-issued", x.deployment[:], int64(last), forgetAtOnce)
			more = gone == forgetAtOnce
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// issuances holds the number of an epoch's requests to what there are.
func (a *auditor) issuances(tx *pgdb.Tx) error {
	if version, err := tx.Version(); err != nil || version.Number < issuedSince {
		return err
	}
	return tx.Each("audit-issuances", nil, func(r pgdb.Row) error {
		var epoch, want, got uint64
		err := r.Scan(&epoch, &want, &got)
		if err == nil && got != want {
			a.add("issuer: %d requests of epoch %d were answered, and %d are in the register", want, epoch, got)
		}
		return err
	})
}
