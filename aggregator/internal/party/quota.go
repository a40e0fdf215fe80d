package party

import (
	"context"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// ReadQuota reads how much of the quota is used, where there is one. unnamed are the bytes
// of acknowledged reports that no row names yet; nil for none.
func (p *Party) ReadQuota(ctx context.Context, unnamed func() int64) error {
	if p.opt.Quota.Tasks == 0 && p.opt.Quota.BytesStored == 0 {
		return nil
	}
	return p.Quota.Read(func() (int, int64, error) {
		beside := int64(0)
		if unnamed != nil {
			beside = unnamed() // first: what is named meanwhile counts twice
		}
		u, err := p.Store.Usage(ctx, p.opt.Clock.Now())
		return u.Tasks, u.Bytes + beside, err
	})
}

// Quotas are those that bound something, and how much of each is used, as it was read
// last.
func (p *Party) Quotas() []status.Quota {
	most, used := p.opt.Quota, p.Quota.Used()
	all := []status.Quota{
		{Name: "tasks", Used: int64(used.Tasks), Most: int64(most.Tasks)},
		{Name: "requests", Used: int64(used.Requests), Most: int64(most.Requests)},
	}
	if p.role == dap.RoleLeader {
		all = append(all, status.Quota{Name: "reports_per_second", Used: int64(used.ReportsPerSecond), Most: int64(most.ReportsPerSecond)},
			status.Quota{Name: "bytes_stored", Used: used.BytesStored, Most: most.BytesStored})
	}
	var bound []status.Quota
	for _, q := range all {
		if q.Most > 0 {
			bound = append(bound, q)
		}
	}
	return bound
}
