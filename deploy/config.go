package deploy

import (
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy/invitation"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// Limits on the files a configuration names.
const (
	maxPublicKey = 64 << 10
)

// An Aggregator is the configuration of a leader or a helper: leader.toml or helper.toml.
type Aggregator struct {
	// Party is "leader" or "helper". Required.
	Party Role `toml:"role"`
	// Role is the same for DAP, set by [LoadAggregator].
	Role dap.Role `toml:"-"`
	// Tenant is the name of an aggregator that runs in the process of another, its host,
	// at the path of its URL. Optional; then Public and Peer are the host's, and left out,
	// and URL is required.
	Tenant string `toml:"tenant"`
	// Tenants are the aggregators that run in the process of this one, with a path of its
	// listeners each, and their own of everything else. Optional.
	Tenants []Tenant `toml:"tenants"`
	// Quota is what the aggregator may take of a machine that it shares, as a tenant does.
	// Optional; zero or left out bounds nothing.
	Quota Quota `toml:"quota"`
	// Public is where clients, peer and collector come. Required, but for a tenant.
	Public service.Listen `toml:"public"`
	// Peer is a second listener with places of its own, for the other aggregator and the
	// collector alone: on an address that only they reach, or with tls_client_ca.
	// Optional; what comes there is served as at Public.
	Peer service.Listen `toml:"peer"`
	// Helper says how a leader reaches the helper where that is not simply its URL.
	// Optional.
	Helper Via `toml:"helper"`
	// Local is where the operator looks. Required.
	Local Local `toml:"local"`
	// Data is the directory of the store; made where it is missing. Required, and used by
	// one process at a time.
	Data service.Path `toml:"data"`
	// Record is the directory of what must not go back when Data does, as to a backup:
	// who the store is, how many releases it has made, what was signed. Best on another
	// disk. Default: Data with ".record" behind its name.
	Record service.Path `toml:"record"`
	// Engine is where rows are: "embedded", in Data, or "postgres", in a Database that any
	// number of processes share, of which each has a Data and a Record of its own. Default
	// "embedded".
	Engine Engine `toml:"engine"`
	// Database is where they are shared.
	Database Database `toml:"database"`
	// HPKEKeyPeriod is how long a key is the one that clients are offered; the aggregator
	// makes its HPKE keys by itself, in Data, of the KEMs that its recipes name, and
	// destroys each once no report needs it. Default 24 h; left out beside HPKEKeys, the
	// aggregator makes none.
	HPKEKeyPeriod service.Duration `toml:"hpke_key_period"`
	// HPKEKeyMaxAge is how long clients may use the keys that they were given, and
	// manifests pin them. Default 24 h.
	HPKEKeyMaxAge service.Duration `toml:"hpke_key_max_age"`
	// HPKEKeyOverlap is how much longer a key takes uploads, for clocks that differ and
	// reports under way. Default 1 h.
	HPKEKeyOverlap service.Duration `toml:"hpke_key_overlap"`
	// HPKEKeyDelay is how long after that the leader may come with a job. Helpers only.
	// Default 72 h.
	HPKEKeyDelay service.Duration `toml:"hpke_key_delay"`
	// HPKEKeys are key files of the operator's own, best first. Alone they are what
	// clients are offered, and the operator ends them. Beside HPKEKeyPeriod they are
	// still taken and not offered any more.
	HPKEKeys []service.Secret `toml:"hpke_keys"`
	// DataKeyPeriod is how much time of reports one data key is of, from which noise
	// comes. Default a week, at least an hour; a change is for keys that are not made
	// yet.
	DataKeyPeriod service.Duration `toml:"data_key_period"`
	// Signing is how the aggregator vouches for its keys. Required where a recipe names
	// the keys that do, and only there.
	Signing Signing `toml:"signing"`
	// Issuer gives devices the credentials that they show this aggregator. Required where a
	// recipe counts devices.
	Issuer Issuer `toml:"issuer"`
	// Agreement is where the tasks' keys and tokens come from that have no files of their
	// own. Optional.
	Agreement Agreement `toml:"agreement"`
	// URL is where others reach this aggregator, as recipes name it. Default: what the
	// recipes of Tasks name, and else the party's own invitation. Required where there is
	// neither.
	URL string `toml:"url"`
	// Tasks are what this aggregator takes part in from its first start on, which imports
	// them into its store; starling task add adds others. Optional.
	Tasks []Task `toml:"tasks"`
	// Taskprov are the leaders that may bring tasks to a helper with their requests.
	// Optional; helpers only.
	Taskprov []Taskprov `toml:"taskprov"`
	// Deferred makes a helper answer aggregation jobs later instead of at once. Helpers
	// only.
	Deferred bool `toml:"deferred"`
	// Retention is how long a task is kept after the end of its recipe's window, so that
	// results can be asked for again; then everything but its counts and the ledger is
	// erased. Recipes without a window are kept. Default aggregator.DefaultRetention,
	// 720h; negative keeps all.
	Retention service.Duration `toml:"retention"`
	// CompareEvery is how often a leader compares with its helpers what they hold and
	// have released; sooner while something differs. Leaders only. Default 1 minute.
	CompareEvery service.Duration `toml:"compare_every"`
	// Limits left out or zero take their defaults.
	Limits Limits `toml:"limits"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`

	file string `toml:"-"` // of the configuration, as it was named; empty: none
	dir  string `toml:"-"` // of that file; empty: none
}

// A Task is one task as this aggregator is provisioned with it.
type Task struct {
	// Recipe is the recipe file. Required, unless there is a Configuration.
	Recipe service.Path `toml:"recipe"`
	// Configuration is the file of the DAP TaskConfiguration of a task that others made
	// and that has no recipe: DAP's own rules are all that hold there, and nobody knows
	// of a guarantee.
	Configuration service.Path `toml:"configuration"`
	// ID is such a task's id, as in DAP's paths. Default: what
	// draft-ietf-ppm-dap-taskprov computes.
	ID string `toml:"id"`
	// DAP is the draft that such a task speaks, "dap-18" or "dap-19". Default "dap-18".
	DAP dap.Version `toml:"dap"`
	// VerifyKeys are what leader and helper share. Required, at least one, unless there
	// is an Agreement; so is what follows.
	VerifyKeys []VerifyKey `toml:"verify_keys"`
	// VerifyKeyInit is the file of a secret that leader and helper share for many tasks, 64
	// hexadecimal digits, from which the task's verification key follows. Optional, in
	// place of VerifyKeys.
	VerifyKeyInit service.Secret `toml:"verify_key_init"`
	// Advertise has a leader bring the task to its helper, which takes it from the
	// leader's requests if its Taskprov allows that. For a task with a Configuration.
	Advertise bool `toml:"advertise"`
	// PeerToken is the token with which the leader comes to the helper. Required.
	PeerToken service.Secret `toml:"peer_token"`
	// CollectorToken is the token with which the collector comes to the leader. Required
	// at the leader.
	CollectorToken service.Secret `toml:"collector_token"`
	// CollectorHPKE is the collector's public key. Required.
	CollectorHPKE service.Path `toml:"collector_hpke"`
	// Framing is "janus" where the other aggregator and the collector frame what they say
	// as Janus does, whoever they are. Default "standard", as DAP's drafts have it.
	Framing dap.Framing `toml:"framing"`
	// Expected is how many reports may come; batches with more than twice as many are
	// held. Default: the recipe's rate, as far as it states one.
	Expected Expected `toml:"expected"`

	// Invitations are those of the parties of this task, in place of the agreement's: of the
	// other aggregator, of the collector. For a task that is added; see [Aggregator.NewTask].
	Invitations []Invited `toml:"-"`
}

// An Invited party is one of a single task.
type Invited struct {
	// File is its invitation.
	File string
	id   invitation.ID // of the file, once its fingerprint was compared
}

// Expected is aggregator.Expectation as an operator writes it. It is each aggregator's
// own: the recipe does not bind it, so that raising it can release a batch.
type Expected struct {
	// Reports come at most in each Units of the recipe's time precision, dummies
	// included. Zero takes what the recipe expects; where it states no rate, no batch is
	// held.
	Reports uint64 `toml:"reports"`
	// Units zero means that each batch may have Reports, whatever time it spans.
	Units uint64 `toml:"units"`
}

// A VerifyKey is a file of 64 hexadecimal digits and the id under which both aggregators
// know it.
type VerifyKey struct {
	// ID is the same at both aggregators. Required.
	ID uint8 `toml:"id"`
	// File holds the key. Required.
	File service.Secret `toml:"file"`
}

// Limits are the ones of aggregator.Limits that operators change.
type Limits struct {
	// UploadBytes is the largest upload request. Default 8 MiB, or one report of the
	// largest task if that is more.
	UploadBytes int64 `toml:"upload_bytes"`
	// UploadReports is the largest number of reports in an upload request. Default
	// 10,000.
	UploadReports int `toml:"upload_reports"`
	// JobBytes is the largest request or answer between leader and helper. Default 64
	// MiB.
	JobBytes int64 `toml:"job_bytes"`
	// InFlightBytes bounds the bytes of all request bodies held at one time. Default 128
	// MiB.
	InFlightBytes int64 `toml:"in_flight_bytes"`
	// Workers is how many processors open shares and check proofs. Default all; of a host
	// with Tenants all but one, and the tenants take turns on them.
	Workers int `toml:"workers"`
	// Jobs is how many aggregation jobs are worked on at one time. Default 2.
	Jobs int `toml:"jobs"`
	// ClockSkew is how far in the future a report's time may lie, and how much later than
	// its grace a round is released. Default 5m.
	ClockSkew service.Duration `toml:"clock_skew"`
	// HotTasks is how many tasks are opened at the start, the newest; the others when they
	// are first asked for. When more are open, those are given up that nobody asks for.
	// Default 1000; negative: none.
	HotTasks int `toml:"hot_tasks"`
	// MaxAge is how old a report may be when it is uploaded, in whole units of the task.
	// Default no bound.
	MaxAge service.Duration `toml:"max_age"`
	// MaxBacklog is how many acknowledged reports may wait at the leader to be verified.
	// Default 5,000,000; negative: no bound.
	MaxBacklog int64 `toml:"max_backlog"`
	// MinFree is how many bytes are to be left free on the disk; below it uploads are
	// refused. Default 256 MiB; negative: no bound.
	MinFree int64 `toml:"min_free"`
}

func (l Limits) options() aggregator.Limits {
	return aggregator.Limits{UploadBody: l.UploadBytes, UploadReports: l.UploadReports, JobBody: l.JobBytes,
		InFlight: l.InFlightBytes, Workers: l.Workers, Jobs: l.Jobs, HotTasks: l.HotTasks, ClockSkew: time.Duration(l.ClockSkew), MaxAge: time.Duration(l.MaxAge),
		MaxBacklog: l.MaxBacklog, MinFree: l.MinFree}
}

// Local is the operator's listener.
type Local struct {
	// Address is on this machine, or a unix socket. Required.
	Address service.Address `toml:"address"`
}

// Log is how much is logged.
type Log struct {
	// Level is "debug", "info", "warn" or "error".
	Level slog.Level `toml:"level"`
}

// LoadAggregator reads and validates a configuration file. It reads none of the files
// that it names: [Aggregator.Check] does.
func LoadAggregator(path string, role dap.Role) (*Aggregator, error) {
	a := &Aggregator{Role: role}
	if err := loadAs(path, Role(role.String()), a, a.Validate); err != nil {
		return nil, err
	}
	file, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	a.file, a.dir = path, filepath.Dir(file)
	return a, nil
}

// Validate says what is wrong with the configuration by itself.
func (a *Aggregator) Validate() error {
	if a.Role != dap.RoleLeader && a.Role != dap.RoleHelper {
		return fmt.Errorf("deploy: internal error: role %v is no aggregator", a.Role)
	}
	var f Faults
	if a.Tenant != "" {
		f.Add("", a.validateTenant())
	} else {
		f.Add("public: ", a.Public.Validate())
		if a.Peer != (service.Listen{}) {
			f.Add("peer: ", a.Peer.Validate())
		}
	}
	f.Add("issuer.", a.validateIssuer())
	f.Add("", a.validateTenants())
	f.Add("quota.", a.validateQuota())
	f.Add("helper.", a.Helper.validate())
	f.Add("local.address: ", service.Local{Address: a.Local.Address}.Validate())
	f.If(a.Helper != (Via{}) && a.Role != dap.RoleLeader, "helper: only a leader has one")
	f.If(a.Data == "", "data: the directory of the store is required")
	f.If(a.Data != "" && !apart(a.Data, a.Record), "%w", errRecord)
	f.If(len(a.Tasks) == 0 && a.URL == "" && !a.Agreement.used(), "url: required where neither tasks nor an agreement say where others reach this %v", a.Role)
	if a.URL != "" {
		_, err := dap.BaseURL([]byte(a.URL))
		f.Add("url: ", err)
	}
	f.If(a.Deferred && a.Role != dap.RoleHelper, "deferred: only a helper answers later")
	f.If(a.DataKeyPeriod != 0 && time.Duration(a.DataKeyPeriod) < aggregator.MinDataKeyPeriod, "data_key_period: want %v or more", aggregator.MinDataKeyPeriod)
	f.If(a.CompareEvery < 0, "compare_every: negative")
	f.If(a.CompareEvery > 0 && a.Role != dap.RoleLeader, "compare_every: the leader asks, a helper answers")
	if low := negatives(a.Limits, "max_backlog", "min_free", "hot_tasks"); low != nil {
		f.Add("limits.", low)
	} else if a.Limits.options().Validate() != nil {
		f.If(true, "limits.in_flight_bytes: smaller than upload_bytes or job_bytes, which are one body")
	}
	f.Add("", a.validateDatabase())
	f.Add("", a.validateKeys())
	f.Add("", a.Agreement.validate())
	f.Add("", a.validateTaskprov())
	for i := range a.Tasks {
		f.Add(fmt.Sprintf("tasks[%d].", i), a.Tasks[i].validate(a.Role, a.Agreement.used()))
	}
	return f.All()
}

// validate says what is wrong with a task by itself; agreed says that there is an
// agreement from which its keys and tokens follow.
func (t *Task) validate(role dap.Role, agreed bool) error {
	var f Faults
	f.Add("", t.validateSource())
	f.Add("", t.validateAdvertised(role, t.foreign()))
	f.If(len(t.VerifyKeys) == 0 && t.VerifyKeyInit == "" && !agreed, "verify_keys: at least one is required")
	f.If(t.PeerToken == "" && !agreed, "peer_token: required")
	f.If(t.CollectorToken == "" && role == dap.RoleLeader && !agreed, "collector_token: required at the leader")
	f.If(t.Expected.Units > 0 && t.Expected.Reports == 0, "expected.units: means nothing without expected.reports")
	f.If(t.CollectorHPKE == "" && !agreed, "collector_hpke: required")
	return f.All()
}

// material is what the configuration's files hold.
type material struct {
	keys    *sealed.Keyring        // the operator's
	epochs  *keyset.Schedule       // nil: the operator's are all
	tasks   []aggregator.Task      // of the configuration
	imports []aggregator.Provision // the same
	recipes []*recipe.Recipe       // those of checked
	checked []*recipe.Checked      // of the tasks that have one
	signing *keyset.Signing        // nil: no recipe names keys
	counts  *recipe.Recipe         // of the issuer's deployment; nil: there is none
	keep    time.Duration          // of an issuer's keys
	base    string                 // the URL of this aggregator
	helper  *invitation.Invitation // at a leader with an agreement
	brings  []aggregator.TaskPolicy
}

// Check reads every file that the configuration names, as starting would, and opens no
// store or listener.
func (a *Aggregator) Check() error {
	var f Faults
	if a.Tenant == "" {
		f.Add("public: ", a.Public.CheckFiles())
	}
	if a.Peer.Address != "" {
		f.Add("peer: ", a.Peer.CheckFiles())
	}
	f.Add("", a.checkDatabase())
	m, err := a.read()
	f.Add("", err)
	if err == nil {
		f.Add("", a.checkTenants(m.base))
	}
	if err == nil {
		_, err = a.Helper.transport(m.helper)
		f.Add("helper.", err)
	}
	return f.All()
}

// Recipes reads the recipes of the tasks, in their order.
func (a *Aggregator) Recipes() ([]*recipe.Checked, error) {
	m, err := a.read()
	if err != nil {
		return nil, err
	}
	return m.checked, nil
}

// read reads every file that the configuration names but those of the listeners, and says
// all that is wrong with them.
func (a *Aggregator) read() (*material, error) {
	m := &material{}
	var f Faults
	var err error
	m.keys, err = a.readKeys()
	f.Add("", err)
	agreed, err := a.agreed(nil)
	f.Add("", err)
	if agreed != nil && a.Role == dap.RoleLeader {
		m.helper = agreed.other
	}
	m.base = a.URL
	for i := range a.Tasks {
		if a.Tasks[i].validate(a.Role, a.Agreement.used()) != nil {
			continue // was told when the configuration was read
		}
		place := fmt.Sprintf("tasks[%d]: ", i)
		form, made, err := a.Tasks[i].source()
		t, c, err := a.Tasks[i].make(form, made, err, a.Role, agreed)
		if err != nil {
			f.Add(place, err)
			continue
		}
		base, err := baseOf(&t, a.Role)
		f.Add(place, err)
		f.If(err == nil && m.base != "" && m.base != base, "%sits recipe calls this %v %q, and another's, or url, calls it %q", place, a.Role, base, m.base)
		written, err := a.terms(&a.Tasks[i])
		f.Add(place, err)
		m.base, m.tasks = base, append(m.tasks, t)
		m.imports = append(m.imports, aggregator.Provision{
			Task: t, Form: form, Made: made, Terms: written, Source: aggregator.Imported, By: "configuration",
		})
		if c != nil {
			m.recipes, m.checked = append(m.recipes, c.Recipe()), append(m.checked, c)
		}
	}
	if len(m.tasks) < len(a.Tasks) { // what follows is of all recipes
		return nil, f
	}
	for i := range a.Taskprov {
		policy, err := a.Taskprov[i].policy(a, agreed)
		f.Add(fmt.Sprintf("taskprov[%d].", i), err)
		m.brings = append(m.brings, policy)
	}
	if m.base == "" {
		own, err := a.Agreement.invited(Role(a.Role.String()))
		if f.Add("", err); err == nil {
			m.base = own.URL
		}
	}
	m.signing, err = a.signing(m.recipes)
	f.Add("", err)
	m.counts, err = a.counting(m.recipes)
	f.Add("issuer.", err)
	m.keep = keepIssuer(m.counts, m.recipes)
	m.epochs, err = a.schedule(m.recipes, m.signing)
	f.Add("", err)
	if err := f.All(); err != nil {
		return nil, err
	}
	return m, nil
}

// make makes a task of the bytes that it is made of and of the files that it names, or says
// why the bytes were not read, and what else is wrong; its recipe is nil where it has none.
func (t *Task) make(form aggregator.Form, made []byte, unread error, role dap.Role, agreed *shared) (out aggregator.Task, c *recipe.Checked, err error) {
	var f Faults
	if err = unread; err != nil {
		// all else is said with it
	} else if form == aggregator.Configuration {
		out, err = t.ofConfiguration(made)
	} else if c, err = openRecipe(made); err != nil {
		if t.Recipe != "" {
			err = fmt.Errorf("%s: %w", t.Recipe, err)
		}
	} else {
		out, err = t.ofRecipe(c)
	}
	known := err == nil // which task it is
	f.Add("", t.validateAdvertised(role, form == aggregator.Configuration))
	f.Add("", err)
	out.Framing, out.Advertise = t.Framing, t.Advertise
	out.VerifyKeys, err = readVerifyKeys(t.VerifyKeys)
	f.Add("verify_keys: ", err)
	if known && t.VerifyKeyInit != "" {
		f.Add("verify_key_init: ", t.keyOfSeed(&out))
	}
	if known {
		f.Add("", agreed.fill(t, &out, role))
	}
	token := func(name string, file service.Secret, into *string) {
		if file != "" {
			*into, err = file.Text()
			f.Add(name+": ", err)
		}
	}
	token("peer_token", t.PeerToken, &out.PeerToken)
	if role == dap.RoleLeader {
		token("collector_token", t.CollectorToken, &out.CollectorToken)
	}
	if t.CollectorHPKE != "" || agreed != nil {
		out.CollectorHPKE, err = t.readCollector(c, agreed)
		f.Add("collector_hpke: ", err)
	}
	if len(f) == 0 {
		f.Add("", out.Validate(role))
	}
	return out, c, f.All()
}

// readVerifyKeys reads verification keys by their ids.
func readVerifyKeys(keys []VerifyKey) (map[uint8][vdaf.VerifyKeySize]byte, error) {
	all := make(map[uint8][vdaf.VerifyKeySize]byte)
	var f Faults
	for _, k := range keys {
		text, err := k.File.Text()
		if err != nil {
			f.Add("", err)
			continue
		}
		b, err := hex.DecodeString(text)
		if err != nil || len(b) != vdaf.VerifyKeySize {
			f.If(true, "%s does not hold %d hexadecimal digits", k.File, 2*vdaf.VerifyKeySize)
			continue
		}
		_, twice := all[k.ID]
		f.If(twice, "id %d stands twice", k.ID)
		all[k.ID] = [vdaf.VerifyKeySize]byte(b)
	}
	return all, f.All()
}

// readCollector reads the collector's public key, and holds it to the recipe, which may
// be nil.
func (t *Task) readCollector(c *recipe.Checked, agreed *shared) (config dap.HpkeConfig, err error) {
	var b []byte
	if t.CollectorHPKE == "" {
		b = agreed.collectorConfig
	} else if b, err = readFile(string(t.CollectorHPKE), maxPublicKey); err != nil {
		return config, err
	}
	if config, err = dap.ReadHpkeConfig(b); err != nil {
		return config, err
	}
	if c != nil {
		err = collectorBound(c.Recipe(), b)
	}
	return config, err
}

// ofRecipe is what the task's recipe says of it.
func (t *Task) ofRecipe(c *recipe.Checked) (out aggregator.Task, err error) {
	r := c.Recipe()
	if out, err = aggregator.TaskOf(c, aggregator.Secrets{}); err != nil {
		return out, err
	}
	if out.Expected = t.expectation(); t.Expected.Reports == 0 && r.Rate != nil {
		out.Expected = stated(r)
	}
	if out.Expected.Reports > 0 {
		half := halfHonest(c)
		out.Expected.HalfHonestEpsilon, out.Expected.HalfHonestDelta = half.Epsilon, half.Delta
	}
	return out, nil
}

// expectation is what the operator expects.
func (t *Task) expectation() aggregator.Expectation {
	return aggregator.Expectation{Reports: t.Expected.Reports, Units: t.Expected.Units}
}

// stated is what the recipe expects in each of its rounds, or slots: the reports and
// dummies of its rate, were every answer the one most often reported.
func stated(r *recipe.Recipe) aggregator.Expectation {
	most, ok := r.MostExpected()
	if !ok || !(most > 0) {
		return aggregator.Expectation{}
	}
	e := aggregator.Expectation{Reports: math.MaxUint64, Units: r.BatchUnits()}
	if most = math.Ceil(most); most < 1<<64 {
		e.Reports = uint64(most)
	}
	return e
}

// halfHonest is what is left to an honest person if an attacker sent half of the reports
// that the guarantee counts on. Where dummies or other people's answers hide a person,
// the recipe's own fallback says it, over all rounds. Where nothing but the servers'
// noise protects, it does not matter who else takes part: all that one batch promises is
// left. Zero: not known.
func halfHonest(c *recipe.Checked) recipe.Loss {
	g := c.Guarantee()
	left := g.PerRound
	if f, ok := g.Fallback(recipe.HalfAreDishonest); ok {
		left = f.Loss
	} else if c.Recipe().Randomized() {
		return recipe.Loss{}
	}
	if !left.Finite() {
		return recipe.Loss{}
	}
	return left
}

func readKeyPair(file service.Secret) (*sealed.KeyPair, error) {
	b, err := file.Read()
	if err != nil {
		return nil, err
	}
	k, err := sealed.ParseKeyPair(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return k, nil
}

func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return b, nil
}

// A Collector is the configuration of a collector: collector.toml.
type Collector struct {
	// Party is "collector". Required.
	Party Role `toml:"role"`
	// Recipe is the recipe file. Required.
	Recipe service.Path `toml:"recipe"`
	// Token is what the leader knows the collector by. Required, unless there is an
	// Agreement.
	Token service.Secret `toml:"token"`
	// HPKEKey opens the aggregate shares. Required.
	HPKEKey service.Secret `toml:"hpke_key"`
	// Agreement is where the token comes from where it has no file. Optional.
	Agreement Agreement `toml:"agreement"`
	// State is where a collection under way is kept, so that one that stopped goes on.
	// Required.
	State service.Path `toml:"state"`
	// Framing is "janus" where the leader frames its messages as Janus does. Default
	// "standard".
	Framing dap.Framing `toml:"framing"`
}

// LoadCollector reads and validates collector.toml.
func LoadCollector(path string) (*Collector, error) {
	c := &Collector{}
	if err := loadAs(path, CollectorRole, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate says what is wrong with the configuration by itself.
func (c *Collector) Validate() error {
	var f Faults
	f.Add("", c.Agreement.validate())
	for _, x := range []struct{ key, value string }{
		{"recipe", string(c.Recipe)}, {"token", string(c.Token) + string(c.Agreement.Key)}, {"hpke_key", string(c.HPKEKey)}, {"state", string(c.State)},
	} {
		f.If(x.value == "", "%s: required", x.key)
	}
	return f.All()
}

// Check reads every file that the configuration names, and asks nobody.
func (c *Collector) Check() error {
	_, _, _, err := c.Read()
	return err
}

// Read reads the files that the configuration names, and says all that is wrong with
// them.
func (c *Collector) Read() (checked *recipe.Checked, token string, key *sealed.KeyPair, err error) {
	var f Faults
	if c.Recipe != "" {
		checked, err = OpenRecipe(string(c.Recipe))
		f.Add("", err)
	}
	if c.Token != "" {
		token, err = c.Token.Text()
		f.Add("token: ", err)
	} else if checked != nil {
		token, err = c.agreedToken(checked.Recipe())
		f.Add("", err)
	}
	if c.HPKEKey != "" {
		key, err = readKeyPair(c.HPKEKey)
		f.Add("hpke_key: ", err)
	}
	if checked != nil && key != nil {
		config, err := dap.NewHpkeConfig(key).Append(nil)
		if err == nil {
			err = collectorBound(checked.Recipe(), config)
		}
		f.Add("hpke_key: ", err)
	}
	if err := f.All(); err != nil {
		return nil, "", nil, err
	}
	return checked, token, key, nil
}

// agreedToken is the token that follows of the agreement with the leader.
func (c *Collector) agreedToken(r *recipe.Recipe) (string, error) {
	s, leader, err := c.Agreement.with(CollectorRole, LeaderRole)
	if err != nil {
		return "", err
	}
	task, err := r.Task()
	if err != nil {
		return "", fmt.Errorf("recipe: %w", err)
	}
	if string(task.Leader) != leader.URL {
		return "", fmt.Errorf("recipe: its leader is %q, and the leader's invitation is of %q", task.Leader, leader.URL)
	}
	return s.Token(task.TaskID())
}

// client is how the leader is reached: nil where nothing is said of that.
func (c *Collector) client() (*http.Client, error) {
	if !c.Agreement.used() {
		return nil, nil
	}
	leader, err := c.Agreement.invited(LeaderRole)
	if err != nil {
		return nil, err
	}
	pool, err := trusts(leader)
	if err != nil || pool == nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	return &http.Client{Transport: t, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}
