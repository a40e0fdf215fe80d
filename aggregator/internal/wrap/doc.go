// Package wrap wraps the secrets of an aggregator for places that others may copy: rows of
// a database with its versions, logs and backups. A thief of these has nothing without the
// wrapping key, which is never there: it is in files beside the configuration ([Files]), or
// in a key management service that gives it to nobody (package kms).
//
// # What a box is bound to
//
// Wrapping is authenticated encryption. With a secret goes associated data, which says
// what the secret is: whose, for what, of which task and which time. A box in another's
// place does not open ([ErrBox]), nor does one with a bit changed.
//
// # Rotation
//
// Several wrapping keys may be there. [Wrapper.Wrap] takes the newest one, and each opens
// what it has wrapped. To end a key: add a newer one at every replica, have all that lives
// wrapped again, and then take the old one away. A crash on the way leaves boxes of both,
// which both open, and doing it again ends it.
//
// # What ending a wrapping key gives
//
// A backup of the database holds the boxes that there were when it was made. With the
// wrapping keys of then it opens what they wrap, and what was deleted since. So an old
// backup is shredded when those wrapping keys are, and they must be in no backup of their
// own that lives longer. An operator that rotates every day can restore secrets from
// backups of a day, and nobody can open more. A key management service keeps keys by rules
// of its own, and Amazon's deletes none sooner than in a week: there the bound is the
// rotation and that time.
package wrap
