package status

import (
	"fmt"
	"strings"
)

// A Quota is what an aggregator may take of a machine that it shares with others, and how
// much of it is used: live tasks, requests under way, reports of the last second, bytes
// stored.
type Quota struct {
	Name string `json:"name"` // as in the configuration
	Used int64  `json:"used"`
	Most int64  `json:"most"`
}

// Full says whether no more is taken.
func (q Quota) Full() bool { return q.Used >= q.Most }

// Why is what happens at a full quota, in words.
func (q Quota) Why() string {
	becomes := map[string]string{
		"tasks": "a further task is refused", "bytes_stored": "uploads are told to come again, and what is acknowledged goes on",
	}[q.Name]
	if becomes == "" {
		becomes = "what comes meanwhile is told to come again"
	}
	return fmt.Sprintf("quota.%s is used up, %d of %d: %s", q.Name, q.Used, q.Most, becomes)
}

// QuotaWords says how much of each is used.
func QuotaWords(all []Quota) string {
	var words []string
	for _, q := range all {
		words = append(words, fmt.Sprintf("%s %d of %d", q.Name, q.Used, q.Most))
	}
	return strings.Join(words, ", ")
}

// lasts says whether a quota that is used up does not end by itself in a moment.
func (q Quota) lasts() bool { return q.Name == "tasks" || q.Name == "bytes_stored" }

// quotas are the reasons of those that are used up, for longer than a moment.
func (s *Status) quotas() (rs []Reason) {
	for _, q := range s.Quotas {
		if q.Full() && q.lasts() {
			remedy := "starling task close ends a task for good; or raise it in [quota] of " + s.Role + ".toml, which the next start reads"
			if q.Name == "bytes_stored" {
				remedy = "find out with starling why what keeps reports from being verified and batches from being collected, close tasks that are done, or raise it in [quota] of " +
					s.Role + ".toml, which the next start reads"
			}
			rs = append(rs, Reason{q.Why(), remedy})
		}
	}
	return rs
}
