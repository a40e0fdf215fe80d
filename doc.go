// Package starling is the root of a system that learns statistics, and trains models,
// from data that never leaves people's devices, with a privacy guarantee that every
// device checks for itself.
//
// A recipe makes six choices. Its author makes five: query, randomizer, participation,
// path, noise; the sixth, the guarantee, is computed from those five. A device answers a
// recipe with one report, split into two shares of which each is uniformly random. A
// leader and a helper verify the shares without opening them to each other, add them up,
// draw noise and release one sum of at least B reports.
//
// # The house
//
// Imports go down only. The packages at the root are for those who import this module, or
// read about a party; packages that no outsider has a use for are in internal.
//
//	cmd/starling       the commands; wiring only; internal/questions: questions of another
//	                   program, a line each
//	lab                chart: every party on loopback in one process: demo, tutorial,
//	                   test bed
//	deploy             invitation  question: the configuration files of every party, how it starts
//	                   from them, how two owners agree
//	figures            the papers' claims by formula, drawn from dp; internal/draw is its pen
//	client collector   the people's side; client/participate: secret coins and the ledger of
//	                   their cost; client/answer: answers read from words and tables;
//	                   client/contribute: answers sealed to two hops and an analyzer;
//	                   client/sender: answers sent for one person or many;
//	                   client/logbook: what a device takes from the transparency log;
//	                   client/credentials: visits to the attester, and what came of them;
//	                   client/training: a device's way to the models of a training;
//	                   clienttest  collectortest
//	fl                 images  model  simulator: rounds of a recipe without cryptography, with the
//	                   running system's integers; train: a model learns in them, under accounting;
//	                   outlook: what its rounds will be like, told before;
//	                   session: a training, its models and their announcements, as bytes;
//	                   optimizer: what a server makes of a mean; round: the controller, who
//	                   announces models and steps them; agent: what takes part for processes
//	                   that come and go; baseline: rounds of other systems; checkin: the
//	                   protocols of paper 004 as they are stated
//	shuffle            cloak: sums of messages that a shuffler mixes; onion: what a device
//	                   seals for two hops and an analyzer, and what those sign; hop  analyzer:
//	                   the parties; internal/party: what they have in common
//	internal/exchange  one DAP request and its answer, as client and collector make it
//	internal/uploads   what a gateway must know of DAP uploads, which it cannot parse, and of
//	                   envelopes for a shuffler
//	internal/pgjournal the journal of a training, and its models, in a database
//	internal/logged    what entries of the transparency log say, and who may say it
//	internal/showing   what devices show hops of the shuffled path, and how it is verified
//	internal/releases  digests of what was released of a task
//	aggregator         leader  helper  keyset  keyset/vault  backup  database  status  aggregatortest
//	                   internal/{segment store lease verify rounds release datakey record
//	                   retire lost mend steady agreement permit room peer task edge watch
//	                   party payload wrap}: a batch of reports, verified and released
//	anonymity          ohttp  arc  voprf  admission  relay  gateway: who is hidden from whom;
//	                   tlog  logserver  witness: the log in which all see the same recipes and keys;
//	                   visit  issuer  attester  mint: how a device comes to its credentials
//	                   and to the gateway's tokens;
//	                   internal/p256: the group of credentials and tokens; internal/orders: what
//	                   issuer and mint answer, each once
//	recipe             the six choices, canonical bytes, validation; account computes the
//	                   guarantee, plan works backwards from it
//	dap                taskprov  daptest; DAP drafts 18 and 19: wire messages, HPKE strings,
//	                   problem documents, the header that advertises a task
//	vdaf               prio3  pine  vdaftest  internal/{field xof flp kernel}: proofs about shares
//	dp                 release  noise  correlated  accountant  certificate  amplify
//	                   calculator  local  projection  sketch: what privacy costs
//	internal/service   database  servicetest: configuration, logs, metrics, HTTP, start and stop
//	internal/faults    all that is wrong with a file, at once
//	internal/pgdb      one schema of a PostgreSQL database: migrations, named transactions
//	internal/pgserver  servers of PostgreSQL of a program's own, for tests and benchmarks
//	internal/buffer    memory for large messages, lent and taken back
//	internal/body      bodies of requests from strangers, within a budget of memory
//	internal/search    where a cost falls to a budget; internal/prose: words that fit a terminal
//	internal/outward   rounding to the safe side, each reason said once
//	internal/binomial  sums over binomial distributions
//	internal/endpoint  the URLs at which parties are reached
//	internal/wire      messages in TLS syntax, read and written from one table of fields
//	signed             signedtest; who vouches for keys: owners' Ed25519 keys, anchors,
//	                   what they have signed
//	internal/disk      append log, atomic replace, power-loss simulation
//	sealed             HPKE opening
//	test docs          end to end, simulation, interoperation, a real object store and
//	                   database; the words
//	python             agent, controller and accountant from Python; Flower, and its filter
//
// A party that must not see a thing cannot import the package that parses it:
// arch_test.go holds the floors and the bans, each with its reason. The way of one report
// through the house has thirteen steps; each stands in the doc comment of the function
// that takes it, walk_test.go wants every one once, and docs/one-report.md tells them in
// order.
package starling
