// Package orders is what an issuer of credentials and a gateway's mint of tokens have in
// common: both answer orders of an attester over HTTP, each order as often as it comes and no
// other in its place, up to a number for each epoch ([Desk], [Registers]).
package orders
