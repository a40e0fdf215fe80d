// Package witness implements the party that watches transparency logs for those who cannot:
// it remembers the last checkpoint of each log that it follows, and signs a new one only
// if a proof shows that it continues that one. So nobody whose policy wants this witness
// can be shown another log than everybody else.
//
// [Witness] is an [http.Handler] of C2SP's tlog-witness: add-checkpoint, and for monitors
// the last checkpoint of each log. Each one that it signs is on the disk before the
// answer goes out, under a lock for each log, so that a loss of power, a restart or two
// requests at once never have it sign two trees of which neither continues the other. Its
// directory must not be put back to an older copy: a witness that forgets what it has
// signed can be led to sign a second tree.
//
// It asks nobody and learns nothing of devices. Anybody can run one, for logs of whom they
// know nothing: package deploy makes a process of witness.toml.
package witness
