package status

import "fmt"

// A Verdict is how what came of a batch stands to what its recipe, and the credentials
// that were given out, predict.
type Verdict string

// The verdicts.
const (
	// AsExpected: honest devices may well draw so.
	AsExpected Verdict = "as-expected"
	// TooFew: fewer devices have decided, or have credentials, than the guarantee counts on.
	// The batch is held, while more may come.
	TooFew Verdict = "too-few"
	// TooMany: more than are expected. The batch is held where half may be an attacker's.
	TooMany Verdict = "too-many"
	// Forged: more credentials were shown than were given out. The batch is held for good.
	Forged Verdict = "forged"
)

// Verdicts lists all.
func Verdicts() []Verdict { return []Verdict{AsExpected, TooFew, TooMany, Forged} }

// A Rate is a batch that was compared, and what came of that.
type Rate struct {
	Start    uint64  `json:"start"` // of the reports' times, in units of the time precision
	Duration uint64  `json:"duration"`
	Reports  uint64  `json:"reports"`
	Senders  uint64  `json:"senders,omitempty"` // that the guarantee counts on, where devices are sampled
	Devices  *uint64 `json:"devices,omitempty"` // that have credentials, where they are counted
	Verdict  Verdict `json:"verdict"`
}

// Words are the comparison in words.
func (r *Rate) Words() string {
	of := fmt.Sprintf("%d reports", r.Reports)
	if r.Devices != nil {
		of += fmt.Sprintf(", of %d devices with credentials", *r.Devices)
	}
	if r.Senders > 0 {
		of += fmt.Sprintf(", where the guarantee counts on %d", r.Senders)
	}
	return map[Verdict]string{AsExpected: "as expected", TooFew: "too few", TooMany: "too many", Forged: "forged"}[r.Verdict] + ": " + of
}

// against is what to do about more reports than honest devices draw, where they are not
// so many that their batch was held.
const against = "nothing is held for it; find out whether devices send whenever they can: a version of the client that tosses no coins, " +
	"or many of the attester's codes in one hand"
