package status

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Published is what the transparency log says of how many devices have credentials, as an
// aggregator follows it.
type Published struct {
	Log string `json:"log"` // its name
	// Seen is when it was found good last; zero: never. Its word of then holds on.
	Seen time.Time `json:"seen,omitzero"`
	// Failing is why nothing good came since, from when on: it is down or slow, or lies.
	Failing      string    `json:"failing,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	// Epochs are those of which something was said, the newest first, 8 at most.
	Epochs []Cohort `json:"epochs,omitempty"`
}

// A Cohort is how many devices have credentials of a key epoch, as each says who has to;
// nil who has not.
type Cohort struct {
	Epoch    uint32  `json:"epoch"`
	Issued   *uint64 `json:"issued,omitempty"`   // by the issuer beside this aggregator, as it knows itself
	Leader   *uint64 `json:"leader,omitempty"`   // answered by the leader's issuer, as its owner says
	Helper   *uint64 `json:"helper,omitempty"`   // by the helper's
	Attester *uint64 `json:"attester,omitempty"` // let ask, as the attester's owner says
}

// Devices is the smallest of all numbers, which none of them can be more than, and whose
// it is: issuer, leader, helper or attester; false where there is none.
func (c *Cohort) Devices() (n uint64, whose string, ok bool) {
	for _, x := range []struct {
		n     *uint64
		whose string
	}{{c.Issued, "issuer"}, {c.Leader, "leader"}, {c.Helper, "helper"}, {c.Attester, "attester"}} {
		if x.n != nil && (!ok || *x.n < n) {
			n, whose, ok = *x.n, x.whose, true
		}
	}
	return n, whose, ok
}

// Alarm says what cannot be true of the numbers; empty where nothing is: an issuer answers
// devices that the attester lets ask.
func (c *Cohort) Alarm() string {
	if c.Attester == nil {
		return ""
	}
	var over []string
	for _, x := range []struct {
		n    *uint64
		said string
	}{{c.Issued, "the issuer beside this aggregator has answered %d"}, {c.Leader, "the leader's owner says that its issuer has answered %d"},
		{c.Helper, "the helper's owner says that its issuer has answered %d"}} {
		if x.n != nil && *x.n > *c.Attester {
			over = append(over, fmt.Sprintf(x.said, *x.n))
		}
	}
	if over == nil {
		return ""
	}
	return fmt.Sprintf("of epoch %d the attester's owner says that %d devices were let ask for credentials, and %s: somebody has credentials whom no attester knows, or one of them lies",
		c.Epoch, *c.Attester, strings.Join(over, ", and "))
}

// Alarms counts the epochs of which the numbers cannot be true.
func (p *Published) Alarms() (n int) {
	for i := range p.Epochs {
		if p.Epochs[i].Alarm() != "" {
			n++
		}
	}
	return n
}

// Words are when the log was found good, and what it says of the newest epoch.
func (p *Published) Words() string {
	said := p.Log + " was never found good"
	if !p.Seen.IsZero() {
		said = fmt.Sprintf("%s as of %s", p.Log, p.Seen.UTC().Format(time.RFC3339))
	}
	if len(p.Epochs) == 0 {
		return said + ", nothing said of how many devices have credentials"
	}
	c := &p.Epochs[0]
	number := func(n *uint64) string {
		if n == nil {
			return "nothing"
		}
		return fmt.Sprint(*n)
	}
	return fmt.Sprintf("%s: of epoch %d leader says %s, helper %s, attester %s", said, c.Epoch, number(c.Leader), number(c.Helper), number(c.Attester))
}

// reasons are what is wrong with the log, and with what it says.
func (p *Published) reasons(role string) (rs []Reason) {
	if p == nil {
		return nil
	}
	for _, c := range slices.Backward(p.Epochs) {
		if alarm := c.Alarm(); alarm != "" {
			rs = append(rs, Reason{alarm, "compare the registers of both issuers and of the attester for that epoch, and find out who holds their keys; the smallest number is the one that " +
				"batches are compared with"})
		}
	}
	if p.Failing != "" {
		since := "never"
		if !p.Seen.IsZero() {
			since = p.Seen.UTC().Format(time.RFC3339)
		}
		rs = append(rs, Reason{fmt.Sprintf("the log %s was found good last: %s, and fails since %s: %s; nothing waits for it, and what it said holds on", p.Log, since,
			p.FailingSince.UTC().Format(time.RFC3339), p.Failing),
			"if the log is down, tell its owner; if it lies, docs/log.md says what that means; policy and anchors in [issuer] of " + role + ".toml say whom is believed"})
	}
	return rs
}
