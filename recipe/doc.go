// Package recipe holds version 1 of the recipe: the public, immutable unit of agreement
// between the people who are asked, the organisation that asks, and the parties in
// between.
//
// A recipe is six choices, each a tagged union: the [Query], the [Randomizer] on the
// device, the [Participation] of devices, the [Path] that reports take, the [Noise] that
// servers add, and the [Claim] that the author makes about privacy. The claim is never
// believed: package account recomputes it from the other five, and a certificate proves
// it to the devices that are asked to take part. [Open] checks a recipe once, with a
// [Prover], and makes a [Checked] of it, which everybody downstream takes as it is.
//
// # Whose data
//
// The guarantee is about one [Unit]: what is reported of one person, device, visit, site,
// or what the recipe names; of one device where it names none. How several records of one
// become its answer is in the recipe, and the guarantee of a person with several units is
// computed beside it ([Guarantee.Person]). Assumptions of the guarantee that only the
// author vouches for are its conditions ([Guarantee.Conditions]): the guarantee that
// holds without them is printed first. Where credentials count the devices that it counts
// on there are none of these ([Recipe.Counted]).
//
// # Coins
//
// Where devices decide by secret coins ([Bernoulli], [Importance], [DonationTime]) and a
// [Relay] hides who sends, sampling amplifies privacy, but only beside [Dummies]: if all
// others hold -C and one person +C, the sum and the exact number of reports single that
// person out. The guarantee is then about a device's answer against the same device
// without one ([Recipe.Neighbours]), and counts the number of reports as a release of its
// own. [Recipe.Chances] are the coins, [Recipe.Estimate] undoes them. Without a relay
// sampling still saves work, and amplifies nothing.
//
// # Rounds
//
// Time is cut into [Rounds]. In a round a device decides once, and its report says the
// round and nothing finer ([Recipe.ReportTime]). Leader and helper release whole rounds
// after their end and grace, and each alone where one person may be in several or devices
// toss coins ([Recipe.Alone], [Recipe.CheckBatch]): that is the event that the guarantee
// accounts for.
//
// # Paths
//
// On the path of two servers devices send shares and proofs. On the others they send
// messages without proofs, which [Recipe.Messenger] makes of answers and adds up again: a
// shuffler mixes those of a round ([Shuffled]), or nothing does ([Direct]). An analyzer
// reads them all, so that only what devices draw themselves protects an answer: a
// [LocalRandomizer], or behind a shuffler [Cloak], over which every query of whole numbers is
// asked, and which may collect a round in independent batches ([Recipe.Join]). Noise of servers, their keys,
// credentials, coins and a DAP task are for two servers alone, and refused there.
//
// # Noise over rounds
//
// [CorrelatedGaussian] has later batches take back a part of the noise of earlier ones.
// Its guarantee counts on each device to keep a distance between the rounds that it
// answers in ([Recipe.DeviceRule]), and covers all batches together.
//
// # One encoding
//
// [Recipe.Append] and [Read] use TLS presentation syntax with one encoding for each
// recipe. Every union is {tag uint8, config<0..2^16-1>}; a tag or an extension that this
// build does not know is refused with [UnknownError], never skipped, because a part that
// a reader skips is a part that it did not agree to. Numbers are integers, [Rational] or
// [Decimal], never floating point. The tags stand in registry.go.
//
// # Identity
//
// [ID] is SHA-256("starling recipe v1" || bytes). A recipe file has a certificate behind
// the bytes ([SplitFile], [OpenFile]), which the id leaves out: another proof of the same
// guarantee makes no other recipe. The DAP task follows from the recipe alone
// ([Recipe.Task]): task_info is the recipe's id, so the id, and through it every choice,
// is authenticated by each encrypted share.
//
// # Where to look
//
// recipe.go has the six choices, validate.go what is refused of them, wire.go, file.go and
// registry.go the bytes; each query, randomizer, path and noise has a file of its name, and
// messages.go what reports are on paths without proofs; words.go and describe.go say a
// recipe to people, query.go reads what they type. Package account makes a recipe and
// computes its guarantee, package plan works backwards to one.
//
// The package is pure: no network, clock, log or goroutine.
package recipe
