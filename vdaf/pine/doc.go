// Package pine implements PINE: sums of real vectors that no aggregator sees, each proved
// to have an L2 norm within a bound, in about the size of the vector itself (Rothblum,
// Omri, Chen, Talwar, "PINE: Efficient Norm-Bound Verification for Secret-Shared
// Vectors"; draft-chen-cfrg-vdaf-pine-02). Paper 000 section 4.5 and paper 003 want it.
//
// # What is proved
//
// A vector x of d entries becomes integers e = round(x * 2^f), of which each element of
// the field stands for one. The client proves that the sum of squares, over the integers,
// is at most B^2, where B = floor(norm * 2^f). Two circuits do it: the squared norm
// modulo the field's size q has the claimed bits and is at most B^2 modulo q; and 100
// products of e with random vectors of -1, 0 and 1 are all small, which they are for a
// short vector and are not for one whose squared norm passes q ("wrap-around tests"). Any
// sum differs by at most B per client that lies: [Cost] says how sure that is.
//
// # Profile
//
// No standard defines PINE on VDAF-18, so this is a profile of our own, with codepoints
// of the private range (docs/pine.md has it in full): seeds of 32 bytes, tags with
// VDAF-18's version and class and the application's context, one seed for both shares of
// a helper, gadget polynomials as values. Field32 and Field40 use XofHmacSha256Aes128,
// Field64 and Field128 XofTurboShake128. The number of proofs makes up for the size of
// the field. Chunk lengths follow from the parameters and make the shortest reports.
//
// # Memory and speed
//
// A [vdaf.State] holds one measurement share, the codes of the tests (at most 16 MiB) and
// the encoded output shares of its batch, which are as large as the leader's input
// shares; so bound batches by bytes, not by reports. The memory for report i of a batch
// is allocated when it is first needed, and reused. Streams of HMAC-SHA256 and AES
// allocate a few hundred bytes.
//
// # Timing
//
// Encoding, sharding and verification do not branch on, index by or bound loops with an
// entry, share, seed or proof. The code leaks lengths; that a vector, an encoding or a
// proof was refused; the rejections of the XOF, whose odds do not depend on secrets.
// Look-ups are indexed by the tests' coefficients, which are public.
package pine
