// Package p256 is the group that credentials and tokens are made of: NIST P-256, of prime
// order n and cofactor 1, with its scalars, and hashing to both (RFC 9380).
//
// Two sorts of points keep secrets apart from what is public. A [Point] takes part in
// secret work: every operation of it takes the same time whatever its operands are, and
// its arithmetic is that of filippo.io/nistec. An [Element] is one that has been, or may
// be, on a wire: affine, on the curve, never the identity. [Product] multiplies elements
// by scalars in a time that depends on both, and is for public data only; its name in
// callers' code is where an auditor looks.
//
// Arithmetic modulo the prime p of the field is our own, for nistec shows none: hashing
// to the curve needs it, and it makes [Product] several times as fast. It takes constant
// time unless a function says otherwise; tests hold it to math/big.
package p256
