package calculator

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/dp/release"
)

// Bounds on a list of events.
const (
	MaxEventsBytes = 1 << 20
	MaxEvents      = 1000
)

// An item is a Line as a list of events writes it.
type item struct {
	Line
	Allocation string  `json:"allocation"` // "1/100"
	Count      *uint64 `json:"count"`      // how many of this; 1 if left out
}

// ReadEvents reads a mixed composition: a JSON list of objects whose keys are the names
// of the flags of a mechanism, and "count" for how many of each there are, as in
//
//	[{"mechanism": "gaussian", "sigma": 5.1, "sampling": 0.02, "count": 2500},
//	 {"mechanism": "discrete-laplace", "scale": 20, "count": 3},
//	 {"mechanism": "approx-dp", "epsilon": 0.1, "delta": 1e-10}]
//
// An unknown key is refused. Its errors are *[Error].
func ReadEvents(r io.Reader) ([]Line, error) {
	const hint = `[{"mechanism": "gaussian", "sigma": 5.1, "sampling": 0.02, "count": 2500}] is such a list`
	limited := &io.LimitedReader{R: r, N: MaxEventsBytes + 1}
	dec := json.NewDecoder(limited)
	dec.DisallowUnknownFields()
	var items []item
	if err := dec.Decode(&items); err != nil {
		if limited.N <= 0 {
			return nil, refuse("add equal events up by their count", "the list of events has more than %d bytes", MaxEventsBytes)
		}
		return nil, &Error{Problem: "the list of events", Hint: hint, Err: err}
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, refuse(hint, "there is more after the list of events")
	}
	if len(items) == 0 || len(items) > MaxEvents {
		return nil, refuse(hint, "the list has %d events, want 1 to %d", len(items), MaxEvents)
	}
	out := make([]Line, len(items))
	for i, x := range items {
		out[i] = x.Line
		if x.Allocation != "" {
			var err error
			if out[i].Picks, out[i].Of, err = ParseAllocation(x.Allocation); err != nil {
				return nil, &Error{Problem: fmt.Sprintf("event %d", i+1), Hint: hint, Err: err}
			}
		}
		if x.Count == nil {
			continue
		}
		steps, count := max(1, out[i].Steps), *x.Count
		if count == 0 || count > release.MaxCount || steps > release.MaxCount/count {
			return nil, refuse(hint, "event %d: %d times %d of it are not 1 to 2^40", i+1, count, steps)
		}
		out[i].Steps = steps * count
	}
	return out, nil
}

// ParseAllocation reads "k/t": each record is in k of every t releases.
func ParseAllocation(s string) (picks, of uint64, err error) {
	k, t, ok := strings.Cut(s, "/")
	picks, err1 := strconv.ParseUint(k, 10, 64)
	of, err2 := strconv.ParseUint(t, 10, 64)
	if !ok || err1 != nil || err2 != nil || picks == 0 || picks > of {
		return 0, 0, refuse("--allocation 1/100: each record is in one of every 100 releases", "allocation %q is not k/t with 1 <= k <= t", s)
	}
	return picks, of, nil
}
