package dap

// ReportError says why one report was refused, at upload or in an aggregation job
// (section 4.1). It is an error. Drafts number the reasons in different ways, and a
// [Dialect] reads and writes the numbers: the values here are ours.
type ReportError uint16

const (
	BatchCollected ReportError = 1 + iota
	ReportReplayed
	ReportDropped            // at upload also: outside the task's interval
	HpkeUnknownConfigID      // draft 18, 4.5.3.3, answers hpke_decrypt_error instead, so take either from a peer
	HpkeDecryptError         //
	VDAFVerifyError          //
	TaskExpired              // draft 18, in aggregation: after the task's interval
	InvalidMessage           //
	ReportTooEarly           // the one refusal after which the leader may send the report again
	TaskNotStarted           // draft 18, in aggregation: before the task's interval
	OutdatedConfig           // draft 18, at upload: see Outdated
	UnknownVerificationKeyID // draft 19, in aggregation
	UnsupportedExtension     // draft 19: an unknown report extension
)

// ReportErrors lists those that have names. An error that a peer sends beyond them is
// kept as its number, which is not [ReportError.Known]: one of them must not cost the
// other reports of a message their verdicts. Only 0, which is reserved, and 255, which
// ends the enumeration, are refused where they are read.
var ReportErrors = []ReportError{
	BatchCollected, ReportReplayed, ReportDropped, HpkeUnknownConfigID, HpkeDecryptError, VDAFVerifyError,
	TaskExpired, InvalidMessage, ReportTooEarly, TaskNotStarted, OutdatedConfig,
	UnknownVerificationKeyID, UnsupportedExtension,
}

var reportErrorNames = []string{
	1: "batch_collected", "report_replayed", "report_dropped", "hpke_unknown_config_id", "hpke_decrypt_error",
	"vdaf_verify_error", "task_expired", "invalid_message", "report_too_early", "task_not_started", "outdated_config",
	"unknown_verification_key_id", "unsupported_extension",
}

// unknownReportError marks a number that the dialect has no name for.
const unknownReportError ReportError = 0x100

// Known says whether e has a name.
func (e ReportError) Known() bool { return e > 0 && int(e) < len(reportErrorNames) }

// Outdated says whether a refused upload was sealed to an HPKE config that the leader
// does not know (any more): outdated_config in draft 18, hpke_unknown_config_id in draft
// 19 and from Janus.
func (e ReportError) Outdated() bool { return e == OutdatedConfig || e == HpkeUnknownConfigID }

// String is the name in the registry, or the number.
func (e ReportError) String() string {
	if e > unknownReportError {
		return name(nil, int(e&^unknownReportError), "report error")
	}
	return name(reportErrorNames, int(e), "report error")
}

func (e ReportError) Error() string { return "dap: report refused: " + e.String() }

func (e *ReportError) code(c *coder) {
	if c.Writing() {
		n, ok := c.dialect.Code(*e)
		c.Check(ok, "no report error of this dialect")
		c.Uint8(&n, "report error")
		return
	}
	var n uint8
	c.Uint8(&n, "report error")
	if c.Check(n != 0 && n != 255, "report error that is none"); c.Err() == nil {
		*e = c.dialect.ReportError(n)
	}
}
