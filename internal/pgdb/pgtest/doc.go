// Package pgtest gives each test a schema of its own in a PostgreSQL server.
//
// The server is that of STARLING_TEST_POSTGRES, a connection string of a role that may make
// roles and schemas, or else one that is started for the test binary: postgres and initdb
// are then on the PATH. It listens on a unix socket in a directory of its own, does not
// sync, and ends with the binary, however that ends. PostgreSQL does not run as root: where
// the tests do, it runs as the user postgres, or nobody.
//
// Tests that use it have the build tag postgres, so that go test ./... asks for no server;
// test/postgres/check runs them.
package pgtest
