package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// OpenReading opens the data set of an aggregator for whoever looks at it, be its processes
// running or not: it migrates and makes nothing, is no replica, puts no mark, and never
// writes a row. Of the options Database, Role, Party, Objects and Wrapper count; without
// Wrapper what is sealed cannot be opened, and no audit be made. That of another aggregator
// is an [*aggregator.StoreError].
func OpenReading(ctx context.Context, opt Options) (*Store, error) {
	db, err := reach(ctx, opt.Database, pgdb.Attach)
	var wrong *aggregator.StoreError
	if errors.As(err, &wrong) {
		wrong.Role = opt.Role.String()
	}
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, objects: opt.Objects, role: opt.Role.String()}
	if err := s.recognize(ctx, &opt); err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}

// recognize reads whose data set it is.
func (s *Store) recognize(ctx context.Context, opt *Options) error {
	var role int
	var party string
	err := s.view(ctx, "identity", func(tx *pgdb.Tx) error {
		found, err := tx.One("identity", nil, &s.key, &role, &party)
		return expect(found, err, "identity")
	})
	if err == nil {
		err = opt.owns(dap.Role(role), party)
	}
	if err != nil || opt.Wrapper == nil {
		return err
	}
	s.setKeys()
	wrapper, err := opt.Wrapper(ctx)
	if err != nil {
		return err
	}
	return s.useRoots(ctx, wrapper)
}

// Rights are more than the role that serves needs, each by itself.
type Rights struct {
	Super   bool // all of the server
	Server  bool // to make roles or databases, to read the server's log, or to pass rules by rows
	Owns    bool // the schema: it can change anything in it, and give itself every right
	Rewrite bool // the ledger, which no role of the service changes
	Unissue bool // to lower how many requests an issuer has answered, or take one out
}

// Rights says which rights the role has that it does not need.
func (s *Store) Rights(ctx context.Context) (r Rights, err error) {
	err = s.view(ctx, "role-rights", func(tx *pgdb.Tx) error {
		found, err := tx.One("role-rights", nil, &r.Super, &r.Server, &r.Owns, &r.Rewrite, &r.Unissue)
		return expect(found, err, "role-rights")
	})
	return r, err
}

// Encrypted says whether the connection to the server is; one to a socket of this machine
// is not.
func (s *Store) Encrypted(ctx context.Context) (encrypted bool, err error) {
	err = s.view(ctx, "encrypted", func(tx *pgdb.Tx) error {
		encrypted = tx.Encrypted()
		return nil
	})
	return encrypted, err
}

// LookAtMarks compares the database with marks, and puts none. It fails with an
// [*aggregator.StoreError] where a start would.
func (s *Store) LookAtMarks(ctx context.Context, objects payload.Store, party string) error {
	m := &marks{objects: objects, role: s.role}
	now, err := s.marked(ctx)
	if err != nil {
		return err
	}
	there := make([]byte, 4096)
	n, err := objects.ReadAt(ctx, OwnersMark, there, 0)
	whose := fmt.Sprintf(marksMagic+"role %v\nparty %q\n", s.role, party)
	switch text := string(there[:n]); {
	case errors.Is(err, payload.ErrNotFound) && now.begun:
		return &aggregator.StoreError{Fault: aggregator.MarksLost, Role: s.role, Detail: OwnersMark + " is gone, and the database had marks"}
	case errors.Is(err, payload.ErrNotFound):
		return nil // the first start begins them
	case err != nil && err != io.EOF:
		return fmt.Errorf("store: marks: %w", err)
	case !strings.HasPrefix(text, whose):
		return &aggregator.StoreError{Fault: aggregator.MarksLost, Role: s.role, Detail: "the marks are another aggregator's: " + OwnersMark}
	case text != fmt.Sprintf("%sid %x\n", whose, now.id):
		return s.older("the marks are of another database of this aggregator")
	}
	last, err := m.last(ctx, "epoch/")
	if err != nil {
		return err
	}
	if last > epochMark(now.epoch) {
		return s.older("a restore of it was declared that it knows nothing of: %s is there, and the database is of epoch %d", last, now.epoch)
	}
	m.prefix, m.base = prefixOf(now.epoch), now.base
	// A mark is put after the commit that it speaks of: they are read first, and then the
	// database.
	age, err := m.last(ctx, m.prefix+"ages/")
	if err != nil {
		return err
	}
	release, err := m.last(ctx, m.prefix+"releases/")
	if err != nil {
		return err
	}
	var known uint64
	var total []byte
	err = s.view(ctx, "age", func(tx *pgdb.Tx) error {
		var word []byte
		_, err := tx.One("age", nil, &known, &word)
		return err
	})
	if err != nil {
		return err
	}
	if age > m.age(known) {
		return s.older("its age is %d, and %s is there", known, age)
	}
	if release == "" {
		return nil
	}
	var seq uint64
	if _, err := fmt.Sscanf(strings.TrimPrefix(release, m.prefix), "releases/%d.mark", &seq); err != nil {
		return fmt.Errorf("store: marks: %s: %w", release, err)
	}
	if n, err = objects.ReadAt(ctx, release, there[:65], 0); err != io.EOF || n != 64 {
		return fmt.Errorf("store: marks: %s is no mark of a release: %w", release, err)
	}
	err = s.view(ctx, "total-at", func(tx *pgdb.Tx) error {
		_, err := tx.One("total-at", []any{seq}, &total)
		return err
	})
	if err == nil && !bytes.Equal(total, there[:32]) {
		return s.older("its release %d is not the one that %s is of", seq, release)
	}
	return err
}

// older is a database that was put back.
func (s *Store) older(format string, args ...any) error {
	return &aggregator.StoreError{Fault: aggregator.OlderDatabase, Role: s.role, Detail: fmt.Sprintf(format, args...)}
}
