package deploy

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/taskprov"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/vdaf"
)

// A Taskprov lets a leader bring tasks to a helper with its requests, in band, within
// limits (draft-ietf-ppm-dap-taskprov-04). Such tasks have no recipe, and so no noise and
// no guarantee.
type Taskprov struct {
	// Name is who starling task list says brought a task. Required, another in each.
	Name string `toml:"name"`
	// Leader is the base URL of the leader, byte for byte as the configurations of its
	// tasks have it. Default: that of the leader's invitation. Required without an
	// Agreement, another in each.
	Leader string `toml:"leader"`
	// DAP is the draft that the tasks speak, "dap-18" or "dap-19". Default "dap-18".
	DAP dap.Version `toml:"dap"`
	// Framing is "janus" where the leader frames and advertises as Janus does. Default
	// "standard".
	Framing dap.Framing `toml:"framing"`
	// VerifyKeyInit is the file of the secret that leader and helper share for all tasks,
	// 64 hexadecimal digits, from which each task's verification key follows. Required,
	// unless there is an Agreement; so are the two that follow.
	VerifyKeyInit service.Secret `toml:"verify_key_init"`
	// PeerToken is the token with which the leader comes to the helper.
	PeerToken service.Secret `toml:"peer_token"`
	// CollectorHPKE is the public key of the collector of all these tasks.
	CollectorHPKE service.Path `toml:"collector_hpke"`
	// VDAFs are the VDAFs that tasks may use, such as "Prio3Count". Required, at least one.
	VDAFs []VDAF `toml:"vdafs"`
	// MinBatchSize is the least that the minimum batch size of a task may be. Default 100.
	MinBatchSize uint64 `toml:"min_batch_size"`
	// MinTimePrecision is the least that a task's time precision may be. Default 1m.
	MinTimePrecision service.Duration `toml:"min_time_precision"`
	// MaxReportBytes is how long the shares of a report may be together. Default 65536.
	MaxReportBytes int `toml:"max_report_bytes"`
	// MaxWindow is how long the window of a task may be, and how far ahead it may end; one
	// without a window is not taken. Default 2160h.
	MaxWindow service.Duration `toml:"max_window"`
	// Tasks is how many tasks that the leader brought may be live at one time. Default
	// 1000.
	Tasks int `toml:"tasks"`
	// TasksPerHour is how many new ones the leader may bring in any hour. Default 100.
	TasksPerHour int `toml:"tasks_per_hour"`
}

// A VDAF is a vdaf_type, by its name.
type VDAF uint32

var vdafNames = map[string]VDAF{
	"Prio3Count": VDAF(dap.TypePrio3Count), "Prio3Sum": VDAF(dap.TypePrio3Sum), "Prio3SumVec": VDAF(dap.TypePrio3SumVec),
	"Prio3Histogram": VDAF(dap.TypePrio3Histogram), "Prio3MultihotCountVec": VDAF(dap.TypePrio3MultihotCountVec),
	"Prio3L1BoundSum": VDAF(dap.TypePrio3L1BoundSum),
}

// UnmarshalText reads the name.
func (v *VDAF) UnmarshalText(b []byte) error {
	of, ok := vdafNames[string(b)]
	if !ok {
		return fmt.Errorf("%q is none of %s", b, strings.Join(slices.Sorted(maps.Keys(vdafNames)), ", "))
	}
	*v = of
	return nil
}

// validateTaskprov says what is wrong with the policies by themselves.
func (a *Aggregator) validateTaskprov() error {
	var f Faults
	f.If(len(a.Taskprov) > 0 && a.Role != dap.RoleHelper, "taskprov: only a helper takes tasks in band; a leader advertises those of its own that say so")
	for i := range a.Taskprov {
		f.Add(fmt.Sprintf("taskprov[%d].", i), a.Taskprov[i].validate(a.Agreement.used()))
	}
	return f.All()
}

func (p *Taskprov) validate(agreed bool) error {
	var f Faults
	f.If(p.Name == "", "name: required")
	f.If(p.Leader == "" && !agreed, "leader: required without an agreement")
	f.If(p.VerifyKeyInit == "" && !agreed, "verify_key_init: required without an agreement")
	f.If(p.PeerToken == "" && !agreed, "peer_token: required without an agreement")
	f.If(p.CollectorHPKE == "" && !agreed, "collector_hpke: required without an agreement")
	f.If(len(p.VDAFs) == 0, "vdafs: at least one is required: which tasks are taken is for this helper to say")
	f.Add("", negatives(*p).All())
	return f.All()
}

// task is what all tasks of the policy have, but for their configurations.
func (p *Taskprov) task() *Task {
	return &Task{
		DAP: p.DAP, Framing: p.Framing, VerifyKeyInit: p.VerifyKeyInit, PeerToken: p.PeerToken, CollectorHPKE: p.CollectorHPKE,
	}
}

// policy reads the files of a policy.
func (p *Taskprov) policy(a *Aggregator, agreed *shared) (out aggregator.TaskPolicy, err error) {
	out = aggregator.TaskPolicy{
		Name: p.Name, Leader: p.Leader, Version: p.DAP, Framing: p.Framing,
		MinBatch: cmp.Or(p.MinBatchSize, 100), MinPrecision: dap.TimePrecision(cmp.Or(time.Duration(p.MinTimePrecision), time.Minute) / time.Second),
		MaxReport: cmp.Or(p.MaxReportBytes, 64<<10), MaxWindow: cmp.Or(time.Duration(p.MaxWindow), 90*24*time.Hour),
		Tasks: cmp.Or(p.Tasks, 1000), TasksPerHour: cmp.Or(p.TasksPerHour, 100),
	}
	for _, v := range p.VDAFs {
		out.VDAFs = append(out.VDAFs, uint32(v))
	}
	var f Faults
	if agreed != nil {
		out.Leader = cmp.Or(out.Leader, agreed.other.URL)
		f.If(out.Leader != agreed.other.URL, "leader: it is %q, and the invitation is that of %q", out.Leader, agreed.other.URL)
		out.Token = agreed.peer.Token
	}
	if p.VerifyKeyInit != "" {
		_, err = readSeed(p.VerifyKeyInit)
		f.Add("verify_key_init: ", err)
	}
	if p.PeerToken != "" {
		token, err := p.PeerToken.Text()
		f.Add("peer_token: ", err)
		out.Token = func(dap.TaskID) (string, error) { return token, nil }
	}
	_, err = p.task().readCollector(nil, agreed)
	f.Add("collector_hpke: ", err)
	out.Terms, err = a.terms(p.task())
	f.Add("", err)
	if len(f) == 0 {
		f.Add("", out.Validate())
	}
	return out, f.All()
}

// readSeed reads a secret of which verification keys follow.
func readSeed(file service.Secret) ([]byte, error) {
	text, err := file.Text()
	if err != nil {
		return nil, err
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != taskprov.SeedSize {
		return nil, fmt.Errorf("%s does not hold %d hexadecimal digits", file, 2*taskprov.SeedSize)
	}
	return b, nil
}

// seedKeyID is the id of a key that follows from a seed: what leaders ask for that number
// no keys.
const seedKeyID = 0

// keyOfSeed gives a task the verification key that follows from the seed of its leader and
// helper.
func (t *Task) keyOfSeed(out *aggregator.Task) error {
	seed, err := readSeed(t.VerifyKeyInit)
	if err != nil {
		return err
	}
	key, err := dap.DeriveVerifyKey(seed, out.ID)
	if err == nil {
		out.VerifyKeys = map[uint8][vdaf.VerifyKeySize]byte{seedKeyID: key}
	}
	return err
}

// validateAdvertised says what is wrong with a task, of a configuration or not, that is
// brought in band or has a seed.
func (t *Task) validateAdvertised(role dap.Role, foreign bool) error {
	switch {
	case t.VerifyKeyInit != "" && len(t.VerifyKeys) > 0:
		return errors.New("verify_key_init: the task has verify_keys")
	case t.Advertise && role != dap.RoleLeader:
		return errors.New("advertise: the leader advertises a task")
	case t.Advertise && (!foreign || t.ID != ""):
		return errors.New("advertise: for a task of a configuration, and without an id of its own; a recipe's task comes with its recipe")
	}
	return nil
}
