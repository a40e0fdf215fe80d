// Package keyset keeps the HPKE keys that clients seal to, at one aggregator, and ends
// them: it makes a new key every period, offers the newest, takes the older ones as long
// as a client may still use them, and destroys each once nothing needs it any more.
// Shares that were sealed to a destroyed key are shredded, wherever a copy of them lies.
//
// # The life of a key
//
//	waiting    made, and not offered yet: where replicas share the keys, until each has proved that it holds this one
//	current    offered, the only one of its suite
//	accepted   a newer one is offered; uploads are taken for MaxAge, which is how long clients may use the list they have
//	           (Cache-Control), and Overlap
//	retiring   no upload is taken; what was accepted before is still opened. A leader keeps the key until none of its own
//	           acknowledged reports needs it; a helper, which cannot know what the leader has, for Delay, and then until its
//	           unfinished jobs are done
//	destroyed  the file is overwritten and removed; the id stays taken for as long as a report to it may be under way
//
// Keys of the operator's own (Options.Configured) are opened and taken beside these,
// never offered and never destroyed.
//
// # Where keys are
//
// A vault ([Options].Vault) has a state, which says without secrets what there is, and the
// key pairs by name, in the format of package sealed. One process has a directory:
//
//	keys/state       replaced as a whole (disk.WriteFile)
//	keys/<n>.hpke    one key pair each, readable by the owner only (disk.OSFS)
//
// A key is durable before the state names it, and the state says "destroyed" before the
// key is touched. So a crash leaves either a key that the state does not name, which the
// next start destroys, or the key as it was.
//
// # Replicas
//
// Replicas share a vault of rows. One of them, the maker, makes and ends keys; the others
// take over what it did with their next [Set.Step]. A new key is not offered before every
// replica that lives has proved that it holds it, and uploads to it are taken from then on;
// a key is not destroyed before every one of them has closed it and has no work under way
// that may use it. A replica that has not been heard for vault.Lease is dead and holds up
// neither. All go by the vault's clock. An upload that a replica took before it was cut off
// from the vault, and makes durable after its key was destroyed, could not be opened:
// whoever commits it looks, in that transaction, whether the life of the replica in which
// it was taken goes on ([Hold.Life]), and whoever holds a replica dead waits for the commits
// that found it alive.
//
// # What destroying gives
//
// The file is overwritten with zeros, synced, removed, and the directory synced. Where a
// file system writes in place on a magnetic disk, the key is gone. A flash drive, a
// copy-on-write or journaling file system, a snapshot and a backup may keep the old
// blocks: there the key is out of reach of everything that goes through the file system,
// and only encryption of the disk below, under a key that is itself destroyed, or the
// drive's secure erase, ends it for one who takes the drive apart. In memory the key
// becomes garbage; Go gives no way to wipe it, so keep swap and core dumps off or
// encrypted.
//
// # Failure and concurrency
//
// Everything may be called from many goroutines; readers take no lock for the list and
// the key ring. [Set.Step] may fail at any point and be repeated, also by the next life.
// [ErrDamaged] is for the operator: a key that the state names is missing or not what was
// written, or the state is older than the one that this set has seen. One process owns the
// directory, as it owns the store beside it.
package keyset
