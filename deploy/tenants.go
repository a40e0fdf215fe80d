package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
)

// A Tenant is an aggregator that runs in the process of its host. It has a configuration of
// its own, and with that its own keys, tokens, agreement, store, local listener, metrics and
// quota: it shares the host's process, listeners and turns to verify, and nothing that
// could tell of it.
type Tenant struct {
	// Name is how the host's metrics and logs call the tenant: at most 32 of a-z, 0-9
	// and -. Required, and Tenant in its File.
	Name string `toml:"name"`
	// File is its configuration, of the host's role. Required.
	File service.Path `toml:"file"`
}

// A Quota is aggregator.Quota as an operator writes it.
type Quota struct {
	// Tasks is how many may be live at one time, neither closed nor ended; a further one is
	// refused, typed, imported or brought in band.
	Tasks int `toml:"tasks"`
	// BytesStored is how much a leader may have of reports that wait, replay protection and
	// open batches. At and above it uploads get 503, and what is acknowledged goes on.
	// Leaders only.
	BytesStored int64 `toml:"bytes_stored"`
	// ReportsPerSecond is how many reports a leader takes in a second, on average; those
	// that come too early get 429 before they are read. Leaders only.
	ReportsPerSecond int `toml:"reports_per_second"`
	// Requests is how many are under way at one time, and with HTTP/1.1 how many
	// connections send or wait for an answer; a further one gets 503 before it is read.
	Requests int `toml:"requests"`
}

func (q Quota) options() aggregator.Quota {
	return aggregator.Quota{Tasks: q.Tasks, BytesStored: q.BytesStored, ReportsPerSecond: q.ReportsPerSecond, Requests: q.Requests}
}

// maxTenants bounds those of one process: each has a store, workers and a local listener.
const maxTenants = 256

var tenantName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// validateTenant says what is wrong with a tenant's own configuration by itself.
func (a *Aggregator) validateTenant() error {
	var f Faults
	f.If(!tenantName.MatchString(a.Tenant), "tenant: %q is not 1 to 32 of a-z, 0-9 and -", a.Tenant)
	f.If(a.Public != (service.Listen{}), "public: a tenant is reached at its host's listeners, and has none")
	f.If(a.Peer != (service.Listen{}), "peer: a tenant is reached at its host's listeners, and has none")
	f.If(len(a.Tenants) > 0, "tenants: a tenant has none")
	f.If(a.URL == "", "url: required of a tenant: its path picks it")
	f.If(a.URL != "" && pathOf(a.URL) == "/", "url: a tenant's has a path, such as https://leader.example/%s/", a.Tenant)
	return f.All()
}

// validateTenants says what is wrong with the list of tenants by itself.
func (a *Aggregator) validateTenants() error {
	var f Faults
	f.If(len(a.Tenants) > maxTenants, "tenants: %d, want %d at most in one process", len(a.Tenants), maxTenants)
	seen := map[string]bool{}
	for i, t := range a.Tenants {
		f.If(!tenantName.MatchString(t.Name), "tenants[%d].name: %q is not 1 to 32 of a-z, 0-9 and -", i, t.Name)
		f.If(seen[t.Name], "tenants[%d].name: %q stands twice", i, t.Name)
		f.If(t.File == "", "tenants[%d].file: required", i)
		seen[t.Name] = true
	}
	return f.All()
}

// validateQuota says which quotas nobody can mean.
func (a *Aggregator) validateQuota() error {
	var f Faults
	for _, low := range negatives(a.Quota) {
		f.Add("", low)
	}
	q := a.Quota
	f.If(q.Tasks > 0 && len(a.Tasks) > q.Tasks, "tasks: %d, and there are %d [[tasks]], which the first start would refuse", q.Tasks, len(a.Tasks))
	if a.Role != dap.RoleLeader {
		f.If(q.BytesStored != 0, "bytes_stored: only a leader takes uploads, and refuses them")
		f.If(q.ReportsPerSecond != 0, "reports_per_second: only a leader takes uploads, and refuses them")
		return f.All()
	}
	one := a.Limits.options().WithDefaults().UploadBody
	f.If(q.BytesStored > 0 && q.BytesStored < one, "bytes_stored: %d, less than one upload, which has %d bytes at most (limits.upload_bytes)", q.BytesStored, one)
	return f.All()
}

// pathOf is the path of a base URL, with a slash at its end.
func pathOf(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return "/"
	}
	return strings.TrimRight(u.EscapedPath(), "/") + "/"
}

// hosted reads the configurations of the tenants, in their order.
func (a *Aggregator) hosted() (all []*Aggregator, err error) {
	var f Faults
	for i, t := range a.Tenants {
		c, err := LoadAggregator(string(t.File), a.Role)
		if err != nil {
			f.Add(fmt.Sprintf("tenants[%d].file: ", i), err)
			continue
		}
		f.If(c.Tenant != t.Name, "tenants[%d].file: %s is of tenant %q, and %q is wanted", i, t.File, c.Tenant, t.Name)
		all = append(all, c)
	}
	return all, f.All()
}

// ownPaths are the first elements of paths that an aggregator answers itself.
var ownPaths = []string{"tasks", "hpke_config", "deployments", "starling_agreement"}

// checkTenants reads all that the tenants' configurations name, and says where tenants
// would meet one another, or their host, which is reached at base.
func (a *Aggregator) checkTenants(base string) error {
	all, err := a.hosted()
	var f Faults
	f.Add("", err)
	if err != nil {
		return f.All()
	}
	own := pathOf(base)
	for i, t := range all {
		place := fmt.Sprintf("tenants[%d] (%s): ", i, t.Tenant)
		f.Add(place, t.Check())
		at := pathOf(t.URL)
		below, ok := strings.CutPrefix(at, own)
		first, _, _ := strings.Cut(below, "/")
		f.If(ok && (first == "" || slices.Contains(ownPaths, first)), "%surl: its path %s is the host's own", place, at)
		for j, other := range all[:i] {
			there := pathOf(other.URL)
			f.If(strings.HasPrefix(at, there) || strings.HasPrefix(there, at), "%surl: its path %s meets %s, of tenants[%d] (%s)", place, at, there, j, other.Tenant)
			f.If(sameDirectory(t.Data, other.Data), "%sdata: it is the directory of tenants[%d] (%s)", place, j, other.Tenant)
			f.If(t.Local.Address == other.Local.Address, "%slocal.address: it is that of tenants[%d] (%s)", place, j, other.Tenant)
		}
		f.If(sameDirectory(t.Data, a.Data), "%sdata: it is the host's directory", place)
		f.If(t.Local.Address == a.Local.Address, "%slocal.address: it is the host's", place)
	}
	return f.All()
}

func sameDirectory(x, y service.Path) bool {
	return filepath.Clean(string(x)) == filepath.Clean(string(y))
}

// A TenantError is a tenant's configuration where a process is to be started from it.
type TenantError struct{ File, Tenant string }

func (e *TenantError) Error() string {
	return fmt.Sprintf("%s: tenant: it is of tenant %q, which runs in its host's process", e.File, e.Tenant)
}

// Serves says whether a process can be started from the configuration: a tenant's is a
// *[TenantError].
func (a *Aggregator) Serves() error {
	if a.Tenant == "" {
		return nil
	}
	return &TenantError{a.file, a.Tenant}
}

// pick hands each request to the tenant of its path, and others to the host. It looks at
// the path alone, and all that a tenant has stands behind its handler: a tenant's path is
// answered alike whatever other tenants have.
func pick(host http.Handler, tenants map[string]http.Handler) http.Handler {
	if len(tenants) == 0 {
		return host
	}
	// None is the beginning of another, so that the order does not matter.
	paths := sortedKeys(tenants)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := r.URL.EscapedPath()
		for _, p := range paths {
			if strings.HasPrefix(at, p) {
				tenants[p].ServeHTTP(w, r)
				return
			}
		}
		host.ServeHTTP(w, r)
	})
}

// tenantGauges registers at the host how much each tenant uses of what the host shares
// out. Tenants are named by the configuration, which closes the set.
func tenantGauges(m *service.Metrics, seats []*seat) {
	by := map[string]*seat{}
	for _, s := range seats {
		by[s.config.Tenant] = s
	}
	label := service.Label{Name: "tenant", Values: sortedKeys(by), Only: true}
	gauge := func(name, help string, read func(used aggregator.Quota) float64) {
		m.Gauges(name, help, label, func(tenant string) float64 {
			l, _ := by[tenant].levels()
			return read(l.Used)
		})
	}
	m.Gauges("starling_tenant_verify_seconds", "Time that was spent verifying for a tenant, on all processors together, since the start.", label,
		func(tenant string) float64 { return by[tenant].turn.Worked().Seconds() })
	gauge("starling_tenant_requests", "Requests of a tenant that are under way.", func(u aggregator.Quota) float64 { return float64(u.Requests) })
	gauge("starling_tenant_tasks", "Live tasks of a tenant that has a quota of them or of bytes.", func(u aggregator.Quota) float64 { return float64(u.Tasks) })
	gauge("starling_tenant_stored_bytes", "Bytes that a tenant has stored, where it has a quota of them or of tasks.",
		func(u aggregator.Quota) float64 { return float64(u.BytesStored) })
}

// again runs the lives of a tenant until ctx ends: another where one could not begin or has
// failed. That is nobody else's trouble: neither its host nor another tenant waits for it.
// Its requests are answered 503 meanwhile.
func again(ctx context.Context, log *slog.Logger, ready func(), live func(context.Context, func()) error) error {
	ready = sync.OnceFunc(ready)
	for wait := minTenantRest; ; wait = min(2*wait, maxTenantRest) {
		begun := time.Now()
		err := live(ctx, ready)
		if ctx.Err() != nil {
			return err
		}
		ready()
		if time.Since(begun) > maxTenantRest { // it was not the fault of before
			wait = minTenantRest
		}
		log.Error("the tenant is not served", "error", err, "again_in", wait)
		rest := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			rest.Stop()
			return nil
		case <-rest.C:
		}
	}
}

// A tenant that fails rests for minTenantRest, and twice as long each time that it fails
// again.
const (
	minTenantRest = time.Second
	maxTenantRest = time.Minute
)

// broken is a part that fails at once.
func broken(name string, err error) service.Part {
	return service.Part{Name: name, Run: func(context.Context, func()) error { return err }}
}

// processors is on how many the aggregators of a process verify: limits.workers of the
// host, and where it says nothing all but one, which is left for the uploads of all.
func (a *Aggregator) processors() int {
	if n := a.Limits.Workers; n > 0 {
		return n
	}
	return max(1, runtime.GOMAXPROCS(0)-1)
}

// errNotStarted is what is said before an aggregator is open.
var errNotStarted = errors.New("not started")

// tenantLog has each line of a tenant bear its name.
func tenantLog(log *slog.Logger, tenant string) *slog.Logger {
	if tenant == "" {
		return log
	}
	return log.With(slog.String("tenant", tenant))
}
