// Package issuer gives devices their credentials, beside an aggregator: it answers blinded
// requests that an attester vouches for, and knows of no device (package arc).
//
// # What it sees to
//
// A request is answered for the attester of the epoch's manifest alone, in the time before
// the epoch begins, and at most as many as the manifest says in all: each is entered in a
// register, durably, before it is answered, and the same request again is answered again and
// entered once. When the epoch has begun nothing is issued any more, and how many there are is
// public ([Issuer.Count]); until then it is nobody's business.
//
// An issuer of several processes has one [Register] and the same keys at each: any of them
// answers, and what one has answered all count. Epochs begin by the register's clock, so that
// a process whose own is ahead ends nobody's visits, and one whose own is behind gives out
// nothing late.
//
// # Keys
//
// Each epoch has a key of its own, a file in a directory that no other process writes to. The
// aggregator verifies with it what devices show ([Issuer.Verifier]), so that it stays until
// the last round of the epoch has long been closed, and is then overwritten and removed
// ([Issuer.Retire]). A key that is gone is never made again.
package issuer
