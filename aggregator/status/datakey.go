package status

import (
	"fmt"
	"time"
)

// DataKey is a key whose file is missing: what noise of a time is made from.
type DataKey struct {
	File        string    `json:"file"` // in the aggregator's record
	From, Until time.Time // of the reports that it is of
}

// DataKeys are the keys that are there.
type DataKeys struct {
	Kept int `json:"kept"`
	// the first is of reports up to Oldest, the last up to Newest
	Oldest time.Time `json:"oldest_until"`
	Newest time.Time `json:"newest_until"`
	// Endless is how many tasks keep them for ever, for they are never retired.
	Endless int `json:"endless_tasks,omitempty"`
}

// Words say how the keys stand.
func (k *DataKeys) Words() string {
	if k.Kept == 0 { // all were given up
		return "none is there; the clock makes the next"
	}
	words := fmt.Sprintf("%d kept, for reports up to %s", k.Kept, k.Newest.UTC().Format(time.RFC3339))
	switch k.Endless {
	case 0:
		return words + "; each ends once nothing of its time can be released"
	case 1:
		return words + "; none ends, for a task is never retired: its recipe has no window, or the configuration keeps it"
	}
	return fmt.Sprintf("%s; none ends, for %d tasks are never retired: their recipes have no window, or the configuration keeps them", words, k.Endless)
}

// Why says what that means.
func (k *DataKey) Why() string {
	return fmt.Sprintf("the data key of reports from %s to %s is lost or damaged, or ended after this copy of the data was made: nothing of that time is released",
		k.From.UTC().Format(time.RFC3339), k.Until.UTC().Format(time.RFC3339))
}
