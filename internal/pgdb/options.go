package pgdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"regexp"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
)

// Options say where the database is. One of Connection and File is required, and Schema and
// Migrations are.
type Options struct {
	// Connection is a connection string: key=value pairs or a URL, as psql takes it.
	Connection string
	// File holds one instead, and is read for each new connection.
	File service.Secret
	// Schema is where all tables are; it is made if it is not there.
	Schema string
	// Service is the role that the replicas connect as, where another one, which owns the
	// tables, migrates; default the one that migrates. In migrations :service stands for
	// it.
	Service string
	// Migrations has files NNNN_name.sql in its root, numbered from 0001 without a gap.
	Migrations fs.FS
	// Needs is the oldest version of the schema that this program works with; default the
	// newest that Migrations has.
	Needs int
	// Statements has files *.sql in its root with named statements; may be nil.
	Statements fs.FS

	// Connections is how many connections there are at most; default 16. One of them is for
	// what writes nothing.
	Connections int
	// Attempts is how often a transaction is begun at most; default 12.
	Attempts int
	// Pause is about how long the first pause between attempts is, doubled up to 128 times
	// it; default 5 ms.
	Pause time.Duration
	// Idle bounds how long a transaction may do nothing before the server ends it, so that
	// the locks of a replica that is gone do not stay; default 30 s.
	Idle time.Duration
	// Resolve bounds a commit, and then how long its outcome is looked for; default 1 min.
	Resolve time.Duration

	// Observe, if set, is called after each transaction with its name, how long it took
	// with all its attempts, and its error.
	Observe func(name string, took time.Duration, err error)
	// Clock measures what Observe is told; default [disk.SystemClock].
	Clock disk.Clock
	// Failpoints are named "<Prefix>.<transaction>.before-commit" and ".after-commit", the
	// latter being a commit that is done and whose answer is lost; nil in production.
	Failpoints *disk.Failpoints
	Prefix     string // required with Failpoints
	// Volatile has Open take a server that runs without fsync: for tests.
	Volatile bool
	// Dial connects to the server; default a [net.Dialer]. Tests break connections with it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// identifier is what PostgreSQL takes unquoted, and poolers and people do too.
var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Validate fills in defaults and says what is wrong.
func (o *Options) Validate() error {
	if o.Connections == 0 {
		o.Connections = 16
	}
	if o.Attempts == 0 {
		o.Attempts = 12
	}
	if o.Pause == 0 {
		o.Pause = 5 * time.Millisecond
	}
	if o.Idle == 0 {
		o.Idle = 30 * time.Second
	}
	if o.Resolve == 0 {
		o.Resolve = time.Minute
	}
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	switch {
	case (o.Connection == "") == (o.File == ""):
		return errors.New("pgdb: one of Options.Connection and File is required")
	case !identifier.MatchString(o.Schema):
		return fmt.Errorf("pgdb: %q is no name of a schema: small letters, digits and _, at most 63", o.Schema)
	case o.Service != "" && !identifier.MatchString(o.Service):
		return fmt.Errorf("pgdb: %q is no name of a role: small letters, digits and _, at most 63", o.Service)
	case o.Migrations == nil:
		return errors.New("pgdb: Options.Migrations is required")
	case o.Connections < 2 || o.Connections > 10_000:
		// an outcome is found out on a connection of its own
		return fmt.Errorf("pgdb: %d connections, want 2 to 10000", o.Connections)
	case o.Attempts < 1 || o.Attempts > 1000 || o.Pause < 0 || o.Idle < time.Second || o.Resolve < 0 || o.Resolve > maxResolve:
		return fmt.Errorf("pgdb: %d attempts with pauses of %v, idle %v, resolve %v", o.Attempts, o.Pause, o.Idle, o.Resolve)
	case o.Failpoints != nil && o.Prefix == "":
		return errors.New("pgdb: Options.Prefix is required with Failpoints")
	}
	return nil
}
