package status

import "time"

// Acts that a task may be kept from.
const (
	Take    = "take"    // acknowledge uploads
	Verify  = "verify"  // run aggregation jobs
	Release = "release" // collect batches
)

// Stop is one reason why a task does not do something now. Nothing is lost by it: uploads
// are answered with a problem after which clients come again, all else waits.
type Stop struct {
	// agreement: what was compared with the other aggregator; hold: see [FromHold]
	From  string   `json:"from"`
	Stops []string `json:"stops"` // take, verify, release
	Why   string   `json:"why"`
	Do    string   `json:"do"`
}

// FromHold is the source of the stops that last until a person lets the task go on: the
// helper has refused whole jobs, or a person holds it.
const FromHold = "hold"

// How two aggregators stand.
const (
	NotCompared = "not-compared" // not in this life of the aggregator
	Agreed      = "agreed"
	Differs     = "differs"
	StoreBehind = "behind"  // one of the two stores lacks releases that the other has seen
	NoAgreement = "unknown" // the other is another implementation's and does not say
)

// Agreement is how an aggregator stands to the other in a task.
type Agreement struct {
	State       string       `json:"state"`
	At          time.Time    `json:"at,omitzero"`      // when they were compared last
	Failed      string       `json:"failed,omitempty"` // why they were not compared since
	Differences []Difference `json:"differences,omitempty"`
	Behind      uint64       `json:"behind,omitempty"` // releases that this store lacks
	Ahead       uint64       `json:"ahead,omitempty"`  // releases that the other's lacks
}

// Difference is one thing that leader and helper do not hold the same. Keys are shown by
// fingerprints, which are the same at both where the keys are.
type Difference struct {
	What   string `json:"what"`
	Leader string `json:"leader"`
	Helper string `json:"helper"`
	Do     string `json:"do"`
}
