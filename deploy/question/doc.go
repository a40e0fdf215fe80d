// Package question decides what one run of a collection asks for, and in which order:
// whole rounds, each by itself where the recipe releases them alone, from the end of the
// last collection on or between two given times ([Run.Questions]).
//
// A question that can never be answered does not stay in the way of later ones. One of a
// time that has not begun, is not over before the run's timeout, or lies outside of the
// recipe's window is not asked. One of a time that is over with too few reports is
// withdrawn as soon as the leader has said so twice: in its place all that has come since
// is asked for where rounds are released together, and else the run ends with
// *[TooFewError], or passes the round where it may skip.
//
// A question asked and not answered stays in the session's state, and the next run goes
// on with it.
package question
