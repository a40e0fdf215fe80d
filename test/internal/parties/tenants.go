package parties

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe/account"
)

// A Tenant is one of a leader and a helper that run; its Leader and Helper have its local
// listeners, and no processes of their own.
type Tenant struct {
	Client         *client.Client
	Leader, Helper *Party
}

// publicListener is that of a configuration which a lab writes.
var publicListener = regexp.MustCompile(`\[public\]\naddress = ".*"\n`)

// StartTenants is StartTask with tenants beside the host's own task, each with one of that
// kind; change looks through the text of each configuration, by tenant and role.
func StartTenants(binary, dir string, task account.Options, names []string, change func(tenant, role, text string) string) (_ *Pair, tenants map[string]*Tenant, err error) {
	tenants = make(map[string]*Tenant)
	p, err := begin(binary, dir, task, func(role, text string) string {
		for _, name := range names {
			text += fmt.Sprintf("\n[[tenants]]\nname = %q\nfile = \"tenants/%s/%s.toml\"\n", name, name, role)
		}
		return change("", role, text)
	}, nil, func(host *deploy.Addresses) error {
		for _, name := range names {
			own, err := deploy.Loopback()
			if err != nil {
				return err
			}
			defer own.Close()
			for _, l := range []interface{ Close() error }{own.Leader, own.Helper} {
				l.Close()
			}
			own.Leader, own.Helper = host.Leader, host.Helper
			options := task
			options.Leader, options.Helper = host.LeaderURL()+name+"/", host.HelperURL()+name+"/"
			r, err := account.New(options)
			if err != nil {
				return err
			}
			below := filepath.Join(dir, "tenants", name)
			if err := deploy.Create(below, r, own); err != nil {
				return err
			}
			own.LeaderLocal.Close()
			own.HelperLocal.Close()
			for role, url := range map[string]string{"leader": options.Leader, "helper": options.Helper} {
				path := filepath.Join(below, role+".toml")
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				text := publicListener.ReplaceAllString(string(b), "")
				text = strings.Replace(text, "\ndata = ", fmt.Sprintf("\ntenant = %q\nurl = %q\ndata = ", name, url), 1)
				if err := os.WriteFile(path, []byte(change(name, role, text)), 0o600); err != nil {
					return err
				}
			}
			b, err := r.Append(nil)
			if err != nil {
				return err
			}
			c, err := client.New(client.Options{Prover: account.Prover, Recipe: b, MaxEpsilon: math.Inf(1)})
			if err != nil {
				return err
			}
			tenants[name] = &Tenant{c, &Party{Role: "leader", local: own.LeaderLocal.Addr().String()}, &Party{Role: "helper", local: own.HelperLocal.Addr().String()}}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, t := range tenants {
		if err := t.Client.Refresh(ctx); err != nil {
			return nil, nil, errors.Join(err, p.Stop())
		}
	}
	return p, tenants, nil
}
