package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
)

// An Engine is what keeps an aggregator's rows.
type Engine string

// The engines.
const (
	Embedded Engine = "embedded" // a file in the data directory, of one process
	Postgres Engine = "postgres" // a schema of PostgreSQL, of any number of processes
)

// A Database is a schema of PostgreSQL, 15 or newer, which the processes of one aggregator
// share.
type Database struct {
	// File holds the connection string of the role that serves: host=... dbname=... user=...
	// password=..., or a postgres:// URL, as psql takes it. It is read for each new
	// connection, so that a password is replaced without a restart. TLS is verified as
	// sslmode=verify-full does, unless it says otherwise, and what is weaker is refused but on
	// this machine. A pooler in transaction mode may stand between. Required.
	File service.Secret `toml:"file"`
	// Owner holds the connection string of the role that owns the tables, for starling
	// migrate alone; Service is then required. Default: File's role owns them, and migrates
	// at the start by itself as far as processes of the version before can live with.
	Owner service.Secret `toml:"owner"`
	// Service is the name of the role in File, to which Owner grants what it needs.
	Service string `toml:"service"`
	// Schema is where all tables are, of this aggregator alone. Default "starling".
	Schema string `toml:"schema"`
	// WrappingKeys is the directory of the keys that wrap the aggregator's own keys, which
	// lie in the database: the same files at all processes, in no backup of the database, and
	// made by starling key wrapping. Required without KMS; beside it they still open what they
	// wrap, until starling key rewrap has been typed.
	WrappingKeys service.Path `toml:"wrapping_keys"`
	// KMS is a key management service that wraps them instead. Optional.
	KMS KMS `toml:"kms"`
	// Connections is how many connections a process has at most. Default 16.
	Connections int `toml:"connections"`
	// Marks is where all processes say how far the database has come, so that each notices
	// when it is put back. Required; "none = true" in it is the way to go without.
	Marks Marks `toml:"marks"`
	// Objects is where uploads lie that are too large for a row, 256 KiB that come at about
	// one time; the same at all processes. Leaders only. Optional; without it all uploads are
	// rows.
	Objects Objects `toml:"objects"`
}

// A KMS is a key management service that speaks as Amazon's does (AWS KMS), and gives its
// keys to nobody.
type KMS struct {
	// Endpoint is its URL, such as https://kms.eu-central-1.amazonaws.com: https, or http on
	// this machine. Required.
	Endpoint string `toml:"endpoint"`
	// Region is the one that requests are signed for. Required.
	Region string `toml:"region"`
	// Keys are the ids or ARNs of its symmetric keys, the newest first: that one wraps, and
	// the others open what they have wrapped. Aliases are refused. At least one.
	Keys []string `toml:"keys"`
	// Credentials is a file in the format of ~/.aws/credentials, of somebody who may encrypt
	// and decrypt with the keys. It is read for each request, so that it is replaced without a
	// restart. Required.
	Credentials service.Secret `toml:"credentials"`
	// Profile is the part of the file that is read. Default "default".
	Profile string `toml:"profile"`
	// TLSCA are the certificates, in a PEM file, of those who sign the service's. Optional; the
	// machine's if not given.
	TLSCA service.Path `toml:"tls_ca"`
}

// Objects are a bucket of S3-compatible object storage, or a part of one.
type Objects struct {
	// Endpoint is the URL of the store, such as "https://s3.eu-central-1.amazonaws.com";
	// https unless it stays on this machine. Required.
	Endpoint string `toml:"endpoint"`
	// Region is the store's; many have one that they call "us-east-1". Required.
	Region string `toml:"region"`
	// Bucket is the name of the S3 bucket, which has to be there, and keeps what was put until it
	// is deleted. Required.
	Bucket string `toml:"bucket"`
	// Prefix stands before the names of all objects: folders, each with its slash. All
	// that share the S3 bucket have another one.
	Prefix string `toml:"prefix"`
	// PathStyle puts the S3 bucket into the path of the URL, where it is not a name of the DNS.
	PathStyle bool `toml:"path_style"`
	// Credentials is a file in the format of ~/.aws/credentials, read for each request.
	// Required.
	Credentials service.Secret `toml:"credentials"`
	// Profile is the one that is read of it. Default "default".
	Profile string `toml:"profile"`
	// TLSCA are the certificates, in a PEM file, of those who sign the store's. Optional; the
	// machine's if not given.
	TLSCA service.Path `toml:"tls_ca"`
}

// used says whether there is one.
func (k *KMS) used() bool {
	return k.Endpoint != "" || k.Region != "" || len(k.Keys) > 0 || k.Credentials != "" || k.Profile != "" || k.TLSCA != ""
}

// validate says what is missing.
func (k *KMS) validate() error {
	var f Faults
	f.If(k.Endpoint == "", "endpoint: the service's URL is required")
	f.If(k.Region == "", "region: required")
	f.If(len(k.Keys) == 0, "keys: at least one is required")
	f.If(k.Credentials == "", "credentials: the file is required")
	return f.All()
}

// options are nil where no service is named.
func (k *KMS) options() *aggregator.KMS {
	if !k.used() {
		return nil
	}
	return &aggregator.KMS{Endpoint: k.Endpoint, Region: k.Region, Keys: k.Keys, Credentials: string(k.Credentials), Profile: k.Profile, TLSCA: string(k.TLSCA)}
}

// validate says what is missing.
func (o *Objects) validate() error {
	var f Faults
	f.If(o.Endpoint == "", "endpoint: the URL of the store is required")
	f.If(o.Region == "", "region: required; a store that has none usually takes us-east-1")
	f.If(o.Bucket == "", "bucket: the name of the S3 bucket is required")
	f.If(o.Credentials == "", "credentials: the file is required, in the format of ~/.aws/credentials")
	return f.All()
}

// options are nil where no store is named.
func (o *Objects) options() *aggregator.Objects {
	if *o == (Objects{}) {
		return nil
	}
	return &aggregator.Objects{
		Endpoint: o.Endpoint, Region: o.Region, S3Bucket: o.Bucket, Prefix: o.Prefix, PathStyle: o.PathStyle,
		Credentials: string(o.Credentials), Profile: o.Profile, TLSCA: string(o.TLSCA),
	}
}

// options are those of a process that serves.
func (d *Database) options() *aggregator.Database {
	return &aggregator.Database{File: string(d.File), Schema: d.Schema, WrappingKeys: string(d.WrappingKeys), Connections: d.Connections,
		KMS: d.KMS.options(), Marks: d.Marks.options(), Objects: d.Objects.options()}
}

// Marks are a place that no backup of the database has: one of Directory and Objects.
type Marks struct {
	// None goes without: then a database that was put back is not noticed at a start, and each
	// start, check, doctor and status say so. For tests, and where nobody ever puts a backup
	// back.
	None bool `toml:"none"`
	// Directory is one that all processes share: of this machine, or of a network file
	// system on which a link to a name that is taken fails.
	Directory service.Path `toml:"directory"`
	// Objects are object storage in its place: not those of uploads, but others that no
	// backup has, either.
	Objects Objects `toml:"objects"`
}

// options are nil where no place is named.
func (m *Marks) options() *aggregator.Marks {
	if m.None || *m == (Marks{}) {
		return nil
	}
	return &aggregator.Marks{Directory: string(m.Directory), Objects: m.Objects.options()}
}

// RestoreDatabase takes a database that was put back for the aggregator's own; see
// [database.Restore]. Without marks it fails with [database.ErrNoMarks].
func (a *Aggregator) RestoreDatabase(ctx context.Context) (done database.Restored, err error) {
	if a.Engine != Postgres {
		return done, ErrEmbedded
	}
	m, err := a.read()
	if err != nil {
		return done, err
	}
	done, err = database.Restore(ctx, database.RestoreOptions{Database: *a.Database.options(), Role: a.Role, Party: m.base})
	return done, a.ofStore(err)
}

// DumpCommand is the command line that copies the aggregator's schema as of one moment into
// a directory, with what it takes to say where the server is. Its marks and wrapping keys are
// not in it, nor are objects: a restore drops the reports that wait.
func (a *Aggregator) DumpCommand(dir string) string {
	schema := cmp.Or(a.Database.Schema, aggregator.DefaultSchema)
	return fmt.Sprintf("pg_dump --format=directory --schema=%s --file=%s 'host=... dbname=... user=...', a superuser or one that has pg_read_all_data; "+
		"to put it back: stop all processes, DROP SCHEMA %[1]s CASCADE, pg_restore --exit-on-error --single-transaction --dbname='...' %[2]s, "+
		"then starling restore --database --yes %[3]s", schema, dir, cmp.Or(a.file, a.Role.String()+".toml"))
}

// InspectDatabase looks at the database that the aggregator's processes share, whether any
// runs or not, and writes nothing; see [database.Inspect].
func (a *Aggregator) InspectDatabase(ctx context.Context) (*database.Inspection, error) {
	d, err := a.shared()
	if err != nil {
		return nil, err
	}
	m, err := a.read()
	if err != nil {
		return nil, err
	}
	found, err := database.Inspect(ctx, database.InspectOptions{Database: *d, Role: a.Role, Party: m.base})
	return found, a.ofStore(err)
}

// validateDatabase says what is wrong with the engine by itself.
func (a *Aggregator) validateDatabase() error {
	var f Faults
	d := &a.Database
	switch a.Engine {
	case "", Embedded:
		f.If(!reflect.DeepEqual(*d, Database{}), "database: it is for engine = \"postgres\"")
		return f.All()
	case Postgres:
	default:
		f.If(true, "engine: %q is none, want embedded or postgres", a.Engine)
		return f.All()
	}
	f.If(d.File == "", "database.file: the file with a connection string is required")
	f.If((d.Owner == "") != (d.Service == ""), "database.owner: it needs database.service, the name of the role in database.file, and that needs it")
	if d.File != "" {
		f.Add("database.", d.options().Validate())
	}
	f.If(d.WrappingKeys == "" && !d.KMS.used(), "database.wrapping_keys: the directory is required: starling key wrapping --out DIR")
	if d.KMS.used() {
		f.Add("database.kms.", d.KMS.validate())
	}
	if d.Objects != (Objects{}) {
		f.If(a.Role != dap.RoleLeader, "database.objects: a helper keeps no uploads: leave it out")
		f.Add("database.objects.", d.Objects.validate())
	}
	m := &d.Marks
	// A store knows itself: an older one is refused, and only marks tell of a database's age.
	f.If(*m == (Marks{}), "database.marks: required: name a directory or objects that all processes reach and no backup of the database has; "+
		"or none = true, and nobody notices at a start that the database was put back (docs/operating.md, \"Several processes\")")
	f.If(m.None && *m != (Marks{None: true}), "database.marks.none: a place is named, too: leave one of the two out")
	if m.Objects != (Objects{}) {
		f.If(m.Directory != "", "database.marks.directory: they lie in database.marks.objects: name one of the two")
		f.If(m.Objects == d.Objects, "database.marks.objects: uploads lie there: give marks another bucket or prefix")
		f.Add("database.marks.objects.", m.Objects.validate())
	}
	return f.All()
}

// checkDatabase reads the files with connection strings and credentials, and has a key
// management service wrap something.
func (a *Aggregator) checkDatabase() error {
	var f Faults
	for name, file := range map[string]service.Secret{"database.file: ": a.Database.File, "database.owner: ": a.Database.Owner} {
		if file != "" {
			_, err := file.Text()
			f.Add(name, err)
		}
	}
	if k := a.Database.KMS.options(); k != nil {
		ctx, cancel := context.WithTimeout(context.Background(), tryTime)
		defer cancel()
		f.Add("database.kms: ", database.TryKMS(ctx, k))
	}
	for name, o := range map[string]*Objects{"database.": &a.Database.Objects, "database.marks.": &a.Database.Marks.Objects} {
		if o := o.options(); o != nil {
			f.Add(name, database.CheckObjects(o))
		}
	}
	return f.All()
}

// tryTime bounds what a check asks of others.
const tryTime = 15 * time.Second

// ErrEmbedded: there is no database that processes share.
var ErrEmbedded = errors.New("engine is embedded")

// WrappingKeys lists the keys that wrap the aggregator's own keys in its database.
func (a *Aggregator) WrappingKeys(ctx context.Context) ([]database.WrappingKey, error) {
	d, err := a.shared()
	if err != nil {
		return nil, err
	}
	list, err := database.WrappingKeys(ctx, d)
	return list, ofDatabase(a, err)
}

// Rewrap has the newest wrapping key wrap all keys in the database; see [database.Rewrap].
func (a *Aggregator) Rewrap(ctx context.Context, end bool) (database.Rewrapped, error) {
	d, err := a.shared()
	if err != nil {
		return database.Rewrapped{}, err
	}
	done, err := database.Rewrap(ctx, d, end)
	return done, ofDatabase(a, err)
}

// shared is the database of processes that share one.
func (a *Aggregator) shared() (*aggregator.Database, error) {
	if a.Engine != Postgres {
		return nil, ErrEmbedded
	}
	return a.Database.options(), nil
}

// ofDatabase says whose database an error is of.
func ofDatabase(a *Aggregator, err error) error {
	if err != nil {
		return fmt.Errorf("database: %w", a.ofStore(err))
	}
	return nil
}

// ofStore says which configuration names a store that was refused, so that the remedy can be
// typed as it stands.
func (a *Aggregator) ofStore(err error) error {
	var wrong *aggregator.StoreError
	if errors.As(err, &wrong) {
		wrong.File = cmp.Or(a.file, a.Role.String()+".toml")
	}
	return err
}

// migrateTime bounds a migration that waits for locks.
const migrateTime = time.Hour

// Migrate brings the schema of the aggregator's database to this program's version, as the
// role that owns it; see [database.Migrate].
func (a *Aggregator) Migrate(ctx context.Context, finish bool) (before, after database.Schema, err error) {
	d, err := a.shared()
	if err != nil {
		return before, after, err
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTime)
	defer cancel()
	if a.Database.Owner != "" {
		d.File, d.Service = string(a.Database.Owner), a.Database.Service
	}
	before, after, err = database.Migrate(ctx, database.MigrateOptions{Database: *d, Finish: finish})
	return before, after, ofDatabase(a, err)
}
