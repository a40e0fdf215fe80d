package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/record"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service/database"
)

// applicationID is what `file` and every SQLite program can tell our databases by: "Strl".
const applicationID = 0x5374726c

// markEvery is how long the record may be behind a store that works and releases nothing.
// A release is in the record before its answer leaves.
const markEvery = time.Minute

// origin is who the store is, and the record that knows how far it has come. The
// database's turn guards the record.
type origin struct {
	record *record.Record
	fresh  bool      // nothing was ever taken
	marked time.Time // when the record was written last
	opened bool      // the record says that this life has the store
}

func (s *Store) unfit(fault aggregator.StoreFault, format string, args ...any) error {
	return &aggregator.StoreError{Fault: fault, Role: s.opt.Role.String(), Detail: fmt.Sprintf(format, args...)}
}

// damaged is a refusal in the words of the database, which say what of it cannot be read.
func (s *Store) damaged(err error) error {
	_, what, _ := strings.Cut(err.Error(), database.ErrDamaged.Error()+": ")
	return s.unfit(aggregator.DamagedStore, "%s", what)
}

// recognise says whose store this is before anything of it is opened. Where nothing is
// there it begins one, and where an earlier life died over that, it goes on.
func (s *Store) recognise() error {
	opt := &s.opt
	size, err := sizeOf(opt.FS, opt.File)
	if err != nil {
		return err
	}
	for _, name := range []string{opt.File, opt.File + "-wal"} {
		if err := disk.CheckPrivate(opt.FS, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
	}
	files, err := s.strayFiles()
	if err != nil {
		return err
	}
	beside, err := record.ReadIdentity(opt.FS)
	known := err == nil
	if err != nil && !errors.Is(err, record.ErrNoIdentity) {
		return fmt.Errorf("store: %w", err)
	}
	unread := err
	r, err := record.Open(opt.Record)
	switch {
	case errors.Is(err, record.ErrNone):
		switch {
		case size > 0:
			return s.unfit(aggregator.RecordLost, "%s was in use, and there is no record of it", opt.File)
		case size == 0:
			return s.unfit(aggregator.DatabaseLost, "%s is empty", opt.File)
		case known:
			return s.unfit(aggregator.DatabaseLost, "%s is gone, but this is the directory of a %v", opt.File, beside.Role)
		case files != "":
			return s.unfit(aggregator.DatabaseLost, "%s is gone, but %s is not empty", opt.File, files)
		}
		return s.begin()
	case errors.Is(err, record.ErrDamaged):
		return s.unfit(aggregator.RecordLost, "%s cannot be read: damaged, or of a later version", record.Name)
	case err != nil:
		return fmt.Errorf("store: %w", err)
	}
	s.id.record = r
	switch {
	case r.Role != opt.Role:
		return s.unfit(aggregator.ForeignStore, "the record is of a %v", r.Role)
	case r.Party != opt.Party:
		return s.unfit(aggregator.ForeignStore, "the record is of %s, and this is %s", r.Party, opt.Party)
	case known && beside != r.Identity:
		return s.unfit(aggregator.ForeignStore, "the files are of another store than the record: of a %v, %s", beside.Role, beside.Party)
	}
	switch restoring := opt.Restoring != nil; {
	case restoring && r.State != record.Restoring:
		return s.unfit(aggregator.ForeignStore, "the record knows of no restore")
	case restoring:
		if size <= 0 {
			return s.unfit(aggregator.DatabaseLost, "%s was not put back", opt.File)
		}
		return record.WriteIdentity(opt.FS, r.Identity)
	case r.State == record.Restoring:
		return s.unfit(aggregator.RestoreBegun, "restore epoch %d was begun, and what was restored is not whole", r.Epoch)
	}
	if r.State == record.Begun {
		if files != "" {
			return s.unfit(aggregator.ForeignStore, "the record is of a store in which nothing was done yet, but %s is not empty", files)
		}
		s.id.fresh = true
		return record.WriteIdentity(opt.FS, r.Identity)
	}
	if size <= 0 {
		return s.unfit(aggregator.DatabaseLost, "%s is gone or empty; it has made %d releases", opt.File, r.Releases)
	}
	log, err := sizeOf(opt.FS, opt.File+"-wal")
	if err != nil {
		return err
	}
	if log < 0 && r.State == record.InUse {
		return s.unfit(aggregator.LogLost, "%s-wal is gone, with which %s was in use", opt.File, opt.File)
	}
	if !known {
		opt.Logger.Warn("the file that says whose store this is was made anew", slog.Any("error", unread))
		return record.WriteIdentity(opt.FS, r.Identity)
	}
	return nil
}

// begin makes the record of a new store, and says in its directory whose it is. Until the
// database is there as well, the record says that nothing was taken.
func (s *Store) begin() (err error) {
	id := record.Identity{Role: s.opt.Role, Party: s.opt.Party}
	if _, err := io.ReadFull(s.opt.Rand, id.ID[:]); err != nil {
		return fmt.Errorf("store: random bytes: %w", err)
	}
	if s.id.record, err = record.Begin(s.opt.Record, id); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.id.fresh = true
	return record.WriteIdentity(s.opt.FS, id)
}

// sizeOf is the size of a file in bytes, -1 where there is none.
func sizeOf(fsys disk.FS, name string) (int64, error) {
	e, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return e.Size, nil
}

// companions are the directories that no one has files in before there is a database.
var companions = []string{"keys", "runs", "slices", "inbox"}

// strayFiles names a directory beside the database that has files, or "".
func (s *Store) strayFiles() (string, error) {
	for _, dir := range companions {
		for _, err := range disk.Files(s.opt.FS, dir) {
			if err != nil {
				return "", fmt.Errorf("store: %w", err)
			}
			return dir, nil
		}
	}
	return "", nil
}

// identify holds the database to the record, inside the transaction of Open, and takes
// note of this life.
func (s *Store) identify(tx *database.Tx, resourceKey []byte) error {
	r := s.id.record
	if s.id.fresh {
		if _, err := tx.Exec("put-identity", resourceKey, r.ID[:], int(r.Role), r.Party); err != nil {
			return err
		}
	}
	var role int
	var party string
	var id []byte
	found, err := tx.One("identity", nil, &s.key, &id, &role, &party)
	if err != nil {
		return err
	}
	switch {
	case !found:
		return s.unfit(aggregator.DatabaseLost, "%s says nothing of whose it is", s.opt.File)
	case role != int(r.Role) || party != r.Party:
		return s.unfit(aggregator.ForeignStore, "%s is that of %s", s.opt.File, party)
	case [16]byte(id) != r.ID:
		return s.unfit(aggregator.ForeignStore, "%s and the record are of two stores of %s", s.opt.File, party)
	}
	if s.opt.Restoring != nil {
		if _, err := tx.Exec("raise-epoch", uint64(r.Epoch)); err != nil {
			return err
		}
	}
	now, err := mark(tx)
	if err != nil {
		return err
	}
	if now.Behind(&r.Mark) {
		return s.unfit(aggregator.OlderStore, "%s has made %d releases and %d changes since restore epoch %d began, the record knows of %d and %d since epoch %d",
			s.opt.File, now.Releases, now.Age, now.Epoch, r.Releases, r.Age, r.Epoch)
	}
	if then := r.Mark; then.Epoch == now.Epoch && then.Releases > 0 {
		var total []byte
		if _, err := tx.One("total-at", []any{then.Releases}, &total); err != nil {
			return err
		}
		if [32]byte(total) != then.Total {
			return s.unfit(aggregator.OlderStore, "%s made other releases than the record knows of: it was put back, and went on", s.opt.File)
		}
	}
	if now.Epoch > r.Epoch || now.Releases > r.Releases+1 {
		s.opt.Logger.Warn("the record was behind its store, and was brought up to it", "releases", now.Releases, "known", r.Releases)
	}
	return s.grow(tx, true)
}

// mark is how far the database says that the store has come.
func mark(tx *database.Tx) (m record.Mark, err error) {
	var epoch uint64
	if _, err := tx.One("age", nil, &epoch, &m.Age); err != nil {
		return m, err
	}
	m.State, m.Epoch = record.InUse, uint32(epoch)
	m.Releases, m.Total, err = lastRelease(tx)
	return m, err
}

// grow notes in a transaction that the store has come further: at once in the database,
// and now or a little later in the record.
func (s *Store) grow(tx *database.Tx, now bool) error {
	if _, err := tx.Exec("grow"); err != nil {
		return err
	}
	at := s.opt.Clock.Now()
	if !now && at.Sub(s.id.marked).Abs() < markEvery {
		return nil
	}
	m, err := mark(tx)
	if err != nil {
		return err
	}
	tx.After(func() error {
		s.id.marked, s.id.opened = at, true
		return s.id.record.Write(m)
	})
	return nil
}

// rest notes in the record that the store was closed in order.
func (s *Store) rest() error {
	if !s.id.opened {
		return nil // it was refused
	}
	m := s.id.record.Mark
	m.State = record.Resting
	return s.id.record.Write(m)
}
