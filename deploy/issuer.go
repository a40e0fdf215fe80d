package deploy

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/issuer"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

const (
	// IssuerPath is where an aggregator's issuer takes orders, below the aggregator's URL.
	IssuerPath = "starling_issue"
	// CohortPath is where the local listener says how many devices there are of an epoch.
	CohortPath = "/cohort"

	manifestSuffix = ".manifest"
	registerDir    = "issuer" // in Data, where the engine is embedded
	retireEvery    = time.Hour
	// lateReports is for how much longer than a round waits the key of its epoch is kept: for
	// reports that were taken in time and are verified late.
	lateReports = 24 * time.Hour
)

// An Issuer gives devices their credentials, beside an aggregator.
type Issuer struct {
	// Keys is the directory of its keys, one an epoch, as starling key issuer makes them.
	// Required where recipes count devices. With engine "postgres" each process has a
	// directory of its own, with the same keys.
	Keys service.Path `toml:"keys"`
	// Manifests is a directory of the epochs' manifests, NAME.manifest, which say whom it
	// answers and how often; it is looked at all the time. Required together with it.
	Manifests service.Path `toml:"manifests"`
	// Recipe is a recipe of the deployment. Default: the first of tasks that counts devices.
	Recipe service.Path `toml:"recipe"`
	// Policy is the file that devices have, of the transparency log whose numbers of
	// credentials batches are compared with, beside the issuer's own. Optional.
	Policy service.Path `toml:"policy"`
	// Anchors is the file of the owners whose word is taken there. Required together with it.
	Anchors service.Path `toml:"anchors"`
}

func (i *Issuer) used() bool { return *i != (Issuer{}) }

// validateIssuer says what is wrong with the issuer by itself.
func (a *Aggregator) validateIssuer() error {
	var f Faults
	if i := a.Issuer; i.used() {
		f.If(i.Keys == "" || i.Manifests == "", "keys, manifests: both are required; starling key issuer makes keys, starling manifest new manifests")
		f.If((i.Policy == "") != (i.Anchors == ""), "policy, anchors: both are required, or none: devices' policy of the log, and the owners whose word is taken there")
	}
	return f.All()
}

// counting are the recipe that an issuer goes by and what is known of it; nil where there is
// no issuer.
func (a *Aggregator) counting(recipes []*recipe.Recipe) (*recipe.Recipe, error) {
	i := slices.IndexFunc(recipes, func(r *recipe.Recipe) bool { return r.Tokens != nil })
	if !a.Issuer.used() {
		if i >= 0 {
			return nil, errors.New("keys: required, for a recipe counts devices; starling key issuer makes them")
		}
		return nil, nil
	}
	var r *recipe.Recipe
	switch {
	case a.Issuer.Recipe != "":
		c, err := OpenRecipe(string(a.Issuer.Recipe))
		if err != nil {
			return nil, err
		}
		r = c.Recipe()
	case i >= 0:
		r = recipes[i]
	default:
		return nil, errors.New("recipe: required, for none of tasks counts devices")
	}
	if r.Tokens == nil {
		return nil, errors.New("recipe: it counts no devices")
	}
	deployment, err := r.Deployment()
	if err != nil {
		return nil, err
	}
	if a.Issuer.Policy != "" && a.Issuer.Anchors != "" {
		if _, _, _, err := a.Issuer.followable(r); err != nil {
			return nil, err
		}
	}
	for _, other := range recipes {
		if id, err := other.Deployment(); other.Tokens != nil && (err != nil || id != deployment || other.Tokens.Key != r.Tokens.Key) {
			return nil, errors.New("recipe: tasks count devices of two deployments or attesters, and an issuer is of one")
		}
	}
	return r, nil
}

// keepIssuer is for how long after its epoch a key is kept: until the reports of the longest
// grace of all recipes that count devices, that of the issuer among them, are verified.
func keepIssuer(own *recipe.Recipe, recipes []*recipe.Recipe) time.Duration {
	grace := lateReports
	for _, r := range append(slices.Clone(recipes), own) {
		if r != nil && r.Tokens != nil {
			grace = max(grace, r.Grace())
		}
	}
	return grace + lateReports
}

// A manifestDir has the manifests of a deployment, by epoch, from files that others put there.
type manifestDir struct {
	dir        string
	deployment [32]byte
	verify     func(*ohttp.Manifest) error // who must have signed
	log        *slog.Logger

	mu    sync.Mutex
	files map[string]manifestFile
}

type manifestFile struct {
	at   time.Time
	size int64
	m    *ohttp.Manifest // nil where it is none of the deployment's
}

func manifestsOf(dir service.Path, r *recipe.Recipe, log *slog.Logger) (*manifestDir, error) {
	deployment, err := r.Deployment()
	if err != nil {
		return nil, err
	}
	verify := func(m *ohttp.Manifest) error {
		return m.Verify(ohttp.Roots{Leader: r.ServerKeys.Leader, Helper: r.ServerKeys.Helper, Gateway: r.ServerKeys.Gateway})
	}
	if !r.Path.Proofs() {
		verify = func(m *ohttp.Manifest) error {
			i := slices.IndexFunc(m.Signatures, func(s ohttp.Cosignature) bool { return s.Role == signed.Gateway })
			if i < 0 {
				return fmt.Errorf("%w: the gateway has not signed", ohttp.ErrUnsigned)
			}
			return m.VerifyOne(m.Signatures[i], r.GatewayKey())
		}
	}
	return &manifestDir{dir: string(dir), deployment: deployment, verify: verify, log: log, files: make(map[string]manifestFile)}, nil
}

// of is the manifest of an epoch with issuers, of the highest revision; nil where there is
// none that all who must have signed. It begins with the first of its revisions: nothing is
// given out for an epoch once devices were counted, whatever is signed later.
func (d *manifestDir) of(epoch uint32) (found *ohttp.Manifest, begin time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		d.log.Error("the directory of manifests cannot be read", "error", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), manifestSuffix) {
			continue
		}
		m := d.read(e)
		if m == nil || m.Epoch != epoch {
			continue
		}
		if found == nil || m.NotBefore.Before(begin) {
			begin = m.NotBefore
		}
		if found == nil || m.Revision > found.Revision {
			found = m
		}
	}
	return found, begin
}

// all are those of all epochs, each of the highest revision.
func (d *manifestDir) all() []*ohttp.Manifest {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		d.log.Error("the directory of manifests cannot be read", "error", err)
	}
	of := make(map[uint32]*ohttp.Manifest)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), manifestSuffix) {
			continue
		}
		if m := d.read(e); m != nil && (of[m.Epoch] == nil || m.Revision > of[m.Epoch].Revision) {
			of[m.Epoch] = m
		}
	}
	return slices.Collect(maps.Values(of))
}

func (d *manifestDir) read(e os.DirEntry) *ohttp.Manifest {
	info, err := e.Info()
	if err != nil {
		return nil // it is gone
	}
	if known, ok := d.files[e.Name()]; ok && known.at.Equal(info.ModTime()) && known.size == info.Size() {
		return known.m
	}
	b, err := readFile(filepath.Join(d.dir, e.Name()), ohttp.MaxManifest)
	var m *ohttp.Manifest
	if err == nil {
		m, err = ohttp.ReadManifest(b)
	}
	if err == nil {
		err = d.verify(m)
	}
	switch {
	case err != nil:
		d.log.Warn("a manifest is not used", "file", e.Name(), "error", err)
		m = nil
	case m.Deployment != d.deployment || m.Issuers == nil:
		m = nil
	}
	d.files[e.Name()] = manifestFile{info.ModTime(), info.Size(), m}
	return m
}

// An openedIssuer has the directory of its keys open.
type openedIssuer struct {
	*issuer.Issuer
	keys     *disk.OSFS
	root     signed.PublicKey // of the aggregator's owner
	followed *followed        // nil where no log is followed
}

// outlives says that keys last until the reports of a task, which comes while it runs, are
// verified.
func (x *openedIssuer) outlives(t *aggregator.Task) error {
	if x == nil || t.Credentials == nil || t.Calendar == nil || t.Calendar.Grace+lateReports <= x.Keep() {
		return nil
	}
	return fmt.Errorf("its devices may send until %v after a round, and the issuer here keeps the key of an epoch for %v after it; "+
		"name the recipe as issuer.recipe, or in tasks, and start again", t.Calendar.Grace, x.Keep())
}

func (x *openedIssuer) Close() error {
	if x == nil {
		return nil
	}
	return errors.Join(x.Issuer.Close(), x.keys.Close())
}

// openIssuer opens the issuer beside an aggregator, whose register is where the aggregator's
// rows are: in its data, or in its database.
func (a *Aggregator) openIssuer(ctx context.Context, r *recipe.Recipe, keep time.Duration, data disk.FS, log *slog.Logger) (*openedIssuer, error) {
	manifests, err := manifestsOf(a.Issuer.Manifests, r, log)
	if err != nil {
		return nil, err
	}
	keys, err := disk.OS(string(a.Issuer.Keys))
	if err != nil {
		return nil, fmt.Errorf("issuer.keys: %w", err)
	}
	opt := issuer.Options{
		Role: signed.Role(a.Role), Deployment: manifests.deployment, Epoch: r.ServerKeys.Epoch(), Keys: keys, Keep: keep, Log: log,
		Terms: func(epoch uint32) (t issuer.Terms, ok bool) {
			m, begin := manifests.of(epoch)
			if m == nil || m.Issuers.Attester != r.Tokens.Key {
				return t, false
			}
			key := m.Issuers.Leader
			if a.Role == dap.RoleHelper {
				key = m.Issuers.Helper
			}
			return issuer.Terms{Key: key, Attester: m.Issuers.Attester, Cap: m.Issuers.Cap, Begin: begin}, true
		},
	}
	switch {
	case a.Engine == Postgres:
		opt.Shared, err = database.OpenIssued(ctx, *a.Database.options(), manifests.deployment)
	default:
		err = disk.MakeDirs(data, registerDir)
		opt.Register = disk.Sub(data, registerDir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("issuer: %w", err), keys.Close())
	}
	x, err := issuer.New(opt)
	if err != nil {
		if opt.Shared != nil {
			err = errors.Join(err, opt.Shared.Close())
		}
		return nil, errors.Join(err, keys.Close())
	}
	followed, err := a.follow(r, manifests, x.Count, data)
	if err != nil {
		return nil, errors.Join(err, x.Close(), keys.Close())
	}
	root := r.ServerKeys.Leader
	if a.Role == dap.RoleHelper {
		root = r.ServerKeys.Helper
	}
	return &openedIssuer{x, keys, root, followed}, nil
}

// issued is an issuer as the aggregator beside it asks it.
type issued struct{ *openedIssuer }

// Verifier implements [aggregator.Issuer].
func (x issued) Verifier(ctx context.Context, deployment [32]byte, epoch uint64) (*arc.Verifier, arc.KeyID, error) {
	v, key, err := x.openedIssuer.Verifier(ctx, deployment, epoch)
	if errors.Is(err, issuer.ErrNoKey) {
		err = fmt.Errorf("%w: %w", aggregator.ErrNoIssuerKey, err)
	}
	return v, key, err
}

// Issued implements [aggregator.Issuer].
func (x issued) Issued(ctx context.Context, deployment [32]byte, epoch uint64) (uint64, error) {
	if deployment != x.Deployment() || epoch > math.MaxUint32 {
		return 0, fmt.Errorf("issuer: it gives out no credentials of epoch %d of deployment %x", epoch, deployment[:4])
	}
	return x.Count(ctx, uint32(epoch))
}

// issuerKey is what the notary is told of the issuer's keys.
func (a *Aggregator) issuerKey() func([32]byte, uint32) ([ohttp.IssuerKeySize]byte, bool) {
	if !a.Issuer.used() {
		return nil
	}
	return func(deployment [32]byte, epoch uint32) (key [ohttp.IssuerKeySize]byte, ok bool) {
		public, err := IssuerKey(string(a.Issuer.Keys), signed.Role(a.Role), deployment, epoch)
		if err != nil {
			return key, false
		}
		return [ohttp.IssuerKeySize]byte(public.Append(nil)), true
	}
}

// IssuerKey is the public key of an epoch in a directory of an issuer's keys.
func IssuerKey(dir string, role signed.Role, deployment [32]byte, epoch uint32) (*arc.PublicKey, error) {
	keys, err := disk.OS(dir)
	if err != nil {
		return nil, fmt.Errorf("issuer's keys: %w", err)
	}
	public, err := issuer.ReadPublicKey(keys, role, deployment, epoch)
	return public, errors.Join(err, keys.Close())
}

// MakeIssuerKey makes the key of an epoch in a directory, which is made where it is missing.
func MakeIssuerKey(dir string, role signed.Role, deployment [32]byte, epoch uint32) (*arc.PublicKey, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("issuer's keys: %w", err)
	}
	keys, err := disk.OS(dir)
	if err != nil {
		return nil, fmt.Errorf("issuer's keys: %w", err)
	}
	public, err := issuer.MakeKey(keys, role, deployment, epoch)
	return public, errors.Join(err, keys.Close())
}

// retires destroys the keys of epochs that are over, now and then.
func retires(ctx context.Context, x interface {
	Retire(context.Context) (uint32, bool, error)
}, log *slog.Logger) {
	for t := time.NewTicker(retireEvery); ; {
		switch last, any, err := x.Retire(ctx); {
		case err != nil:
			log.Error("keys of epochs that are over were not destroyed", "error", err)
		case any:
			log.Info("the issuer's keys were destroyed", "up_to_epoch", last)
		}
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// isOrder says whether a request is for the issuer beside the aggregator at a base path.
func isOrder(r *http.Request, base string) bool { return r.URL.Path == base+"/"+IssuerPath }

// A Cohort is how many devices an issuer has answered for an epoch, or an attester let ask.
type Cohort struct {
	Role       string `json:"role"`
	Deployment string `json:"deployment"` // in hexadecimal digits
	// Owner is the root key of who is to say it, in hexadecimal digits.
	Owner   string `json:"owner"`
	Epoch   uint32 `json:"epoch"`
	Devices uint64 `json:"devices"`
}

// answerCohort says how many there are of an epoch that has begun.
func answerCohort(w http.ResponseWriter, r *http.Request, role string, deployment [32]byte, owner signed.PublicKey, count func(context.Context, uint32) (uint64, error)) error {
	epoch, err := strconv.ParseUint(r.URL.Query().Get("epoch"), 10, 32)
	if err != nil {
		return &status.BadRequest{Err: errors.New("epoch: a number is required")}
	}
	n, err := count(r.Context(), uint32(epoch))
	if err != nil {
		return &status.BadRequest{Err: err}
	}
	status.Answer(w, &Cohort{role, hex.EncodeToString(deployment[:]), owner.String(), uint32(epoch), n})
	return nil
}
