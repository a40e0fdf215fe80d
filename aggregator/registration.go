package aggregator

import (
	"context"
	"fmt"

	"github.com/starling-agg/starling/dap"
)

// A Form says what the bytes are that a task was made of.
type Form uint8

// Forms, as stores have them.
const (
	RecipeFile    Form = 1 // a recipe, and its certificate
	Configuration Form = 2 // a TaskConfiguration that others made
)

// A Source says how a task came.
type Source uint8

// Sources, as stores have them.
const (
	Imported Source = 1 // it stood in the configuration
	Typed    Source = 2 // an operator added it
	InBand   Source = 3 // a leader brought it
)

// A Provision is a task, and what it was made of, which is what the store keeps of it.
type Provision struct {
	Task Task
	Form Form
	Made []byte
	// Terms is what this aggregator adds to Made, of which Task follows. They name files of
	// secrets and have none. Two adds are the same only if theirs are.
	Terms  []byte
	Tenant string // empty for the aggregator's own tasks
	Source Source
	By     string // who adds it
	// Policy is that of a task that comes in band: what it says of how many there may be
	// holds. Else nil.
	Policy *TaskPolicy
}

// A Provider makes a task of what a store has of it, reading the files of secrets that the
// terms name.
type Provider func(ctx context.Context, form Form, made, terms []byte) (Task, error)

// A TaskFault says why an aggregator does not take a task.
type TaskFault string

// Faults of a task that is to be added.
const (
	TaskInvalid  TaskFault = "not a valid task"
	TaskOfOthers TaskFault = "a task of other parties"
	TaskOver     TaskFault = "over"
	TaskClosed   TaskFault = "closed"
	TaskDiffers  TaskFault = "there with other terms"
	TaskTooLarge TaskFault = "too large"
	TaskUnsigned TaskFault = "of a signing key that is not here"
	TaskUnsealed TaskFault = "of a KEM that is not here"
	TaskUnknown  TaskFault = "not in the store"
	TaskTooMany  TaskFault = "one too many"
)

// A TaskError refuses a task that is to be added; nothing has changed.
type TaskError struct {
	Fault TaskFault
	Task  dap.TaskID // zero where the bytes tell none
	// Detail says what is wrong and what was wanted, in words.
	Detail string
}

func (e *TaskError) Error() string {
	if e.Task == (dap.TaskID{}) {
		return fmt.Sprintf("the task is %s: %s", e.Fault, e.Detail)
	}
	return fmt.Sprintf("task %v is %s: %s", e.Task, e.Fault, e.Detail)
}
