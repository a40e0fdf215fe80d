package releases

// WaitingHeader is the field in which a leader tells a collector what a question waits for
// that is not answered yet: a [Waiting]. A leader that does not know leaves it out.
const WaitingHeader = "Starling-Waiting"

// Waiting is what a collection waits for: a closed set.
type Waiting string

// Events that collections wait for. Numbers are never told: nobody may know how many
// reports of less than a batch came.
const (
	// ForRound: the time that was asked for, or its grace, is not over.
	ForRound Waiting = "round"
	// ForReports: it is over, where the task has rounds, fewer reports came than are
	// released about, and none of the task is still to be verified.
	ForReports Waiting = "reports"
)

// ParseWaiting reads the field; an unknown value is empty.
func ParseWaiting(text string) Waiting {
	if w := Waiting(text); w == ForRound || w == ForReports {
		return w
	}
	return ""
}
