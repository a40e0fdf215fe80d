// Package client answers a recipe on a person's device.
//
// [New] takes a recipe file: the recipe, and behind it the certificate of its guarantee,
// which is checked here and must hold. It refuses what does not, or is weaker than the
// caller agrees to. The package reaches no accountant: package recipe/account has the one
// that servers and commands use, and with it a prover for recipes without a certificate.
// [Client.Report] then takes answers, splits each into two
// shares (vdaf), seals one to the leader and one to the helper (sealed), and uploads both
// to the leader. Neither server can read the answer; the leader learns the network
// address of whoever uploads and, to the recipe's time precision, when.
//
// With [Options.Via] everything goes through a relay, and the leader learns no address;
// [Client.Cover] then sends a request that looks like an upload and is none.
//
// [Client.Prepare] makes a report without network, once [Client.Refresh] has fetched the
// aggregators' keys, and [Client.Upload] sends many in one request.
//
// A [Client] is safe for concurrent use. It keeps no record of what was answered: a
// person who may answer in a bounded number of rounds (the claim's) is counted by the
// caller.
//
// Recipes of the shuffled and the direct path are answered by package contribute.
//
// Around it: package answer reads answers as people type them, package sender carries them
// to the servers, package participate tosses the coins of a recipe and keeps the ledger of
// what was spent, and package clienttest has servers for tests. Here report.go makes a
// report, upload.go sends it, keys.go and manifests.go find the keys to seal to.
package client
