package agreement

import (
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
)

// held is a fingerprint in words.
func held(d Digest) string {
	if d == (Digest{}) {
		return "none"
	}
	return d.String()
}

// Compare lists what the two hold otherwise of a task, but for their ledgers, in words for
// the operators of both. The keys that one has and the other has not are no difference
// while the leader does not begin jobs with them: keys are changed at one after the other.
func Compare(leader, helper *Facts) (list []status.Difference) {
	add := func(what, l, h, do string) {
		list = append(list, status.Difference{What: what, Leader: l, Helper: h, Do: do})
	}
	differ := func(what string, l, h Digest, do string) {
		if l != h {
			add(what, held(l), held(h), do)
		}
	}
	for i, k := range leader.Keys {
		there, ok := helper.key(k.ID)
		what := fmt.Sprintf("verification key %d", k.ID)
		switch {
		case ok && there != k.Digest:
			add(what, held(k.Digest), held(there), fmt.Sprintf("give both the same file: starling task change --verify-key %d=FILE where it is wrong, and start that one again", k.ID))
		case !ok && i == 0:
			add(what, held(k.Digest), "none", fmt.Sprintf("at the helper: starling task change --verify-key %d=FILE, beside those that it has, and start it again", k.ID))
		}
	}
	differ("the collector's public key", leader.Collector, helper.Collector,
		"give both the same file, id and all: starling task change --collector-hpke FILE where it is wrong, and start that one again")
	differ("the task's configuration", leader.Config, helper.Config,
		"the one that is wrong needs a task of its own: starling task close there, and starling task add of the same recipe at both")
	if leader.Wire != helper.Wire {
		add("the draft of DAP", fmt.Sprintf("dap-%d", leader.Wire), fmt.Sprintf("dap-%d", helper.Wire),
			"the one that is wrong needs a task of its own: starling task close there, and the same recipe or dap at both")
	}
	if leader.Framing != helper.Framing {
		add("the framing", framing(leader), framing(helper), "where it is wrong: starling task change --framing, and start that one again")
	}
	if leader.ClosedIn != helper.ClosedIn {
		add("the restore", restored(leader), restored(helper),
			"a store was restored from a backup, and the task is over: make its recipe again (starling recipe again OLD NEW) and give it to both")
	}
	differ("the calendar of rounds", leader.Calendar, helper.Calendar, "name the recipe at both, and run the same version of starling")
	differ("the noise", leader.Noise, helper.Noise, "name the recipe at both, and run the same version of starling")
	return list
}

func restored(f *Facts) string {
	if f.ClosedIn == 0 {
		return "none"
	}
	return fmt.Sprintf("epoch %d, which closed the task", f.ClosedIn)
}

func framing(f *Facts) string {
	text, err := f.Framing.MarshalText()
	if err != nil || f.Framing > 1 {
		return fmt.Sprintf("framing %d", f.Framing)
	}
	return string(text)
}

// compareServices lists in what the services do not fit, whatever the task.
func compareServices(leader, helper *Service) (list []status.Difference) {
	if off, skew := span(leader.Offset), time.Duration(min(leader.Skew, helper.Skew))*time.Second; off > skew {
		ahead, behind := off.Round(time.Second).String()+" ahead of the other", off.Round(time.Second).String()+" behind the other"
		d := status.Difference{What: "the clock", Leader: ahead, Helper: behind, Do: fmt.Sprintf("set the one that is wrong right; a difference of %s is allowed", skew)}
		if leader.Offset > 0 {
			d.Leader, d.Helper = behind, ahead
		}
		list = append(list, d)
	}
	if leader.JobBytes > helper.JobBytes {
		list = append(list, status.Difference{
			What: "the size of a job", Leader: fmt.Sprintf("up to %d bytes sent", leader.JobBytes), Helper: fmt.Sprintf("up to %d taken", helper.JobBytes),
			Do: "raise limits.job_bytes at the helper and start it again",
		})
	}
	if leader.JobReports > helper.JobReports {
		list = append(list, status.Difference{
			What: "the reports of a job", Leader: fmt.Sprintf("up to %d sent", leader.JobReports), Helper: fmt.Sprintf("up to %d taken", helper.JobReports),
			Do: "send fewer reports in a job, or take more at the helper",
		})
	}
	return list
}

// span is the size of an offset, 100 years at most.
func span(offset int64) time.Duration {
	const most = 100 * 366 * 24 * time.Hour
	if limit := most.Milliseconds(); offset > limit || offset < -limit {
		return most
	}
	return (time.Duration(offset) * time.Millisecond).Abs()
}

// Offset is how far a clock is ahead of ours at least that showed there between two moments
// of ours: the difference that is left when all of the time between them is allowed for.
func Offset(begin, end time.Time, there uint64) int64 {
	from, until := int64(Millis(begin)), int64(Millis(end))
	t := int64(min(there, 1<<62))
	switch {
	case t > until:
		return t - until
	case t < from:
		return t - from
	}
	return 0
}

// Missing is how many prints of list are not in set. Both rise.
func Missing(list, set []Print) (n int) {
	for _, x := range list {
		for len(set) > 0 && set[0] < x {
			set = set[1:]
		}
		if len(set) == 0 || set[0] != x {
			n++
		}
	}
	return n
}
