// Package service frames every long-running party of Starling: strict configuration, logs
// that cannot leak, metrics with closed labels, HTTP servers with limits, and an orderly
// start and stop.
//
// # Configuration
//
// [Load] reads one TOML file into a struct. A key the struct does not know is an error
// that names the key and its line; secrets are paths to files ([Secret]), never values;
// relative paths count from the configuration file, so a deployment is a directory that
// may be moved.
//
// # Never written
//
// No log line, metric or trace carries an address, a token, a report id or a share.
// [NewLogger] enforces what a handler can: values of unknown types are withheld, and
// addresses and long opaque strings are cut out of messages, strings and error texts.
// [Observe] writes one event a request, of typed attributes only: the route's pattern
// (never the path), the class of the status, bytes and duration. Metrics labels come from
// sets closed at registration ([Metrics]).
//
// # Life cycle
//
// A service is a list of [Part]. [Run] starts them in order, and stops them in reverse
// when its context ends (SIGTERM and SIGINT end it) or when one of them fails: each
// drains what it has and then returns. Failure is told by the returned error; nothing
// here exits the process.
//
// # Listeners
//
// The public listener ([Server]) speaks TLS, or plain HTTP where that stays on the
// machine: on loopback, on a unix socket, or with tls_terminated_upstream. The local one
// ([Local]) is only ever on loopback or a unix socket and serves /livez, /readyz,
// /statusz, /metrics and /debug/pprof.
package service
