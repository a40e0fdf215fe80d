// Package mint gives out the gateway's tokens for admission, in the gateway's process:
// for each device one of each round of an epoch, by blinded requests that an attester
// vouches for. It knows of no device, and no token of its own can be told when it is
// shown (package voprf).
//
// # What it sees to
//
// An order is answered for the attester of the epoch's manifest alone, in the time before the
// epoch begins, for all tokens of the epoch at once, and for at most as many devices as the
// manifest says: each order is entered in a register, durably, before it is answered, and the
// same requests again are answered again and entered once. That a device has made one order is
// the attester's word, as it is for issuers of credentials.
//
// # Keys
//
// A round has a key of its own, which admits to no other, so that an answer has a proof
// for each token: the RFC proves many evaluations at once under one key only. The
// manifest has a digest of each recipe's list of public keys, and the lists are handed to
// everybody ([Mint.Keys]): keys that the manifest does not name give out nothing, and a
// device asks under no others.
package mint
