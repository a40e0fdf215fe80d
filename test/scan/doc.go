// Package scan searches all that every party writes, while the whole of a deployment runs,
// for what could tell of a device: its addresses, its code and secret, its credentials and
// what it shows of them, its tokens, the names of its reports, and its answers, sealed or
// not. The places in which any of that may be found, and until when, stand in
// docs/data-model.md, in a table that the test reads: what it finds is what the table says,
// no more and no less.
package scan
