// Package journal is what a gateway keeps on its disk of the rounds that it has
// acknowledged, until each is done.
//
// A round is one file, "round-" and its number, which is whole or not there
// ([disk.WriteFile]): what was opened in it, the bodies to pass on and how many requests
// came. Writing it is the one wait for the disk of the whole round. How far a round is on
// its way stands in a log of small records, "forward-" and a number ([disk.Log]): how
// rounds were cut into requests, and what became of each request. So a gateway that was
// killed goes on with the same requests of the same bytes. When a round is done its file
// is overwritten and removed; the log is written anew with what is still under way once
// it has grown.
//
// A round file that is there and cannot be read is damage, since none is ever seen half
// written: [Recovered.Damaged] counts it, and the file is kept aside.
package journal
