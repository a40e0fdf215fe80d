// Package datakey keeps the data keys of one aggregator: random keys, one an epoch, from
// which the noise of releases is expanded, and under which the noised shares lie on the
// disk until the collector has done with them. They live apart from the data, in a place
// that does not go back with it, so that a store which was put back meets the same noise.
//
// # Epochs
//
// A key is of the time from one instant up to another, the next one begins where it ends,
// and the first one is also of all time before it. A batch belongs to the key of the time
// in which its last report lies (in a leader-selected task its first), never to that of
// the moment at which it is released: what is asked for again later is asked of the same
// key. Keys are made by the clock, a whole period before the time that they are of
// begins, so that copies of the place are likely to have them; how long the service was
// away or where its clock was makes no gap and no overlap.
//
// # The life of a key
//
// A key stays until nothing of its time can be released any more, no noised share lies
// under it, and its time has been over for as long as the service keeps ended tasks. Then
// the store notes that it ended, and its file is overwritten, synced and removed (see
// package keyset for what that gives on which disk). A thief with a copy of the data from
// before cannot make the noise again: nothing of that time is ever released.
//
// # What is refused
//
// Noise is never drawn otherwise. A batch of a time whose key ended, or whose file is
// lost or damaged, is not released ([GoneError]). The store remembers which keys it has
// seen: without any of them, with those of another store, or with a copy from before the
// newest of them [Open] fails with [ErrDamaged], for it would make new keys for a time
// that has had one.
//
// # Keys of tasks
//
// What lies in a database of replicas is sealed under a key of its task, which is derived
// from a data key and a secret of the task ([Key.Of]), and ends with either.
//
// # Files
//
//	data-keys/<serial>.key  one key each, for the owner's eyes only: magic, set, serial, begin, end, key, SHA-256
//
// Replicas have a vault instead ([Options].Vault), in which each key's bytes are wrapped. Any
// of them makes keys; of two for one time the second is not kept (package keyset/vault).
//
// The file is durable before the store notes the key, and the store notes it before it is
// used; the store notes the end before the file is touched. So a crash leaves a key that
// is adopted, or one whose destruction the next start ends.
package datakey
