// Package session defines what is public about a training: its terms, its models, and the
// announcements by which devices know which model a round is for. It has no network, clock
// or disk.
//
// A [Session] is a recipe with a training extension, the key of its controller, and the
// [Terms] whose SHA-256 that extension holds: so a recipe has one session, and who sees the
// recipe sees the one that all see. A [Model] is a blob, named by its SHA-256. An
// [Announcement] says with the controller's signature which model is for a round; each names
// the one before it.
//
// # What a controller can do in bad faith
//
// It decides which models there are. To have one device compute with a model of its own it
// must sign an announcement that others do not see; two different ones for one round, or in
// one place of the chain, are [Evidence] that anybody can check, and a device that follows
// the chain ([Session.Follow]) refuses the second. A model whose bytes have another hash, or
// that was made for another round or session, is refused ([Session.ReadModel]). The
// guarantee of the recipe holds for all models alike: it is about any vectors within the
// bound.
//
// # What a device reports
//
// For round r it takes the model announced for r, computes an update, and reports what
// [Terms.Vector] makes of it: scaled so that the clipping norm C of the model becomes the
// recipe's bound, which stays the same whatever C is. A report made on the model of round r
// goes into round r; late, it is dropped, and never averaged into another.
//
// Numbers are in network byte order but for the parameters of a model, which are IEEE 754
// binary32, little-endian, in the order of the layout.
package session
