package aggregator

import (
	"errors"
	"fmt"
)

// A Database is where the processes of one aggregator keep what they have together: a
// schema of PostgreSQL, 15 or newer.
type Database struct {
	// File holds a connection string, as psql takes it, and is read for each new connection:
	// what is replaced there needs no restart. TLS is verified as sslmode=verify-full does,
	// unless it says otherwise, and what is weaker is refused but on this machine. Required.
	File string
	// Schema is where all tables are, which no other aggregator has. Default "starling".
	Schema string
	// Service is the role that the replicas connect as, where File, as that of a migration,
	// names the role that owns the tables. Default the role of File.
	Service string
	// WrappingKeys is the directory of the keys that wrap the aggregator's own keys, which
	// lie in the database: the same at all processes, and never there. Required to serve,
	// unless KMS is there; beside KMS they open what they have wrapped, and wrap no more.
	WrappingKeys string
	// KMS is a key management service that wraps in their place. Optional.
	KMS *KMS
	// Connections is how many connections a process has at most; default 16.
	Connections int
	// Marks is where all processes say how far the database has come, so that one which was
	// put back is found out; no backup of the database has it. Optional: without it nobody
	// finds out.
	Marks *Marks
	// Objects has a leader's uploads that are too large for rows of the schema, 256 KiB that
	// come at about one time; the same at all processes. Optional; without it all are rows.
	Objects *Objects
}

// A KMS is a key management service that speaks as Amazon's does.
type KMS struct {
	// Endpoint is its URL: https, or http on this machine. Required.
	Endpoint string
	// Region is the one that requests are signed for. Required.
	Region string
	// Keys are the ids or ARNs of the wrapping keys, the newest first, which wraps; aliases
	// are refused. At least one.
	Keys []string
	// Credentials is a file in the format of ~/.aws/credentials, of which Profile is read;
	// default "default". It is read for each request, so that it is replaced without a restart.
	Credentials, Profile string
	// TLSCA are the certificates, in a PEM file, of those who sign the service's. Optional; the
	// machine's if not given.
	TLSCA string
}

// Marks are a place for small objects that are put once and never change.
type Marks struct {
	// Directory is one that all processes share: of one machine, or of a network file system
	// on which a link to a name that is taken fails.
	Directory string
	// Objects are object storage in its place.
	Objects *Objects
}

// Objects are an S3 bucket, of any object storage that speaks S3's protocol, or a part of
// one.
type Objects struct {
	// Endpoint is the URL of the store: https, or http on this machine. Required.
	Endpoint string
	// Region is the store's; many have one that they call us-east-1. Required.
	Region string
	// S3Bucket is its name; it has to be there. Required.
	S3Bucket string
	// Prefix stands before each object's name: folders, each with its slash. All who share
	// the S3 bucket have another one. Optional.
	Prefix string
	// PathStyle puts the S3 bucket into the path, where it is not a name of the DNS.
	PathStyle bool
	// Credentials is a file in the format of ~/.aws/credentials, which is read for each
	// request: what is replaced there needs no restart. Required.
	Credentials string
	// Profile is the one that is read of it; default "default".
	Profile string
	// TLSCA are the certificates, in a PEM file, of those who sign the store's. Optional; the
	// machine's if not given.
	TLSCA string
}

// DefaultSchema is the schema of a Database that names none.
const DefaultSchema = "starling"

// Validate fills in defaults and says what is missing.
func (d *Database) Validate() error {
	if d.Schema == "" {
		d.Schema = DefaultSchema
	}
	if d.Connections == 0 {
		d.Connections = 16
	}
	switch {
	case d.File == "":
		return errors.New("database: no file with a connection string")
	case d.Connections < 2 || d.Connections > 10_000:
		return fmt.Errorf("database: %d connections, want 2 to 10000", d.Connections)
	}
	return nil
}
