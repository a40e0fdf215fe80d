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

// Why says what that means.
func (k *DataKey) Why() string {
	return fmt.Sprintf("the data key of reports from %s to %s is lost or damaged, or ended after this copy of the data was made: nothing of that time is released",
		k.From.UTC().Format(time.RFC3339), k.Until.UTC().Format(time.RFC3339))
}
