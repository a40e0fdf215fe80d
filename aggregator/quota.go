package aggregator

import "errors"

// A Quota is what an aggregator may take of a machine that it shares with others, as a
// tenant does. A zero field bounds nothing.
type Quota struct {
	// Tasks is how many may be live at one time, neither closed nor ended: one more is
	// refused with a *[TaskError], however it comes.
	Tasks int
	// BytesStored is how much a leader may have of what uploads make grow: reports that
	// wait, replay protection, shares of open batches. At and above it uploads get 503;
	// what is acknowledged goes on. It is read of the store every few seconds, so that
	// replicas together may go above it by what comes in that time.
	BytesStored int64
	// ReportsPerSecond is how many reports a leader takes in any second, on average: after
	// a request that brought more, the next ones get 429, before anything of them is read,
	// until the time for it is over. Each process counts its own.
	ReportsPerSecond int
	// Requests is how many are under way at one time; a further one gets 503 before
	// anything of it is read. Each process counts its own.
	Requests int
}

// Validate says what cannot be.
func (q Quota) Validate() error {
	if q.Tasks < 0 || q.BytesStored < 0 || q.ReportsPerSecond < 0 || q.Requests < 0 {
		return errors.New("aggregator: quota: negative")
	}
	return nil
}
