package database

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/objects"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/internal/wrap/keeper"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// InspectOptions say whose database is looked at.
type InspectOptions struct {
	// Database is that of the processes that serve.
	Database aggregator.Database
	// Role and Party are the aggregator's: the URL under which it is reached.
	Role  dap.Role
	Party string
}

// An Inspection is what was found of a database.
type Inspection struct {
	// Faults are the invariants that do not hold, in words; none is good.
	Faults []string
	// Marks is why the marks refuse the database, or cannot be read; nil where they agree, or
	// there is no place of them.
	Marks error
	// Objects is why object storage is not reached; nil where it is, or there is none.
	Objects error
	// Rights that the role has and does not need.
	Super, Server, Owns, Rewrites, Unissues bool
	// Encrypted: the connection is. One that is not leads to this machine.
	Encrypted bool
	// Replicas are the processes that share it, and Now the time by its clock.
	Replicas []status.Replica
	Now      time.Time
}

// Inspect looks at a database, be its processes running or not: it writes nothing, and reads
// one state of it. It fails with [aggregator.StoreError] where it is not the aggregator's or
// not of this version.
func Inspect(ctx context.Context, o InspectOptions) (found *Inspection, err error) {
	if err := o.Database.Validate(); err != nil {
		return nil, err
	}
	var keys *keeper.Keeper
	defer func() {
		if keys != nil {
			err = errors.Join(err, keys.Close())
		}
	}()
	opt := postgres.Options{Database: postgres.DatabaseOf(&o.Database), Role: o.Role, Party: o.Party,
		Wrapper: func(ctx context.Context) (wrap.Wrapper, error) {
			keys, err = keeper.Open(ctx, &o.Database)
			return keys, err
		}}
	if o.Database.Objects != nil {
		if opt.Objects, err = objects.Configured(o.Database.Objects); err != nil {
			return nil, err
		}
	}
	s, err := postgres.OpenReading(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	found = new(Inspection)
	if found.Encrypted, err = s.Encrypted(ctx); err != nil {
		return nil, err
	}
	rights, err := s.Rights(ctx)
	if err != nil {
		return nil, err
	}
	found.Super, found.Server, found.Owns, found.Rewrites, found.Unissues = rights.Super, rights.Server, rights.Owns, rights.Rewrite, rights.Unissue
	if opt.Objects != nil {
		if _, err := opt.Objects.Size(ctx, "probe/reached.mark"); err != nil && !errors.Is(err, payload.ErrNotFound) {
			found.Objects = err
		}
	}
	if o.Database.Marks != nil {
		marks, place, err := objects.OpenMarks(o.Database.Marks)
		if err == nil {
			err = errors.Join(s.LookAtMarks(ctx, marks, o.Party), place.Close())
		}
		found.Marks = err
	}
	if err := found.replicas(ctx, s); err != nil {
		return nil, err
	}
	if found.Objects != nil {
		return found, nil // the audit asks it for every object
	}
	found.Faults, err = s.Audit(ctx)
	return found, err
}

// replicas lists the processes, as they say that they are.
func (i *Inspection) replicas(ctx context.Context, s *postgres.Store) error {
	members, now, err := s.Members(ctx)
	i.Now = now
	for n := range members {
		var r status.Replica
		if json.Unmarshal(members[n].Said, &r) != nil {
			r = status.Replica{Name: "unknown", NotTaking: []string{"what it says of itself cannot be read: it is of another version"}}
		}
		i.Replicas = append(i.Replicas, members[n].Replica(r, nil))
	}
	return err
}
