package status

import (
	"fmt"
	"time"
)

// Clock is a machine's clock that is not plausible: far ahead of the time that the
// aggregator saw last, or behind it.
type Clock struct {
	Now  time.Time `json:"now"`
	Seen time.Time `json:"seen"`
}

// Why says what is wrong, and what waits for a person.
func (c *Clock) Why() string {
	where, by := "ahead of", c.Now.Sub(c.Seen)
	if by < 0 {
		where, by = "behind", -by
	}
	return fmt.Sprintf("the clock is %s %s the last time that was seen, %s: until it is right no task is retired, no key ends, and no round is released that was not over then",
		by.Round(time.Second), where, c.Seen.Format(time.RFC3339))
}
