package aggregator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/dap"
)

// A TaskPolicy says of one leader that it may bring tasks to a helper, in band
// (draft-ietf-ppm-dap-taskprov-04, package taskprov), and within which limits. Anybody may
// have made such a task: the leader chooses all that is not limited here. No noise is added
// to their results, and no guarantee is claimed.
type TaskPolicy struct {
	// Name is who adds the tasks, as the registry has it. Required; no other policy has it.
	Name string
	// Leader is the base URL of the leader, byte for byte as configurations have it.
	// Required; no other policy has it.
	Leader string
	// Version is the draft of DAP that the tasks speak, and Framing how they are advertised
	// and how the leader frames what it says.
	Version dap.Version
	Framing dap.Framing
	// Token is the bearer token with which the leader comes for a task. Required.
	Token func(dap.TaskID) (string, error)
	// Terms are those of each task, of which [Options.Provide] makes it. Required.
	Terms []byte

	// VDAFs are the types that tasks may have. Required, at least one.
	VDAFs []uint32
	// MinBatch is the least that a task's minimum batch size may be. Required, at least 1.
	MinBatch uint64
	// MinPrecision is the least that a task's time precision may be, in seconds: each unit
	// of it is a batch. Required, at least 1.
	MinPrecision dap.TimePrecision
	// MaxReport bounds the public share and the two input shares of a report, in bytes
	// before they are sealed: it is the measure of a vector's length. Required.
	MaxReport int
	// MaxWindow is how long a task's window may be, and how far ahead it may end; a task
	// without a window is refused. Required.
	MaxWindow time.Duration
	// Tasks is how many tasks of the leader that it brought may be live at one time, and
	// TasksPerHour how many new ones it may bring in any hour. Required.
	Tasks, TasksPerHour int
}

// Validate says what is missing or cannot be.
func (p *TaskPolicy) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("aggregator: task policy %q: %s", p.Name, fmt.Sprintf(format, args...))
	}
	switch _, err := dap.BaseURL([]byte(p.Leader)); {
	case p.Name == "" || len(p.Name) > 64:
		return bad("a name of 1 to 64 bytes is required")
	case err != nil:
		return bad("%v", err)
	case p.Token == nil || len(p.Terms) == 0:
		return bad("token and terms are required")
	case len(p.VDAFs) == 0:
		return bad("no VDAF is allowed")
	case p.MinBatch < 1 || p.MinPrecision < 1:
		return bad("the least batch size and time precision are 1 or more")
	case p.MaxReport < 1 || p.MaxWindow <= 0:
		return bad("the largest report and the longest window are more than nothing")
	case p.Tasks < 1 || p.TasksPerHour < 1:
		return bad("at least one task, and one an hour")
	}
	return (dap.Dialect{Version: p.Version, Framing: p.Framing}).Validate()
}

// Allows is nil where the policy takes a task of that configuration now, but for how many
// there are; else it says for the leader why not.
func (p *TaskPolicy) Allows(c *dap.TaskConfiguration, now time.Time) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if ofRecipe(c) {
		return errors.New("it is a recipe's task, by its task_info, and comes with the recipe alone")
	}
	if !slices.Contains(p.VDAFs, c.VDAFType) {
		return fmt.Errorf("VDAF type %#x is not taken", c.VDAFType)
	}
	if c.MinBatchSize < p.MinBatch {
		return fmt.Errorf("a minimum batch size of %d, and the least that is taken is %d", c.MinBatchSize, p.MinBatch)
	}
	if c.TimePrecision < p.MinPrecision {
		return fmt.Errorf("a time precision of %d s, and the least that is taken is %d", c.TimePrecision, p.MinPrecision)
	}
	if err := p.allowsWindow(c, now); err != nil {
		return err
	}
	v, err := c.VDAF() // its parameters bound the sizes, which cost nothing
	if err != nil {
		return err
	}
	s := v.Sizes()
	if size := int64(s.Public) + int64(s.LeaderInput) + int64(s.HelperInput); size > int64(p.MaxReport) {
		return fmt.Errorf("a report has shares of %d bytes, and the most that is taken is %d", size, p.MaxReport)
	}
	return nil
}

func (p *TaskPolicy) allowsWindow(c *dap.TaskConfiguration, now time.Time) error {
	iv, ok := c.Interval()
	if !ok {
		return errors.New("it has no window (task_interval)")
	}
	last, _ := iv.End() // the configuration is valid
	begin, err := c.TimePrecision.Begin(iv.Start)
	if err != nil {
		return err
	}
	end, err := c.TimePrecision.Begin(last)
	if err != nil {
		return err
	}
	switch {
	case !end.After(now):
		return fmt.Errorf("it ended at %s", end.Format(time.RFC3339))
	case end.Sub(now) > p.MaxWindow, end.Sub(begin) > p.MaxWindow:
		return fmt.Errorf("its window is longer than %v, or ends later than that from now", p.MaxWindow)
	}
	return nil
}
