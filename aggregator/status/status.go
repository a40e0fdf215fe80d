// Package status defines the reports of an aggregator to its operator and its peer: JSON
// types, and the words that name what a task or batch waits for and what to do about it.
// It holds counts and states, never an id of a report, an address or a share.
package status

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Status is the state of one aggregator. Leader and helper serve it on their local
// listener.
type Status struct {
	Role  string    `json:"role"` // leader or helper
	Now   time.Time `json:"now"`
	Tasks []Task    `json:"tasks"`
	// RefusedRequests counts whole requests that were refused, by problem type or HTTP
	// status.
	RefusedRequests map[string]uint64 `json:"refused_requests,omitempty"`
	// UnopenedTasks are live tasks that nothing was asked of since the start; Tasks has the
	// others.
	UnopenedTasks int `json:"unopened_tasks,omitempty"`
	// Keys are the HPKE keys that clients seal to, the newest first.
	Keys []Key `json:"keys,omitempty"`
	// Clock is set where the machine's clock is not plausible.
	Clock *Clock `json:"clock,omitempty"`
	// Damaged are the logs that lost acknowledged reports, while they are kept below lost/.
	Damaged []Damage `json:"damaged,omitempty"`
	// Lost are whole files that nothing names; nil if there are none.
	Lost *Lost `json:"lost,omitempty"`
	// DataKeys are those whose files are missing.
	DataKeys []DataKey `json:"missing_data_keys,omitempty"`
	// NoiseKeys are the data keys that are there.
	NoiseKeys *DataKeys `json:"data_keys,omitempty"`
	// NoRoom is why uploads or jobs are turned away for want of room; empty while there
	// is some.
	NoRoom string `json:"no_room,omitempty"`
	// Replicas are the processes that share a database, the first that began first; none where
	// the store is one process's.
	Replicas []Replica `json:"replicas,omitempty"`
	// NoMarks says that nothing tells a database of now from one that was put back.
	NoMarks bool `json:"no_marks,omitempty"`
	// Quotas are what bounds the aggregator on a machine that it shares; none: nothing.
	Quotas []Quota `json:"quotas,omitempty"`
	// Published is what the transparency log says of how many devices have credentials; nil
	// where it is not followed.
	Published *Published `json:"published,omitempty"`
	// Stopped says that the aggregator is not running, and that this was read of its store.
	Stopped bool `json:"stopped,omitempty"`
}

// Phases of a task.
const (
	NotStarted = "not-started" // before the task's interval
	Running    = "running"
	Over       = "over"    // after the task's interval; no report can come
	Retired    = "retired" // over for long: all but the counts and the ledger is erased
)

// Task is one task at one aggregator.
type Task struct {
	ID            string  `json:"id"`
	Phase         string  `json:"phase"`
	BatchMode     string  `json:"batch_mode"`
	MinBatch      uint64  `json:"min_batch"`
	TimePrecision uint64  `json:"time_precision_seconds"`
	Counts        Counts  `json:"counts"`
	Batches       []Batch `json:"batches,omitempty"`
	// collection jobs that wait, at the leader
	Collections []Wait  `json:"collections,omitempty"`
	Stuck       []Stuck `json:"stuck,omitempty"`
	// why it does not take, verify or release now
	Stops []Stop `json:"stops,omitempty"`
	// an alarm: batches with too many reports to be honest, or too few
	Held []Held `json:"held,omitempty"`
	// the batch that was last compared with its recipe and with what the issuer gave out, in
	// this life of the aggregator
	Rate          *Rate   `json:"rate,omitempty"`
	ReportsPerSec float64 `json:"reports_per_second"` // verified lately
	SecondsLeft   float64 `json:"seconds_left,omitempty"`
	// noised shares of released batches, which can be sealed again
	KeptShares uint64 `json:"kept_shares,omitempty"`
	// how often a share was, for the collector's key was another by then
	Resealed uint64 `json:"resealed,omitempty"`
	// reports finished here: aggregated or rejected
	Done           uint64 `json:"done"`
	Total          uint64 `json:"total"` // reports known here
	Peer           *Peer  `json:"peer,omitempty"`
	PeerUnreadable string `json:"peer_unreadable,omitempty"` // why the helper could not be asked
	// the helper does not report progress: it is another implementation's
	PeerSilent bool `json:"peer_silent,omitempty"`
	// Damaged is replay protection that is to be mended.
	Damaged []Damaged `json:"damaged,omitempty"`
	// Agreement is how this aggregator stands to the other.
	Agreement *Agreement `json:"agreement,omitempty"`
	// Closed is how the task was closed before its time; nil where it was not.
	Closed *ClosedTask `json:"closed,omitempty"`
	// RetiresAt is when the task is retired: results can be asked for until then. Zero
	// where it never is, or was.
	RetiresAt time.Time `json:"retires_at,omitzero"`
}

// Counts are a task's ledger of reports.
type Counts struct {
	Acknowledged uint64 `json:"acknowledged"`
	Waiting      uint64 `json:"waiting"`
	// of those that wait: still in the inbox
	Unsorted   uint64 `json:"unsorted,omitempty"`
	Aggregated uint64 `json:"aggregated"`
	Collected  uint64 `json:"collected"`
	// after the acknowledgement, by report error
	Rejected map[string]uint64 `json:"rejected,omitempty"`
	Refused  map[string]uint64 `json:"refused,omitempty"` // at upload, by report error
}

// Batch is one batch that has reports.
type Batch struct {
	Start    uint64 `json:"start"`              // time-interval: in units of the time precision
	ID       string `json:"batch_id,omitempty"` // leader-selected
	State    string `json:"state"`              // open, draining or closed
	Verified uint64 `json:"verified"`
	Waiting  uint64 `json:"waiting"`
	// Kept says that it was released in one view, and its sum is kept for others.
	Kept bool `json:"kept,omitempty"`
}

// Wait is a collection job that is not ready.
type Wait struct {
	Start    uint64    `json:"start,omitempty"`
	Duration uint64    `json:"duration,omitempty"`
	Frozen   bool      `json:"frozen"`
	Why      string    `json:"why"`
	Next     time.Time `json:"next,omitzero"`
}

// Stuck is work that keeps failing or was set aside.
type Stuck struct {
	Reports     uint64    `json:"reports"`
	Attempts    int       `json:"attempts"`
	Quarantined bool      `json:"quarantined"`
	Parked      bool      `json:"parked,omitempty"` // it waits for the operator; nothing of it is lost
	Why         string    `json:"why"`
	Next        time.Time `json:"next,omitzero"`
}

// Damaged is a file of the replay protection that cannot be read, or is not what was
// written. Reports whose ids may be in it wait.
type Damaged struct {
	IDs   uint64 `json:"ids"`
	Why   string `json:"why"`
	Tried string `json:"tried"` // how the repair stands
}

// Held is a batch that is not released because what came of it cannot be honest, or not
// of enough devices.
type Held struct {
	Verdict  Verdict `json:"verdict"` // never AsExpected
	Start    uint64  `json:"start"`   // of the reports' times, in units of the time precision
	Duration uint64  `json:"duration"`
	Reports  uint64  `json:"reports"`           // Forged: the credentials that were shown
	Expected uint64  `json:"expected"`          // TooMany: at most, in that time, dummies included
	Senders  uint64  `json:"senders,omitempty"` // TooFew: that the guarantee counts on
	Devices  *uint64 `json:"devices,omitempty"` // that have credentials, where they are counted
	// Says is who says that there are so many Devices: leader, helper or attester, in the
	// log; empty for the issuer beside this aggregator.
	Says string `json:"says,omitempty"`
	// Reports and Expected are of the fullest round of the batch
	OneRound bool    `json:"one_round,omitempty"`
	Epsilon  float64 `json:"half_honest_epsilon,omitempty"` // left to the others if half of a batch is an attacker's; 0: not known
	Delta    float64 `json:"half_honest_delta,omitempty"`
}

// Why is the reason in words.
func (h Held) Why() string {
	switch {
	case h.Verdict == Forged:
		said := "this aggregator's issuer has given out"
		switch h.Says {
		case "":
		case "attester":
			said = "as the log says the attester let ask"
		default:
			said = "as the log says the " + h.Says + "'s issuer has given out"
		}
		return fmt.Sprintf("a batch is held: %d credentials were shown in a round, and %s %d: somebody makes them", h.Reports, said, *h.Devices)
	case h.Verdict == TooFew && h.Devices != nil && *h.Devices < h.Senders:
		return fmt.Sprintf("a batch of %d reports is held: %d devices have credentials, and the guarantee counts on %d", h.Reports, *h.Devices, h.Senders)
	case h.Verdict == TooFew:
		return fmt.Sprintf("a batch of %d reports is held: of %d devices, as the guarantee counts on, more would have come whatever their answers", h.Reports, h.Senders)
	}
	left := "what is left if an attacker sent half of a batch is not known"
	if h.Epsilon > 0 {
		left = fmt.Sprintf("if an attacker sent half of a batch, the others are left with epsilon %.4g at delta %.3g", h.Epsilon, h.Delta)
	}
	what := fmt.Sprintf("a batch of %d reports", h.Reports)
	if h.OneRound {
		what = fmt.Sprintf("a batch with %d reports of one round", h.Reports)
	}
	expected := fmt.Sprintf("the %d expected", h.Expected)
	if h.Devices != nil {
		expected += fmt.Sprintf(" of %d devices with credentials", *h.Devices)
	}
	return fmt.Sprintf("%s is held, more than twice %s; %s", what, expected, left)
}

// do is what to do about it.
func (h Held) do() string {
	switch {
	case h.Verdict == Forged && h.Says != "":
		return "nothing of the task can be believed: find out whether the " + h.Says + " said too little, who has an issuer's key, or whether a register was put back; then publish " +
			"the recipe anew, with new keys of the issuers (starling key issuer)"
	case h.Verdict == Forged:
		return "nothing of the task can be believed: find out who has the issuer's key, or whether its register was put back; then publish the recipe anew, " +
			"with new keys of the issuers (starling key issuer)"
	case h.Verdict == TooFew:
		return "have more devices take part; what comes later for the batch releases it, and starling collect --skip goes on without it. " +
			"Nothing else does: the number is part of the promise to the clients"
	case h.Devices != nil:
		return "find out who sent them: each has a credential, so that the attester let too many devices in, or they toss no coins. It is not released"
	}
	return "find out who sent them; to release the batch, raise what this aggregator expects in its configuration and start it again"
}

// Peer is how far the helper is.
type Peer struct {
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
	Held  int    `json:"held,omitempty"` // batches that it holds
	// Damaged is how many files of its replay protection are damaged, and Giving why the
	// leader could not mend them.
	Damaged int    `json:"damaged,omitempty"`
	Giving  string `json:"giving,omitempty"`
}

// Handler serves what get returns, for a local listener.
func Handler(get func(*http.Request) (*Status, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
			return
		}
		s, err := get(r)
		if err != nil {
			http.Error(w, "status unavailable: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.Encode(s)
	})
}

// A Reason is one thing that blocks a task, and what to do about it.
type Reason struct {
	Blocks string `json:"blocks"`
	Do     string `json:"do"`
}

// Why names what keeps a task from its result, most urgent first; empty means that
// nothing does.
func Why(t *Task) []Reason {
	if t.Phase == Retired {
		return nil // nothing will ever come of it
	}
	var rs []Reason
	add := func(do, format string, a ...any) { rs = append(rs, Reason{fmt.Sprintf(format, a...), do}) }
	for _, s := range t.Stops {
		// else it will be at once
		if a := t.Agreement; s.From == FromHold || a == nil || a.State != NotCompared || a.Failed != "" {
			add(s.Do, "%s", s.Why)
		}
	}
	for _, h := range t.Held {
		add(h.do(), "%s", h.Why())
	}
	if r := t.Rate; r != nil && r.Verdict == TooMany && len(t.Held) == 0 {
		add(against, "the last batch had more reports than coins of honest devices explain: %s", r.Words())
	}
	if t.Peer != nil && t.Peer.Held > 0 {
		add("ask the helper's operator, whose status says why", "the helper holds batches, for too many reports or too few (%d)", t.Peer.Held)
	}
	for _, d := range t.Damaged {
		add(repair, "the replay protection has a damaged file of %d report ids (%s), and reports that may be among them wait: %s", d.IDs, d.Why, d.Tried)
	}
	if t.Peer != nil && t.Peer.Damaged > 0 {
		how := "this leader brings the report ids by itself"
		if t.Peer.Giving != "" {
			how = t.Peer.Giving
		}
		add(repair, "the helper's replay protection has %d damaged files, and reports that may be among them wait: %s", t.Peer.Damaged, how)
	}
	for _, s := range t.Stuck {
		if s.Quarantined {
			add("read the reason; the reports count as rejected, and the batch may differ from the helper's",
				"%d reports were set aside: %s", s.Reports, s.Why)
		}
	}
	rs = append(rs, kept(t)...)
	for _, s := range t.Stuck {
		if !s.Quarantined && !s.Parked {
			add(advice(s.Why), "a job of %d reports failed %d times: %s", s.Reports, s.Attempts, s.Why)
		}
	}
	if p := t.Peer; p != nil && p.Done < t.Counts.Aggregated {
		add("have the helper's operator stop it, put the newest state of its data directory back and start it; where that is gone, what was not released "+
			"cannot be: publish the recipe anew, which makes another task (docs/recovery.md)",
			"the helper knows of %d finished reports, and this leader has verified %d with it: the helper's store was lost, replaced or put back", p.Done, t.Counts.Aggregated)
	}
	if t.PeerUnreadable != "" {
		add(Reach(t.PeerUnreadable, "check that the helper runs and that both sides hold the same token"), "the helper does not tell how far it is: %s", t.PeerUnreadable)
	}
	rs = append(rs, mostRejected(&t.Counts)...)
	verified := uint64(0)
	for _, b := range t.Batches {
		if b.State != "closed" {
			verified += b.Verified
		}
	}
	for _, c := range t.Collections {
		add(advice(c.Why), "a collection waits: %s", c.Why)
	}
	switch {
	case t.Phase == NotStarted:
		add("wait for the task's interval to begin", "the task has not started")
	case t.Closed != nil && t.Counts.Waiting == 0 && (verified < t.MinBatch || t.Counts.Acknowledged == 0 && t.Total == 0):
		add("results that were released can be asked for until the task is retired, and nothing more comes of it; starling recipe again makes another of the same recipe",
			"%s, with %d verified reports, of a minimum of %d", t.Closed.said(), verified, t.MinBatch)
	case t.Counts.Acknowledged == 0 && t.Total == 0 && len(t.Counts.Refused) > 0:
		add("compare the clients' task configuration, keys and clocks with this aggregator's",
			"every report was refused at upload: %s", reasons(t.Counts.Refused))
	case t.Counts.Acknowledged == 0 && t.Total == 0:
		add("send reports", "no report has arrived")
	case t.Counts.Waiting > 0:
		add("wait; status shows the rate and the time left", "%d acknowledged reports are still to be verified", t.Counts.Waiting)
	case t.Phase == Over && verified > 0 && verified < t.MinBatch:
		add("nothing can be released: the minimum is part of the promise to the clients",
			"the task is over with %d verified reports, below the minimum of %d", verified, t.MinBatch)
	case verified < t.MinBatch && (verified > 0 || t.Counts.Collected == 0):
		do := "send more reports"
		if len(t.Counts.Rejected) > 0 {
			do += "; see why some were rejected: " + reasons(t.Counts.Rejected)
		}
		add(do, "%d verified reports, below the minimum of %d", verified, t.MinBatch)
	case verified >= t.MinBatch && len(t.Collections) == 0:
		add("starling collect", "nobody has asked for the %d verified reports", verified)
	}
	return rs
}

// said is the closing in words.
func (c *ClosedTask) said() string {
	return fmt.Sprintf("the task was closed at %s by %s: %s", c.At.Format(time.RFC3339), c.By, c.Why)
}

// repair is what to do about damaged replay protection.
const repair = "it is mended by itself from the other aggregator's report ids; starling repair leader.toml tries at once, and docs/recovery.md says " +
	"what is left where that fails for good"

// waitsForStop is in what a leader says of a collection that waits for a [Stop] to end.
const waitsForStop = "nothing of the task is released at the moment"

// WaitsForStop says what a collection waits for while a [Stop] keeps its task from
// releases.
func WaitsForStop() string { return waitsForStop }

// manyJudged is from how many judged reports on most of them being rejected is worth a
// word.
const manyJudged = 100

// mostRejected says so where most acknowledged reports were rejected, and who has to look
// at what. A sender of reports can bring all of that about, so it stops nothing.
func mostRejected(c *Counts) []Reason {
	sum := uint64(0)
	for _, n := range c.Rejected {
		sum += n
	}
	judged := sum + c.Aggregated
	if judged < manyJudged || 2*sum <= judged {
		return nil
	}
	do := "compare what the two aggregators hold of the task (starling doctor at each): recipe, configuration, version"
	switch proofs, sealed := c.Rejected["vdaf_verify_error"], c.Rejected["hpke_decrypt_error"]+c.Rejected["hpke_unknown_config_id"]; {
	case 2*proofs > sum:
		do = "compare the verification keys of the two aggregators (starling doctor at each): where they differ, give both the same file in verify_keys"
	case 2*sealed > sum:
		do = "see at each aggregator (starling status) whether it still has the keys that clients were given, and put keys that were lost back from where they went; " +
			"compare the recipes of the two (starling doctor at each)"
	}
	return []Reason{{fmt.Sprintf("%d of %d acknowledged reports were rejected: %s", sum, judged, reasons(c.Rejected)),
		do + "; where nothing differs, strangers send what does not hold, which costs work and no more: give the task an upload token, or limit who reaches the leader"}}
}

// kept tells of the reports that wait for a person, whose jobs were refused as a whole: in
// one line where the task is held for them.
func kept(t *Task) (rs []Reason) {
	held := slices.ContainsFunc(t.Stops, func(s Stop) bool { return s.From == FromHold })
	reports := uint64(0)
	for _, s := range t.Stuck {
		if s.Parked {
			reports += s.Reports
			rs = append(rs, Reason{fmt.Sprintf("%d acknowledged reports are kept until you decide: %s", s.Reports, s.Why), Decide(t.ID)})
		}
	}
	if held && len(rs) > 1 {
		return []Reason{{fmt.Sprintf("%d acknowledged reports of %d jobs are kept until you decide", reports, len(rs)), Decide(t.ID)}}
	}
	return rs
}

// Decide is what a person does about a task whose helper has refused whole jobs.
func Decide(task string) string {
	return "have the two operators find out which side is wrong (starling doctor at each) and mend it; then " +
		"starling task resume leader.toml --task " + task + ": the same requests are sent. " +
		"starling task drop gives the reports up, after which their batch may differ from the helper's"
}

// Reach is what to do about a helper that cannot be reached: about certificates where why
// speaks of them, and else otherwise.
func Reach(why, otherwise string) string {
	switch {
	case strings.Contains(why, "take our certificate"):
		return "have tls_certificate in [helper] of leader.toml be one that the helper's tls_client_ca has signed, and that has not ended"
	case strings.Contains(why, "its certificate"):
		return "have tls_ca in [helper] of leader.toml name who signed the helper's certificate; that one has to be for its name, and not ended"
	}
	return otherwise
}

// advice is what to do about a reason in the words of this package and of the leader.
func advice(why string) string {
	for _, a := range []struct{ has, do string }{
		{"replay protection", repair},
		{waitsForStop, "see what is said of the task itself"},
		{"status 412", "wait; leader and helper are compared anew"},
		{"status 401", "compare the bearer token at both aggregators"},
		{"unrecognizedTask", "provision the same task at the helper"},
		{"invalidMessage", "compare versions and task configurations of the two aggregators"},
		{"batchMismatch", "the aggregators counted different reports; run doctor on both"},
		{"the round is not over", "wait; then it is released by itself"},
		{"this leader was away", "wait; nothing is wrong"},
		{"fewer than", "send more reports; what came later than the batch asked for is not in it: starling collect --restart asks for all up to now, or where rounds are released alone, starling collect --skip for the next ones"},
		{"did not answer", Reach(why, "check that the helper runs and can be reached")},
		{"newer version of this program", "start the newer version, which wrote it, until nothing waits"},
		{"until you decide", "decide: starling task resume leader.toml, or starling task drop leader.toml"},
		{"cannot be sorted", "see to the disk: it is tried again by itself; docs/recovery.md says how to go on without the log"},
		{"still being written", "wait; if it lasts, the disk of the leader does not answer"},
		{"still to be verified", "wait; status shows the rate and the time left"},
		{"not finished", "wait; the helper works on it"},
		{"not provisioned", "add the task to the configuration again"},
	} {
		if strings.Contains(why, a.has) {
			return a.do
		}
	}
	return "wait; it is tried again by itself"
}

// reasons lists counts by reason, largest first.
func reasons(m map[string]uint64) string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if m[a] != m[b] {
			return int(min(max(int64(m[b])-int64(m[a]), -1), 1))
		}
		return strings.Compare(a, b)
	})
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%s (%d)", k, m[k])
	}
	return strings.Join(keys, ", ")
}
