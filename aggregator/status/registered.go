package status

import (
	"encoding/json"
	"net/http"
	"time"
)

// Paths of the registry of tasks on the local listener. Each takes a POST of JSON, with the
// operator's token.
const (
	AddTaskPath   = "/task/add"   // a NewTask, answered by an Added
	ListTasksPath = "/task/list"  // no body, answered by a list of Registered
	CloseTaskPath = "/task/close" // a Closing, answered by a Closed
	ShowTaskPath  = "/task/show"  // a Named, answered by a RegisteredTask
	AmendTaskPath = "/task/amend" // a NewTask of one that is there, answered by an Amended
	// GiveUpTaskPath closes a task too, and gives up its reports that wait: a path of its own,
	// so that a leader which cannot do that refuses it.
	GiveUpTaskPath = "/task/give-up" // a Closing, answered by a Closed
)

// RegistryPaths are all of these. A request that is refused there gets the reason in words.
func RegistryPaths() []string {
	return []string{AddTaskPath, ListTasksPath, CloseTaskPath, ShowTaskPath, AmendTaskPath, GiveUpTaskPath}
}

// A NewTask is a task that is to be added: the bytes that it is made of, and the terms,
// which name files of secrets and have none.
type NewTask struct {
	Form  uint8           `json:"form"` // 1: a recipe's file, 2: a TaskConfiguration
	Made  []byte          `json:"made"`
	Terms json.RawMessage `json:"terms"`
	By    string          `json:"by"`
}

// Added is a task that is there now.
type Added struct {
	Task string `json:"task"`
	New  bool   `json:"new"` // false where the same one was there
}

// A Registered is a task as the registry has it.
type Registered struct {
	Task   string      `json:"task"`
	Form   string      `json:"form"`   // "recipe" or "configuration"
	Source string      `json:"source"` // "imported", "typed" or "in band"
	By     string      `json:"by"`
	Added  time.Time   `json:"added"`
	Begins time.Time   `json:"begins,omitzero"`
	Ends   time.Time   `json:"ends,omitzero"`
	Sum    string      `json:"sha256"` // of what it was made of
	Closed *ClosedTask `json:"closed,omitempty"`
}

// A Named task is one of those that are there.
type Named struct {
	Task string `json:"task"`
}

// A RegisteredTask is all that the registry has of a task.
type RegisteredTask struct {
	Registered
	Number uint8           `json:"form_number"` // as in NewTask
	Made   []byte          `json:"made,omitempty"`
	Terms  json.RawMessage `json:"terms,omitempty"`
}

// Amended is a task that has other terms. Now is false where it was in use under the old
// ones: those that are new count from the next start on.
type Amended struct {
	Task string `json:"task"`
	Now  bool   `json:"now"`
}

// A ClosedTask is how a task was closed.
type ClosedTask struct {
	At  time.Time `json:"at"`
	By  string    `json:"by"`
	Why string    `json:"why"`
}

// A Closing is a task that is to be closed.
type Closing struct {
	Task string `json:"task"`
	By   string `json:"by"`
	Why  string `json:"why"`
}

// Closed is what a closing means for the reports of its task.
type Closed struct {
	ClosedTask
	Dropped uint64 `json:"dropped"` // were given up by this request
	Waiting uint64 `json:"waiting"` // are verified now
	Ready   uint64 `json:"ready"`   // can be collected until the task is retired
	Short   uint64 `json:"short"`   // are of batches that have not reached their minimum
}

// maxNewTask bounds a request that adds a task, in bytes: base64 of the largest file.
const maxNewTask = 4 << 20

// ReadNewTask reads a request that adds a task.
func ReadNewTask(r *http.Request) (t NewTask, err error) {
	err = read(r, maxNewTask, &t)
	return t, err
}

// ReadNamed reads a request about one task.
func ReadNamed(r *http.Request) (n Named, err error) {
	err = read(r, maxDecision, &n)
	return n, err
}

// ReadClosing reads a request that closes one.
func ReadClosing(r *http.Request) (c Closing, err error) {
	err = read(r, maxDecision, &c)
	return c, err
}
