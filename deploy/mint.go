package deploy

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/mint"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
)

const (
	mintDir         = "tokens" // in a gateway's Data
	admissionSuffix = ".admission"
	// DefaultAdmissionGrace is for how long after its end a round's tokens are taken beside the
	// recipe's grace, for clocks that differ.
	DefaultAdmissionGrace = 5 * time.Minute
)

// A Mint gives devices the gateway's tokens.
type Mint struct {
	// Recipe is a recipe of the deployment, which names the attester and who signs manifests.
	// Required where recipes ask for admission: without it nobody has tokens.
	Recipe service.Path `toml:"recipe"`
	// Manifests is a directory of the epochs' manifests, NAME.manifest, which say whom it
	// answers, how often, and by which keys; it is looked at all the time. Default: epochs.
	Manifests service.Path `toml:"manifests"`
}

func (m *Mint) used() bool { return *m != (Mint{}) }

// validateMint says what is wrong with it by itself.
func (c *Gateway) validateMint() error {
	var f Faults
	if m := c.Mint; m.used() {
		f.If(m.Recipe == "", "recipe: required, one of the deployment")
		f.If(c.Admission == "", "recipe: there are no keys to give tokens of out by; admission names their directory")
	}
	return f.All()
}

// minting reads the recipe of a gateway that gives out tokens; nil where it does not.
func (c *Gateway) minting() (*recipe.Recipe, error) {
	if c.Mint.Recipe == "" {
		return nil, nil // what is missing was told when the configuration was read
	}
	checked, err := OpenRecipe(string(c.Mint.Recipe))
	if err != nil {
		return nil, err
	}
	r := checked.Recipe()
	if r.Tokens == nil {
		return nil, errors.New("recipe: it counts no devices")
	}
	return r, nil
}

// openMint opens what gives out tokens, beside a gateway that knows the keys; nil where there
// is none.
func (c *Gateway) openMint(g *gateway.Gateway, data disk.FS, log *slog.Logger) (*mint.Mint, *recipe.Recipe, error) {
	r, err := c.minting()
	if r == nil || err != nil {
		return nil, nil, err
	}
	dir := c.Mint.Manifests
	if dir == "" {
		dir = c.Epochs
	}
	manifests, err := manifestsOf(dir, r, log)
	if err != nil {
		return nil, nil, err
	}
	if err := disk.MakeDirs(data, mintDir); err != nil {
		return nil, nil, fmt.Errorf("issuer: %w", err)
	}
	x, err := mint.New(mint.Options{Deployment: manifests.deployment, Keys: g.AdmissionKeys, Register: disk.Sub(data, mintDir), Log: log,
		Terms: func(epoch uint32) (t mint.Terms, ok bool) {
			m, begin := manifests.of(epoch)
			if m == nil || m.Issuers.Attester != r.Tokens.Key {
				return t, false
			}
			t = mint.Terms{Attester: m.Issuers.Attester, Cap: m.Issuers.Cap, Begin: begin}
			for _, k := range m.Issuers.Admission {
				t.Lists = append(t.Lists, mint.List{Recipe: k.Recipe, Digest: k.Keys})
			}
			return t, true
		}})
	return x, r, err
}

// A GatewayStatus is what a gateway says of itself.
type GatewayStatus struct {
	*gateway.Status
	// Orders for tokens by what became of them, since the start (mint.Outcomes).
	Orders map[string]uint64 `json:"token_orders"`
}

func gatewayStatus(g *gateway.Gateway, x *mint.Mint) *GatewayStatus {
	s := &GatewayStatus{Status: g.Status(), Orders: make(map[string]uint64)}
	if x == nil {
		return s
	}
	for _, word := range mint.Outcomes() {
		if n := x.Outcome(word); n > 0 {
			s.Orders[word] = n
		}
	}
	return s
}

// RoundKeys say which keys for tokens a gateway is to have for a recipe that asks for
// admission.
type RoundKeys struct {
	Recipe *recipe.Recipe // required
	Epoch  uint32
	// From is when the first of the epoch's rounds begins that there are keys of; the zero
	// value is the epoch's first. Rounds is how many there are of at most; zero: to the epoch's
	// end.
	From   time.Time
	Rounds int
	// Grace is for how long after its end a round's tokens are taken; zero is the recipe's
	// grace and [DefaultAdmissionGrace].
	Grace time.Duration
}

// ErrNoAdmission: the recipe asks for no admission.
var ErrNoAdmission = errors.New("deploy: the recipe asks for no tokens of the gateway")

// Make makes the keys in a directory, which is made where it is missing, and returns what
// the epoch's manifest says of them. Where the directory has the recipe's keys of the
// epoch already they stay. It fails with [ErrNoAdmission] and [admission.ErrKeys].
func (k *RoundKeys) Make(dir string) (named ohttp.AdmissionKeys, err error) {
	keys, err := k.keys()
	if err != nil {
		return named, err
	}
	named.Recipe = keys.Recipe
	file := filepath.Join(dir, fmt.Sprintf("%s-%x%s", strconv.FormatUint(uint64(k.Epoch), 10), keys.Recipe[:8], admissionSuffix))
	b, err := service.Secret(file).Read()
	switch {
	case err == nil:
		old, err := admission.ReadKeys(b)
		clear(b)
		if err != nil {
			return named, fmt.Errorf("%s: %w", file, err)
		}
		if old.Deployment != keys.Deployment || old.Recipe != keys.Recipe || old.Task != keys.Task || old.Length != keys.Length {
			return named, fmt.Errorf("%s: %w: they are of another recipe", file, admission.ErrKeys)
		}
		named.Keys = old.Public().Digest()
		return named, nil
	case !errors.Is(err, os.ErrNotExist):
		return named, fmt.Errorf("keys for tokens: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return named, fmt.Errorf("keys for tokens: %w", err)
	}
	if b, err = keys.Append(nil); err != nil {
		return named, err
	}
	defer clear(b)
	fsys, err := disk.OS(dir)
	if err != nil {
		return named, fmt.Errorf("keys for tokens: %w", err)
	}
	err = disk.WriteFile(fsys, filepath.Base(file), b)
	if err = errors.Join(err, fsys.Close()); err != nil {
		return named, fmt.Errorf("keys for tokens: %w", err)
	}
	named.Keys = keys.Public().Digest()
	return named, nil
}

// keys makes them.
func (k *RoundKeys) keys() (*admission.Keys, error) {
	r := k.Recipe
	if r.Tokens == nil || !r.Tokens.Admission {
		return nil, ErrNoAdmission
	}
	deployment, err := r.Deployment()
	if err != nil {
		return nil, err
	}
	id, err := r.ID()
	if err != nil {
		return nil, err
	}
	task, err := r.Task()
	if err != nil {
		return nil, err
	}
	keys := &admission.Keys{Deployment: deployment, Recipe: id, Task: task.TaskID(), Length: r.RoundUnits() * uint64(r.TimePrecision)}
	first, n, err := admission.Rounds(uint64(k.Epoch), keys.Length, uint64(r.ServerKeys.EpochLength))
	if err != nil {
		return nil, err
	}
	keys.First = first
	if from := uint64(max(0, k.From.Unix())) / keys.Length; !k.From.IsZero() && from > first {
		if from-first >= uint64(n) {
			return nil, fmt.Errorf("%w: epoch %d has no round from %s on", admission.ErrKeys, k.Epoch, k.From.Format(time.RFC3339))
		}
		keys.First, n = from, n-int(from-first)
	}
	if k.Rounds > 0 {
		n = min(n, k.Rounds)
	}
	grace := k.Grace
	if grace == 0 {
		grace = r.Grace() + DefaultAdmissionGrace
	}
	keys.Grace = uint64(grace / time.Second)
	keys.Generate(n)
	return keys, nil
}

// tokensURL is where a recipe's gateway takes orders for tokens; empty where its devices go by
// no gateway.
func tokensURL(r *recipe.Recipe) string {
	if r.Relay == nil {
		return ""
	}
	return strings.TrimRight(r.Relay.Gateway, "/") + "/" + IssuerPath
}
