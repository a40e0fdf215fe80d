package service

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Readiness says what a party can do at the moment, each by itself: a leader whose helper
// is away still takes uploads, and must not lose them to a supervisor that takes it out of
// service.
type Readiness struct {
	// Take is to take what others send: the status of /readyz is this one's.
	Take Ability `json:"take"`
	// Verify is to work on it. Nil where the party has nothing to verify.
	Verify *Ability `json:"verify,omitempty"`
	// Release is to give results out, or to pass on what was taken.
	Release Ability `json:"release"`
}

// An Ability is there unless something is in its way.
type Ability struct {
	Ready   bool     `json:"ready"`
	Reasons []Reason `json:"reasons,omitempty"`
}

// A Reason is why a party cannot do something: a code of a closed set, and words.
type Reason struct {
	Code string `json:"code"`
	Why  string `json:"why"`
}

// Codes of reasons.
const (
	ReasonStopping    = "stopping"    // it starts or stops
	ReasonStore       = "store"       // its store or a log is damaged, halted or does not answer
	ReasonDisk        = "disk"        // its disk has no room
	ReasonBacklog     = "backlog"     // too much that was taken waits
	ReasonQuota       = "quota"       // it has as much as it may have of a machine that it shares
	ReasonConnections = "connections" // all connections are taken by requests under way
	ReasonPeer        = "peer"        // who it works with does not answer
	ReasonHeld        = "held"        // something waits for its operator
	ReasonKeys        = "keys"        // it has no key that others may use
)

// Because adds a reason where err is one.
func (a *Ability) Because(code string, err error) {
	if err != nil {
		a.Reasons = append(a.Reasons, Reason{code, scrub(err.Error())})
	}
}

// Words are the reasons in words; none where nothing is in its way.
func (a *Ability) Words() (all []string) {
	for _, r := range a.Reasons {
		all = append(all, r.Code+": "+r.Why)
	}
	return all
}

// settle says which abilities are there.
func (r *Readiness) settle() {
	for _, a := range []*Ability{&r.Take, r.Verify, &r.Release} {
		if a != nil {
			a.Ready = len(a.Reasons) == 0
		}
	}
}

// can says whether an ability is there, by its name in /readyz.
func (r Readiness) can(ability string) bool {
	switch ability {
	case "take":
		return len(r.Take.Reasons) == 0
	case "verify":
		return r.Verify != nil && len(r.Verify.Reasons) == 0
	}
	return len(r.Release.Reasons) == 0
}

// write answers /readyz: in words, or in JSON for who asks for that.
func (r *Readiness) write(w http.ResponseWriter, req *http.Request) {
	r.settle()
	status := http.StatusOK
	if !r.Take.Ready {
		status = http.StatusServiceUnavailable
	}
	if strings.Contains(req.Header.Get("Accept"), "application/json") || req.URL.Query().Has("json") {
		writeJSONStatus(w, status, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	for _, a := range []struct {
		name string
		*Ability
	}{{"take", &r.Take}, {"verify", r.Verify}, {"release", &r.Release}} {
		switch {
		case a.Ability == nil:
		case a.Ready:
			fmt.Fprintf(w, "%s: ok\n", a.name)
		default:
			for _, why := range a.Reasons {
				fmt.Fprintf(w, "%s: no: %s: %s\n", a.name, why.Code, why.Why)
			}
		}
	}
}

// Ready is the readiness of a party with nothing in its way; one that verifies says so.
func Ready(verifies bool) Readiness {
	var r Readiness
	if verifies {
		r.Verify = new(Ability)
	}
	return r
}

// Unready is that of a party that can do nothing, for one reason.
func Unready(code string, err error) Readiness {
	r := Ready(false)
	r.Take.Because(code, err)
	r.Release.Because(code, err)
	return r
}

// ReadinessGauge registers starling_ready, by ability.
func (m *Metrics) ReadinessGauge(read func() Readiness, abilities ...string) {
	m.Gauges("starling_ready", "Whether the party can take what is sent, verify it and release results: 1 or 0.",
		Label{Name: "ability", Values: slices.Clone(abilities), Only: true}, func(ability string) float64 {
			if read().can(ability) {
				return 1
			}
			return 0
		})
}
