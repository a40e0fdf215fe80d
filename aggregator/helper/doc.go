// Package helper implements the DAP helper: it verifies reports with the leader in
// aggregation jobs, adds up those that hold, and releases its share of a batch once. It
// sees sealed shares and the leader's messages, never a client, and trusts the leader
// with nothing but the order of work: batch sizes, replays, times and proofs are checked
// here again.
//
// # Answers
//
// A request is identified by its bytes. The first run of a job commits its reports and
// stores the answer in one transaction; the same bytes, at once or years later, get the
// same answer. With [Always] the answer is an empty body first, and a worker finishes the
// job; the leader polls.
//
// # Rounds
//
// Prio3 takes one round. The continuation of jobs is written for VDAFs of any number of
// rounds (package rounds) and tested with some made for the purpose (package
// aggregatortest). Between steps the requests so far are kept beside the last answer, and
// every step is computed from them; with the last step they are erased.
//
// # Keys
//
// With a KeySchedule the helper makes its HPKE keys by itself and destroys each a while
// after it takes no more uploads, once the jobs that came before are finished (package
// keyset). A job that comes later gets hpke_unknown_config_id for each report that was
// sealed to it.
package helper
