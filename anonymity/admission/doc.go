// Package admission has the two forms in which admission to a gateway's rounds is kept
// and shown: the file of the gateway's keys for a recipe's rounds of one key epoch
// ([Keys]), which whoever issues tokens and the gateway read, and the header field in
// which a device shows a token inside every request that it seals ([Field]).
//
// A token is package voprf's. It says that a device was let ask for it once in the epoch,
// and not which. The field has one length for all requests of all recipes, and stands in
// reports and covers alike, so it tells nothing of which of the two a request is.
//
// A round's keys serve from the start of the round until its grace is over; a [Keys] ends
// with its last round's, and is then to be destroyed. Errors of what a stranger sends wrap
// [ErrField], those of a file [ErrKeys].
package admission
