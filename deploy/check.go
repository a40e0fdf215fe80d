package deploy

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy/invitation"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// maxChecked bounds a file whose kind is not known yet.
const maxChecked = 4 << 20

// manifestMagic opens the manifests that this build reads.
const manifestMagic = "starling manifest v3"

// Kinds of files that are looked at together.
const (
	kindManifest = "manifest"
	kindRecipe   = "recipe"
	kindAnchors  = "anchors"
	kindPolicy   = "policy"
)

// A Checked file is one that was looked at.
type Checked struct {
	File string `json:"file"`
	Kind string `json:"kind,omitempty"` // as "leader's configuration" or "recipe"
	// Found says what a file without faults holds.
	Found  string   `json:"found,omitempty"`
	Faults []string `json:"faults"`
}

// fault adds what is wrong.
func (c *Checked) fault(err error) {
	if all, ok := err.(Faults); ok {
		for _, e := range all {
			c.fault(e)
		}
	} else if err != nil && !slices.Contains(c.Faults, err.Error()) {
		c.Faults = append(c.Faults, err.Error())
	}
}

// CheckFile looks at a file of any kind that there is: a configuration and all that it
// names, a recipe, an invitation, a manifest, anchors or a policy. It finds all that it
// can tell at once, at a time at which certificates and manifests should hold.
func CheckFile(path string, now time.Time) *Checked {
	c := &Checked{File: path, Faults: []string{}}
	b, err := readFile(path, maxChecked)
	if err != nil {
		c.fault(err)
		return c
	}
	switch {
	case invitation.Is(b):
		c.Kind = "invitation"
		v, err := invitation.Read(b)
		if c.fault(err); err == nil {
			c.Found = fmt.Sprintf("of the %s; fingerprint %s", strings.TrimRight(v.Role+" of "+v.Owner+" "+v.URL, " "), v.ID().Fingerprint())
		}
	case bytes.HasPrefix(b, []byte(strings.TrimRight(manifestMagic, "0123456789"))):
		c.Kind = kindManifest
		m, err := ohttp.ReadManifest(b)
		if err == nil && !now.Before(m.NotAfter) {
			err = fmt.Errorf("its time ended at %s; starling manifest new makes the next", m.NotAfter.UTC().Format(time.DateTime))
		}
		if c.fault(err); err == nil {
			c.Found = fmt.Sprintf("of epoch %d, until %s", m.Epoch, m.NotAfter.UTC().Format("2006-01-02 15:04"))
		}
	case len(b) > 0 && b[0] == recipe.Version:
		c.Kind = kindRecipe
		c.checkRecipe(b)
	case bytes.HasPrefix(b, []byte(strings.TrimRight(signed.AnchorsHead, "0123456789"))):
		c.Kind = kindAnchors
		a, err := signed.ReadAnchors(b)
		if c.fault(err); err == nil {
			c.Found = fmt.Sprintf("%d root keys", len(a.List()))
		}
	case isPolicy(b):
		c.Kind = kindPolicy
		p, err := tlog.ReadPolicy(b)
		if c.fault(err); err == nil {
			c.Found = fmt.Sprintf("%d logs, %d witnesses", len(p.Logs()), len(p.Witnesses()))
			if !p.Witnessed() {
				c.Found += ", of whom none has to sign: it believes the log alone"
			}
		}
	default:
		c.checkConfiguration(path, now)
	}
	return c
}

// isPolicy says whether a file is a policy on a transparency log: its first line that is no
// comment begins with a word of one, and is no TOML.
func isPolicy(b []byte) bool {
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		return slices.Contains([]string{"log", "witness", "group", "quorum"}, words[0]) && len(words) > 1 && words[1] != "="
	}
	return false
}

// checkRecipe looks at a recipe, and at the certificate behind it.
func (c *Checked) checkRecipe(b []byte) {
	alone, proof, err := recipe.SplitFile(b)
	if err != nil {
		c.fault(err)
		return
	}
	checked, err := recipe.Open(alone, account.Prover)
	if err != nil {
		c.fault(err)
		return
	}
	c.Found = fmt.Sprintf("%q gives %s", checked.Recipe().Name, checked.Guarantee().Summary())
	if _, err := recipe.OpenFile(b); err != nil {
		c.fault(err)
	} else if len(proof) > 0 {
		c.Found += ", which its certificate proves"
	}
}

// A configuration is that of one party.
type configuration interface {
	Validate() error // what is wrong with it by itself
	Check() error    // what is wrong with the files that it names
	// shown is the listener that others come to, the party's agreement, and its base URL
	// where that does not follow from an invitation.
	shown() (service.Listen, Agreement, string)
}

func (a *Aggregator) shown() (service.Listen, Agreement, string) {
	base := ""
	if m, err := a.read(); err == nil {
		base = m.base
	}
	return a.Public, a.Agreement, base
}
func (c *Collector) shown() (service.Listen, Agreement, string) {
	return service.Listen{}, c.Agreement, ""
}
func (c *Relay) shown() (service.Listen, Agreement, string)   { return c.Public, c.Agreement, "" }
func (c *Gateway) shown() (service.Listen, Agreement, string) { return c.Public, c.Agreement, "" }
func (c *TransparencyLog) shown() (service.Listen, Agreement, string) {
	return c.Public, Agreement{}, ""
}
func (c *Witness) shown() (service.Listen, Agreement, string) { return c.Public, Agreement{}, "" }

// configurationOf is an empty one of a role.
func configurationOf(role Role) configuration {
	switch role {
	case LeaderRole:
		return &Aggregator{Role: dap.RoleLeader}
	case HelperRole:
		return &Aggregator{Role: dap.RoleHelper}
	case CollectorRole:
		return &Collector{}
	case RelayRole:
		return &Relay{}
	case LogRole:
		return &TransparencyLog{}
	case WitnessRole:
		return &Witness{}
	case AttesterRole:
		return &Attester{}
	case HopRole:
		return &Hop{}
	case AnalyzerRole:
		return &Analyzer{}
	case ControllerRole:
		return &Controller{}
	case AgentRole:
		return &Agent{}
	}
	return &Gateway{}
}

func (c *Checked) checkConfiguration(path string, now time.Time) {
	role, err := RoleOf(path)
	if err != nil {
		c.fault(err)
		return
	}
	c.Kind = string(role) + "'s configuration"
	c.Found = "all that it names can be read"
	config := configurationOf(role)
	if err := loadAs(path, role, config, config.Validate); err != nil {
		c.fault(err)
		if _, read := err.(Faults); !read {
			return
		}
	}
	c.fault(config.Check())
	if a, ok := config.(*Aggregator); ok && a.Database.Marks.None {
		c.Found += "; not protected: " + status.NoMarks
	}
	if a, ok := config.(*Agent); ok && a.Receipts != "" {
		c.Found += fmt.Sprintf("; a group may ask for receipts at %s", a.Receipts)
	}
	c.fault(checkCertificate(role, config, now))
}

// checkCertificate says whether those who come to a party will take its certificate: it
// holds at that time, for the party's own URL, and is the one in its invitation, which
// whoever has joined it trusts and no other.
func checkCertificate(role Role, config configuration, now time.Time) error {
	listen, agreement, base := config.shown()
	shown, err := listen.Certificate()
	if shown == nil || err != nil {
		return nil // what cannot be read has been told
	}
	var f Faults
	f.If(now.Before(shown.NotBefore), "public.tls_certificate: it holds from %s on", shown.NotBefore.UTC().Format(time.DateTime))
	f.If(now.After(shown.NotAfter), "public.tls_certificate: it has ended at %s", shown.NotAfter.UTC().Format(time.DateTime))
	if agreement.used() {
		if own, err := agreement.invited(role); err == nil {
			base = own.URL
			f.If(len(own.Certificate) > 0 && !bytes.Equal(own.Certificate, shown.Raw),
				"public.tls_certificate: the party's invitation has another, and whoever joined it trusts no other")
		}
	}
	if u, err := url.Parse(base); err == nil && u.Scheme == "https" {
		f.Add("public.tls_certificate: ", shown.VerifyHostname(u.Hostname()))
	}
	return f.All()
}
