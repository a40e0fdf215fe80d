package deploy

import (
	"errors"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/service"
	"github.com/starling-agg/starling/service/database"
)

// Results of a transaction. One that was rolled back changed nothing; many of those are everyday refusals.
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

// observer registers an aggregator's own metrics and returns what feeds them. No label says more of a task than that
// there is one.
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
		[]float64{.0003, .001, .003, .01, .03, .1, .3, 1}, service.Label{Name: "tx", Values: names})
	results := m.Counter("starling_store_transactions_total", "The store's transactions by how they ended.",
		service.Label{Name: "tx", Values: names}, service.Label{Name: "result", Values: []string{committed, rolledBack, unknown}, Only: true})
	reports := m.Counter("starling_reports_total", "Reports by what became of them, as the store counts them.",
		service.Label{Name: "stage", Values: labels(aggregator.Stages()), Only: true}, service.Label{Name: "reason", Values: reasons, Only: true})
	jobs := m.Counter("starling_jobs_total", "Attempts at jobs by how they ended.",
		service.Label{Name: "kind", Values: labels(aggregator.JobKinds()), Only: true},
		service.Label{Name: "outcome", Values: labels(aggregator.Outcomes()), Only: true})
	shed := m.Counter("starling_shed_total", "Uploads and jobs turned away for want of room, by what was full.",
		service.Label{Name: "why", Values: labels(aggregator.Sheds()), Only: true})
	return aggregator.Observer{
		Shed: func(why aggregator.Shed) { shed.Add(1, string(why)) },
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

func labels[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}
