package deploy

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/service/database"
)

// Results of a transaction. One that was rolled back changed nothing; many of those are
// everyday refusals.
const (
	committed  = "committed"
	rolledBack = "rolled_back"
	unknown    = "unknown"
)

// Reasons beside the draft's: of stages that need none, and of codes that the draft does
// not list. A peer chooses those, so that they share one label.
const (
	noReason    = "none"
	otherReason = "other"
)

// observer registers an aggregator's own metrics and returns what feeds them. No label
// says more of a task than that there is one.
func observer(role dap.Role, m *service.Metrics) aggregator.Observer {
	names := helper.TransactionNames()
	if role == dap.RoleLeader {
		names = leader.TransactionNames()
	}
	reasons := []string{noReason, otherReason}
	for _, r := range dap.ReportErrors {
		reasons = append(reasons, r.String())
	}
	transactions := m.Histogram("starling_store_transaction_seconds", "Time of the store's transactions, without the wait for others.",
		[]float64{.001, .005, .02, .1, 1}, service.Label{Name: "tx", Values: names})
	results := m.Counter("starling_store_transactions_total", "The store's transactions by how they ended.",
		service.Label{Name: "tx", Values: names}, service.Label{Name: "result", Values: []string{committed, rolledBack, unknown}, Only: true})
	reports := m.Counter("starling_reports_total", "Reports by what became of them, as the store counts them.",
		service.Label{Name: "stage", Values: labels(aggregator.Stages()), Only: true}, service.Label{Name: "reason", Values: reasons, Only: true})
	jobs := m.Counter("starling_jobs_total", "Attempts at jobs by how they ended.",
		service.Label{Name: "kind", Values: labels(aggregator.JobKinds()), Only: true},
		service.Label{Name: "outcome", Values: labels(aggregator.Outcomes()), Only: true})
	shed := m.Counter("starling_shed_total", "Uploads and jobs turned away for want of room, by what was full.",
		service.Label{Name: "why", Values: labels(aggregator.Sheds()), Only: true})
	uncredited := m.Counter("starling_reports_uncredited_total", "Reports refused for their credential, each time that a job is verified, by what was wrong with it.",
		service.Label{Name: "why", Values: labels(aggregator.AllUncredited()), Only: true})
	compared := m.Counter("starling_batches_compared_total", "Batches that were released or are held, of tasks that sample or count devices, by how what came stands to what was to come.",
		service.Label{Name: "verdict", Values: labels(status.Verdicts()), Only: true})
	return aggregator.Observer{
		Compared:   func(v status.Verdict) { compared.Add(1, string(v)) },
		Uncredited: func(why aggregator.Uncredited, n uint64) { uncredited.Add(n, string(why)) },
		Shed:       func(why aggregator.Shed) { shed.Add(1, string(why)) },
		Transaction: func(name string, took time.Duration, err error) {
			result := committed
			switch {
			case errors.Is(err, database.ErrUnknown):
				result = unknown
			case err != nil:
				result = rolledBack
			}
			transactions.Observe(took.Seconds(), name)
			results.Add(1, name, result)
		},
		Reports: func(stage aggregator.Stage, reason dap.ReportError, n uint64) {
			label := noReason
			switch {
			case reason.Known():
				label = reason.String()
			case reason != 0:
				label = otherReason
			}
			reports.Add(n, string(stage), label)
		},
		Job: func(kind aggregator.JobKind, outcome aggregator.Outcome) { jobs.Add(1, string(kind), string(outcome)) },
	}
}

// gauges registers how full an aggregator is. Before it is open all are 0.
func gauges(role dap.Role, m *service.Metrics, limits aggregator.Limits, read func() (aggregator.Levels, bool)) {
	limits = limits.WithDefaults()
	gauge := func(name, help string, value func(l aggregator.Levels) float64) {
		m.Gauge(name, help, func() float64 {
			l, open := read()
			if !open {
				return 0
			}
			return value(l)
		})
	}
	up := func(err error) float64 {
		if err != nil {
			return 0
		}
		return 1
	}
	gauge("starling_store_up", "Whether the store answered lately: 1 or 0.", func(l aggregator.Levels) float64 { return up(l.Store) })
	gauge("starling_disk_free_bytes", "Room on the disk of the data directory; below 0: not known.",
		func(l aggregator.Levels) float64 { return float64(l.DiskFree) })
	m.Gauge("starling_disk_min_free_bytes", "Room below which uploads are refused.", func() float64 { return float64(max(0, limits.MinFree)) })
	gauge("starling_in_flight_bytes", "Bodies that are held, and reports that wait for their fsync.",
		func(l aggregator.Levels) float64 { return float64(l.InFlight) })
	m.Gauge("starling_in_flight_max_bytes", "Bodies that may be held.", func() float64 { return float64(limits.InFlight) })
	gauge("starling_key_age_seconds", "Age of the HPKE key that clients are offered; 0 where it is the operator's own.",
		func(l aggregator.Levels) float64 { return l.KeyAge.Seconds() })
	gauge("starling_held_batches", "Batches with too many reports or too few, or with credentials that nobody gave out, which are not released.",
		func(l aggregator.Levels) float64 { return float64(l.Held) })
	each := func(name, help, label string, values map[string]func(l aggregator.Levels) int) {
		m.Gauges(name, help, service.Label{Name: label, Values: sortedKeys(values), Only: true}, func(v string) float64 {
			l, _ := read()
			return float64(values[v](l))
		})
	}
	gauge("starling_followed_log_failing", "Whether the transparency log that is followed fails, so that what it said before holds on: 1 or 0.",
		func(l aggregator.Levels) float64 { return float64(l.LogFailing) })
	gauge("starling_cohort_alarms", "Key epochs of which issuers have answered more devices than the attester let ask, of the newest 8.",
		func(l aggregator.Levels) float64 { return float64(l.CohortAlarms) })
	each("starling_held_tasks", "Tasks that take nothing until a person has acted: held, apart from the other aggregator's, or restored.", "why",
		map[string]func(l aggregator.Levels) int{
			"held":     func(l aggregator.Levels) int { return l.HeldByHand },
			"apart":    func(l aggregator.Levels) int { return l.HeldApart },
			"restored": func(l aggregator.Levels) int { return l.HeldRestored },
		})
	each("starling_lost_files", "Whole files that nothing names, set aside below lost/.", "kind",
		map[string]func(l aggregator.Levels) int{
			"slices": func(l aggregator.Levels) int { return l.Files.LostSlices },
			"log":    func(l aggregator.Levels) int { return l.Files.LostLogs },
			"run":    func(l aggregator.Levels) int { return l.Files.LostRuns },
			"other":  func(l aggregator.Levels) int { return l.Files.LostOthers },
		})
	each("starling_damaged_files", "Files that are missing or are not what was written: logs of reports, replay protection, data keys.", "kind",
		map[string]func(l aggregator.Levels) int{
			"log":      func(l aggregator.Levels) int { return l.Files.DamagedLogs },
			"run":      func(l aggregator.Levels) int { return l.Files.DamagedRuns },
			"data_key": func(l aggregator.Levels) int { return l.Files.MissingDataKeys },
		})
	if role != dap.RoleLeader {
		return
	}
	gauge("starling_peer_up", "Whether the helper answered the last request: 1 or 0.", func(l aggregator.Levels) float64 { return up(l.Peer) })
	gauge("starling_backlog_reports", "Acknowledged reports that are to be verified.",
		func(l aggregator.Levels) float64 { return float64(l.Backlog) })
	m.Gauge("starling_backlog_max_reports", "Reports that may wait; 0: no bound.", func() float64 { return float64(max(0, limits.MaxBacklog)) })
	gauge("starling_backlog_oldest_seconds", "How long the first of them has waited.",
		func(l aggregator.Levels) float64 { return l.Oldest.Seconds() })
	gauge("starling_inbox_bytes", "Acknowledged and not yet sorted.", func(l aggregator.Levels) float64 { return float64(l.InboxBytes) })
	m.Gauges("starling_stuck_reports", "Reports whose job fails and is repeated, that wait for the operator, or that were set aside for good.",
		service.Label{Name: "state", Values: []string{"failing", "parked", "set_aside"}, Only: true}, func(state string) float64 {
			l, _ := read()
			return float64(map[string]uint64{"failing": l.Failing, "parked": l.Parked, "set_aside": l.SetAside}[state])
		})
}

// quotaGauges registers how much of a quota is used. Before the aggregator is open all is
// free.
func quotaGauges(m *service.Metrics, most aggregator.Quota, read func() (aggregator.Levels, bool)) {
	label := service.Label{Name: "quota", Values: []string{"bytes_stored", "reports_per_second", "requests", "tasks"}, Only: true}
	of := func(q aggregator.Quota, name string) float64 {
		return float64(map[string]int64{"tasks": int64(q.Tasks), "bytes_stored": q.BytesStored, "reports_per_second": int64(q.ReportsPerSecond),
			"requests": int64(q.Requests)}[name])
	}
	m.Gauges("starling_quota_used", "What is used of a quota; tasks and bytes are read every few seconds, where one of them has a quota.", label,
		func(name string) float64 {
			l, _ := read()
			return of(l.Used, name)
		})
	m.Gauges("starling_quota_max", "The quota; 0: no bound.", label, func(name string) float64 { return of(most, name) })
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func labels[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}
