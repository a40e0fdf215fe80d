// Package journal keeps a gateway's acknowledged rounds on its disk, until each is done.
//
// A round is one file, "round-" and its number, which is whole or not there
// ([disk.WriteFile]): what was opened in it, the bodies to pass on and how many requests
// came. Writing it is the one wait for the disk of the whole round. How far a round is on
// its way stands in a log of small records, "forward-" and a number ([disk.Log]): how
// rounds were cut into requests, and what became of each request. So a gateway that was
// killed goes on with the same requests of the same bytes. When a round is done the log
// says so, and its file is overwritten and removed; the log is written anew with what is
// still under way once it has grown. It also says how far the logs of what keys have opened
// have come, which are not kept here.
//
// # What damage does
//
// A round file that cannot be read is damage, since none is ever seen half written:
// [Recovered.Damaged] counts it, and the file is kept aside. The mark, in a directory of
// its own, the record, says which rounds there were and how long the log was: one small
// write for each round, before it is acknowledged. So a log, a round that is not done, or
// a whole directory, that was lost, cut, exchanged or put back is a [*StateError]. The
// records of a log since its last round are the one thing that a loss of power and damage
// take alike: then requests go again, or a round that was done is missed.
package journal
