package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy/invitation"
	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// maxChecked bounds a file whose kind is not known yet.
const maxChecked = 4 << 20

// manifestMagic opens the manifests that this build reads.
const manifestMagic = "starling manifest v3"

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
	} else if err != nil {
		c.Faults = append(c.Faults, err.Error())
	}
}

// CheckFile looks at a file of any kind that there is: a configuration and all that it
// names, a recipe, an invitation or a manifest. It finds all that it can tell at once.
func CheckFile(path string) *Checked {
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
			c.Found = fmt.Sprintf("of the %s of %s %s; fingerprint %s", v.Role, v.Owner, v.URL, v.ID().Fingerprint())
		}
	case bytes.HasPrefix(b, []byte(strings.TrimRight(manifestMagic, "0123456789"))):
		c.Kind = "manifest"
		m, err := ohttp.ReadManifest(b)
		if err == nil {
			err = m.Validate()
		}
		if c.fault(err); err == nil {
			c.Found = fmt.Sprintf("of epoch %d, until %s", m.Epoch, m.NotAfter.UTC().Format("2006-01-02 15:04"))
		}
	case len(b) > 0 && b[0] == recipe.Version:
		c.Kind = "recipe"
		c.checkRecipe(path, b)
	default:
		c.checkConfiguration(path)
	}
	return c
}

// CertificateSuffix stands behind the name of a recipe's file in that of its certificate.
const CertificateSuffix = ".certificate"

// checkRecipe looks at a recipe, and at the certificate beside it where there is one.
func (c *Checked) checkRecipe(path string, b []byte) {
	r, err := recipe.Read(b)
	if err == nil {
		err = account.Validate(r)
	}
	if err != nil {
		c.fault(err)
		return
	}
	g, err := account.Guarantee(r)
	if c.fault(err); err == nil {
		c.Found = fmt.Sprintf("%q gives %s", r.Name, g.Summary())
	}
	proof, err := readFile(path+CertificateSuffix, certificate.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		_, err = r.CheckCertificate(proof)
	}
	if err != nil {
		c.fault(fmt.Errorf("%s%s: %w", path, CertificateSuffix, err))
		return
	}
	c.Found += ", which its certificate proves"
}

func (c *Checked) checkConfiguration(path string) {
	role, err := RoleOf(path)
	if err != nil {
		c.fault(err)
		return
	}
	c.Kind = string(role) + "'s configuration"
	var check func() error
	switch role {
	case LeaderRole, HelperRole:
		var a *Aggregator
		if a, err = LoadAggregator(path, map[Role]dap.Role{LeaderRole: dap.RoleLeader, HelperRole: dap.RoleHelper}[role]); err == nil {
			check = a.Check
		}
	case CollectorRole:
		var k *Collector
		if k, err = LoadCollector(path); err == nil {
			check = func() error { _, _, _, err := k.Read(); return err }
		}
	case RelayRole:
		var r *Relay
		if r, err = LoadRelay(path); err == nil {
			check = r.Check
		}
	case GatewayRole:
		var g *Gateway
		if g, err = LoadGateway(path); err == nil {
			check = g.Check
		}
	}
	if err == nil {
		err = check()
	}
	c.Found = "all that it names can be read"
	c.fault(err)
}
