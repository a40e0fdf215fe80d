// Package signed says who vouches for a thing: Ed25519 keys of the owners of servers, what they sign, and which of them a
// device knows.
//
// Each owner has a root key, which stays offline and stands in recipes, and signs an online key for at most [MaxOnline]
// ([Delegate]); the server signs with that one. A [Signature] carries the whole chain, so that whoever knows the root
// needs nothing else. What is signed is a domain string, a zero byte and the message, so that no signature
// passes for one about something else.
//
// Keys of small order and keys with more than one encoding are refused everywhere ([ErrKey]): under the former many
// messages verify with one signature, and the latter would let one key pass for two.
package signed
