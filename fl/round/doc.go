// Package round is the controller of a training: it announces which model each round is
// for, has what devices reported collected, and steps the model. It has no network and sees
// no report: what it is handed is what leader and helper released, noise included, so that
// nothing it does or loses costs privacy.
//
// # States
//
// A [Controller] is created of a session, whose recipe is published elsewhere. Each round is
// then
//
//	announced  its model is published: open, while the recipe's round lasts, then closed
//	collected  its sum is there; or skipped, with nothing released of it
//	stepped    the model was stepped with it, and the next may be announced
//
// A step takes the sums of Batch rounds, one by default: of more, as mini-batches of slots,
// all are announced with one set of parameters, and what was skipped counts for nothing. If
// all were, the model stays as it is.
//
// # Nothing twice, nothing lost
//
// What has happened stands in the journal of a [Store], a directory ([OnDisk]) or a schema
// of a database, which one process has at a time, in the order
//
//	model durable, announcement in the journal, in the record, published
//	sum durable, then collected in the journal
//	new parameters durable, then stepped in the journal
//
// so that a controller which stopped anywhere goes on where it was: an announcement that
// was signed and is in no journal was seen by nobody; a sum may be asked for again, for the
// same batch is the same sum for ever; a step that is in no journal is made again from the
// same sums. Files are named by their hashes, so that the journal finds them out.
//
// # A journal that was put back
//
// A journal of yesterday would have another model announced for a round that has one. So
// the newest announcement is also in a record, on another disk and in no database, and
// [Options.Published] asks what devices are shown. One that the journal does not know is a
// [*PutBackError], and the controller signs nothing any more; a sum that is not the one that
// was collected before is a [*ContradictionError].
package round
