// Package logserver implements the party that keeps a transparency log: recipes, key lists,
// manifests and releases, which everybody then sees alike.
//
// [Server] is an [http.Handler]. It takes entries at POST add, if a function that it was
// given says that their owners have signed them; the package itself cannot read one. It
// shows the log as C2SP's tlog-tiles has it, at checkpoint and tile/, and at bundle the one
// file that devices fetch.
//
// An entry is on the disk before its sender hears of it, and has its place from then on.
// At each interval the log signs a checkpoint over what is there, asks the witnesses of
// its policy to sign it too, and shows it once a quorum has; until then everybody goes on
// with the one before. It shows no entry and no tile beyond what its witnesses have
// signed. In each period it first appends which entries hold in it, so that the bundle
// follows from the log and is no choice of whoever serves it.
//
// All that it keeps is one append log of entries, from which tree, tiles and bundle are
// computed, and apart from that, in a directory that must not go back when the first does,
// the last checkpoint that it has shown: a log that was put back to an older copy does not
// start, for it would fork.
package logserver
