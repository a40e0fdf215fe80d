package dap

import "fmt"

// A Version is a draft of DAP. A task speaks one, which all its parties agree on as they
// do on its configuration, although no message names it: a party that takes a task for
// one of another draft opens nothing and verifies nothing. It is defined once, where the
// task is, and passed; what a draft says otherwise than another is its methods.
type Version uint8

const (
	Draft18 Version = iota // the zero value: what a task speaks that names no draft
	Draft19
)

// Versions are the drafts that this package speaks, oldest first.
var Versions = []Version{Draft18, Draft19}

// A draft is all that differs from one draft to the next.
type draft struct {
	number uint16
	tag    string // begins every string that separates domains; nothing else in the tree may spell it
	// errors are the draft's report errors by number; instead says what stands for one
	// that it has no number for.
	errors  []ReportError
	instead map[ReportError]ReportError
	// lacksInfo: task_info may be empty.
	lacksInfo bool
	// judgesKey: a verification key id that the helper does not know refuses each report,
	// and not the job.
	judgesKey bool
}

var drafts = [...]draft{
	Draft18: {
		number: 18, tag: "dap-18",
		errors: []ReportError{
			1: BatchCollected, ReportReplayed, ReportDropped, HpkeUnknownConfigID, HpkeDecryptError, VDAFVerifyError,
			TaskExpired, InvalidMessage, ReportTooEarly, TaskNotStarted, OutdatedConfig,
		},
		instead: map[ReportError]ReportError{
			UnknownVerificationKeyID: InvalidMessage, UnsupportedExtension: InvalidMessage,
		},
	},
	Draft19: {
		number: 19, tag: "dap-19",
		errors: []ReportError{
			1: BatchCollected, ReportReplayed, ReportDropped, HpkeUnknownConfigID, HpkeDecryptError, VDAFVerifyError,
			InvalidMessage, ReportTooEarly, UnknownVerificationKeyID, UnsupportedExtension,
		},
		instead: map[ReportError]ReportError{
			TaskExpired: ReportDropped, TaskNotStarted: ReportDropped, OutdatedConfig: HpkeUnknownConfigID,
		},
		lacksInfo: true, judgesKey: true,
	},
}

// ParseVersion returns the draft of that number.
func ParseVersion(number uint16) (Version, error) {
	for _, v := range Versions {
		if v.Number() == number {
			return v, nil
		}
	}
	return 0, fmt.Errorf("dap: draft %d is not spoken", number)
}

// Known says whether v is one of [Versions]; nothing else has a number, a tag or a
// method's answer.
func (v Version) Known() bool { return int(v) < len(drafts) }

// Number is the draft's number.
func (v Version) Number() uint16 { return drafts[v].number }

// String is the draft's tag.
func (v Version) String() string { return drafts[v].tag }

// MarshalText is the tag.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads the tag.
func (v *Version) UnmarshalText(b []byte) error {
	for _, known := range Versions {
		if known.String() == string(b) {
			*v = known
			return nil
		}
	}
	return fmt.Errorf("dap: %.20q is no draft that is spoken; there are %v", b, Versions)
}

// VDAFContext is the application context of every VDAF call in the task: the version tag
// and the task id.
func (v Version) VDAFContext(task TaskID) []byte { return append([]byte(drafts[v].tag), task[:]...) }

// InputShareInfo is the HPKE info under which a client seals an input share to the leader
// or the helper (section 4.4.2.1).
func (v Version) InputShareInfo(receiver Role) []byte {
	return append([]byte(drafts[v].tag+" input share"), byte(RoleClient), byte(receiver))
}

// AggregateShareInfo is the HPKE info under which the leader or the helper seals an
// aggregate share to the collector (section 4.6.7).
func (v Version) AggregateShareInfo(sender Role) []byte {
	return append([]byte(drafts[v].tag+" aggregate share"), byte(sender), byte(RoleCollector))
}

// leastInfo is the least length of task_info.
func (v Version) leastInfo() int {
	if drafts[v].lacksInfo {
		return 0
	}
	return 1
}

// JudgesKey says whether a verification key id that the helper does not know refuses each
// report of the job, as [UnknownVerificationKeyID], and not the job itself, as
// invalidMessage.
func (v Version) JudgesKey() bool { return drafts[v].judgesKey }
