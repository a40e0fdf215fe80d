package agreement

import (
	"fmt"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// A Standing is how one aggregator stands to the other in a task, as far as this life of it
// knows. The zero value has compared nothing.
type Standing struct {
	// At is when the two were compared last; zero if never.
	At time.Time
	// Silent says that the other has no such exchange: it is another implementation's.
	Silent bool
	// Failed is why the last try came to nothing.
	Failed string
	// Differences are what the two hold otherwise.
	Differences []status.Difference
	// Behind is how many releases this store lacks that the other has seen, and Ahead how
	// many the other's lacks of ours.
	Behind, Ahead uint64
}

// Known says whether the two were compared, or cannot be.
func (s Standing) Known() bool { return !s.At.IsZero() || s.Silent }

// waits is what to do about a helper that cannot be compared with.
const waits = "check that the helper runs, can be reached and holds the same peer_token; it is tried again by itself"

// Reasons are what the standing keeps the task from, at an aggregator of that role.
//
// A leader that has not compared takes uploads and has them verified, for the fence guards
// each job; it releases nothing, since it cannot know what it has released before. A helper
// that was not asked holds nothing back: its leader may be another's, and no request of
// ours comes without a fence.
func (s Standing) Reasons(role dap.Role) (list []permit.Reason) {
	here, there := sides(role)
	for _, d := range s.Differences {
		list = append(list, permit.Reason{
			Stops: permit.All, Do: d.Do,
			Why: fmt.Sprintf("leader and helper do not hold the same: %s (at the leader: %s; at the helper: %s)", d.What, d.Leader, d.Helper),
		})
	}
	lost := func(who string, n uint64) string {
		return fmt.Sprintf("%s's store is behind: it lacks %d of the releases that were made with it, so it was put back to an earlier state, or is another", who, n)
	}
	if s.Behind > 0 {
		list = append(list, permit.Reason{
			Stops: permit.All, Why: lost("this "+here, s.Behind),
			Do: fmt.Sprintf("stop this %s and put the newest state of its data directory back. If that is gone, nothing of this task may be released any more: make the recipe anew", here),
		})
	}
	if s.Ahead > 0 {
		list = append(list, permit.Reason{
			Stops: permit.All, Why: lost("the "+there, s.Ahead),
			Do: fmt.Sprintf("have the %s stopped and the newest state of its data directory put back. If that is gone, nothing of this task may be released any more: make the recipe anew", there),
		})
	}
	if role == dap.RoleLeader && !s.Known() {
		why := "leader and helper have not been compared since this leader's start"
		if s.Failed != "" {
			why += ": " + s.Failed
		}
		list = append(list, permit.Reason{Stops: permit.Release, Why: why, Do: status.Reach(why, waits)})
	}
	return list
}

func sides(role dap.Role) (here, there string) {
	if role == dap.RoleLeader {
		return "leader", "helper"
	}
	return "helper", "leader"
}

// Status is the standing for the operator.
func (s Standing) Status() *status.Agreement {
	a := &status.Agreement{State: status.NotCompared, At: s.At.UTC(), Failed: s.Failed, Differences: s.Differences, Behind: s.Behind, Ahead: s.Ahead}
	switch {
	case s.Behind > 0 || s.Ahead > 0:
		a.State = status.StoreBehind
	case len(s.Differences) > 0:
		a.State = status.Differs
	case s.Silent:
		a.State = status.NoAgreement
	case !s.At.IsZero():
		a.State = status.Agreed
	}
	return a
}

// Words are what differs, for a log.
func (s Standing) Words() string {
	var what []string
	for _, d := range s.Differences {
		what = append(what, d.What)
	}
	if s.Behind > 0 {
		what = append(what, fmt.Sprintf("%d releases are missing here", s.Behind))
	}
	if s.Ahead > 0 {
		what = append(what, fmt.Sprintf("%d releases are missing there", s.Ahead))
	}
	return strings.Join(what, ", ")
}
