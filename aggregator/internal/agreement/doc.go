// Package agreement compares what leader and helper hold of their tasks, before a report
// is lost or a batch is released twice because they do not hold the same. It has the
// message, the comparison and the words; leader and helper exchange and obey.
//
// # The exchange
//
// The leader posts its message at its start and every minute, the helper answers with its
// own, and both know. A message has one root over a keyed digest of each task; where the
// roots differ, the leader lists the digests, and for each task whose digest differs the
// helper says what it holds ([Facts]) and is told what the leader does. Secrets go as HMACs
// under a key of the task's token between the two, so that equal ones can be told and
// nothing else. All sizes are bounded.
//
// # The fence
//
// An exchange is a minute old when a job comes, and the helper may have been started anew
// with another key since. So each request about a job or a share carries the digest of what
// must be the same for it (Facts.fence); the helper compares that with its own, and
// refuses before it has looked at a report. A request without one comes from another
// implementation's leader, of which nothing is known.
//
// # The ledgers
//
// Be H(t) the set of the helper's releases at a time t, L(t) the leader's, and F(t) the
// leader's frozen batches: those that it may have asked the helper for, and has not
// released. Each set holds selection, count and checksum, the same at both. In a life
// without damage
//
//	L(t) ⊆ H(t) ⊆ L(t) ∪ F(t),
//
// since a batch is frozen, durably, before the helper is asked, is released by the helper,
// durably, before the leader does so, and leaves F only for L; and L and H never shrink.
// The leader reads L at t1, the helper reads H at t2 > t1 and answers, the leader reads F
// and then L at t3 > t2. So
//
//	the helper is behind     if  L(t1) ⊄ H(t2): it lacks what it released once,
//	the leader is behind     if  H(t2) ⊄ F(t3) ∪ L(t3): it lacks what it asked for once,
//
// and neither is true while nothing was lost, whatever is released, repeated, delayed or
// cut off by a crash meanwhile: L(t1) ⊆ H(t1) ⊆ H(t2) ⊆ L(t2) ∪ F(t2), and what is there at
// t2 is in F or in L at t3, in L where it left F between the two reads. Each judges only
// itself, and from that order alone. A leader freezes nothing before the first exchange of
// its life, or what it lost would be in F again.
//
// A leader put back to between a batch's freezing and its release looks like one that
// crashed there. The helper's memory of it gives it away, for as long as that lives: the
// helper answers with the most releases that it was ever shown (Facts.Seen), and a leader
// that has fewer is behind. Stores of both that went back together are not found here.
package agreement
