// Package edge serves requests for leader and helper alike: it authenticates, reads
// bodies within a budget, turns every failure into one problem document, and logs one
// event a request.
//
// Handlers return errors. [Error] carries what the peer may know; any other error is our
// own trouble, and the peer sees only a 500 without insides. No log line has an address,
// a token, a resource id, a report id or a share.
package edge
