// Package participate decides, on the device and in secret, whether and when it takes
// part in a recipe, and keeps the ledger of what that costs (paper 000, sections 3 and
// 4.1).
//
// # One decision
//
// [Device.Decide] does, in this order:
//
//  1. refuses what the device is not asked, what its person does not want and what is
//     decided already;
//  2. charges the ledger the price of the round, durably and twice over (the charge, then
//     its mark), whatever the coins will say: the price is that of tossing. A device that
//     would overspend tosses no coin. Nor does one that has decided as often as the
//     recipe allows or, where its noise is correlated over rounds, too few rounds ago
//     ([ErrTooSoon]): the guarantee counts on devices for both;
//  3. tosses all coins of the round from crypto/rand, exactly, whether or not they matter;
//  4. makes a report whatever they say: of the answer, or of no answer.
//
// Where a device waits for a slot (donation times and check-ins), 3 draws the slot and
// writes it down, and the rest waits for it: [Decision.Send] ends the slot durably, tosses
// its coins, and makes the report. A device that starts again goes on with the slot by
// [Device.Resume]; it draws no second one, and no coin is tossed twice.
//
// The outcome stays in the [Decision]; nothing on the disk tells it (of a slot, until it
// is taken or over, that it was drawn), no log line, and no request but one: a report, a
// dummy or, with cover, a no-op. After a crash between 2 and the upload, or with
// slots between the end of the slot and the upload, the device sends nothing and has
// paid: a lost report is better than a charge that is not recorded.
//
// The acts of a device before the upload do not depend on its coins: it fetches the same
// keys, seals the same number of shares, and writes the same ledger record.
//
// # The unit that is uploaded
//
// A unit is one HTTP request to the leader's reports resource. A report or a dummy is
// DAP's upload request of one report, by POST. A no-op is a request by ohttp.MethodCover
// to the same URL, with the same media type and a body of as many zeros: once encrypted
// for the gateway, which drops it, it cannot be told from a report. All three are sent
// alike: at fixed times, until the gateway answers, which is all that a device is ever
// told ([client.Tries]; docs/proofs/exchange.md).
//
// # The ledger
//
// [Ledger] is an append file of package disk with a record for each recipe seen, refused
// and decided. It covers all recipes. A second file, the mark, is written after each
// charge and before its coin is tossed, and says how far the ledger was acted on: a
// charge behind the mark was never tossed for, and may be torn; one that the mark covers
// and that is damaged or gone ends the ledger with [ErrLedger]. At worst a round is lost,
// never tossed for again. The mark names the file of drawn slots too. So a file of the
// three that was put back by itself is found out. All three put back together are found
// out by a [Counter] outside of them, if there is one; a copy on another device is not.
//
// Losses within a recipe are composed by its prover, on a device the certificate in the
// recipe's file, and those of different recipes
// are added up: they bound how well anyone could tell two lives apart that differ, in
// each recipe, by what its neighbouring relation says.
package participate
