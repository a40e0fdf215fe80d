// Package client answers a recipe on a person's device.
//
// [New] takes a recipe that was opened (recipe.Open), or opens one with a prover of the
// caller's, and refuses what does not hold or is weaker than the caller agrees to. The
// package reaches no accountant of its own: package recipe/account has the one that
// servers and commands use. [Client.Report] then takes answers, splits each into two
// shares (vdaf), seals one to the leader and one to the helper (sealed), and uploads both
// to the leader. Neither server can read the answer; the leader learns the network
// address of whoever uploads and, to the recipe's time precision, when.
//
// A certificate of the guarantee that came beside the recipe ([Options.Certificate]) is checked by code that shares nothing with
// the accountant, as a second opinion; a recipe that it does not prove is refused.
//
// With [Options.Via] everything goes through a relay, and the leader learns no address; [Client.Cover] then sends a request
// that looks like an upload and is none.
//
// [Client.Prepare] makes a report without network, once [Client.Refresh] has fetched the aggregators' keys, and
// [Client.Upload] sends many in one request.
//
// A [Client] is safe for concurrent use. It keeps no record of what was answered: a person who may answer in a bounded
// number of rounds (the claim's) is counted by the caller.
package client
