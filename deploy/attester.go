package deploy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/attester"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
)

// An Attester is the configuration of who vouches for devices: attester.toml.
type Attester struct {
	// Party is "attester". Required.
	Party Role `toml:"role"`
	// Public is where devices come. Required.
	Public service.Listen `toml:"public"`
	// Local is where the operator looks. Required.
	Local Local `toml:"local"`
	// Data is the directory of which devices there are and when they visited; made where it
	// is missing. Required, and used by one process at a time.
	Data service.Path `toml:"data"`
	// Recipe is a recipe of the deployment, which names the attester's root key. Required.
	Recipe service.Path `toml:"recipe"`
	// Manifests is a directory of the epochs' manifests, NAME.manifest; it is looked at
	// all the time. Required.
	Manifests service.Path `toml:"manifests"`
	// Codes is the file of the hashes of the codes that devices enrol with, of starling
	// attester codes; lines may be added while it runs, and devices with these enrol a second
	// later. It, OIDC or MTLS is required, as the recipe has it, and no other.
	Codes service.Path `toml:"codes"`
	// OIDC is the identity provider whose ID tokens devices enrol with.
	OIDC AttesterOIDC `toml:"oidc"`
	// MTLS says whose certificates devices enrol with. It goes with the public listener's
	// tls_certificate: of a proxy's word nothing is taken.
	MTLS AttesterMTLS `toml:"mtls"`
	// Names is the file of the key, of starling key token, that hides the persons or
	// certificates whom devices are of. It goes with OIDC and MTLS, and is never another:
	// who has enrolled would be a new device under it.
	Names service.Secret `toml:"names"`
	// Key is the file of the online key that signs orders. Required.
	Key service.Secret `toml:"key"`
	// Delegation is the word of the attester's root for it. Required.
	Delegation service.Path `toml:"delegation"`
	// Devices are known at most. Default 10,000,000.
	Devices int `toml:"devices"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`
}

// AttesterOIDC is an identity provider, by OpenID Connect.
type AttesterOIDC struct {
	// Issuer is the provider's URL, as its tokens have it. Required.
	Issuer string `toml:"issuer"`
	// Audience is the client that tokens are made for. Required.
	Audience string `toml:"audience"`
	// Claim names the person: one that is never another's, and that no person can change.
	// Default "sub".
	Claim string `toml:"claim"`
	// MaxAge is how long ago a token was made at most. Default 10m.
	MaxAge service.Duration `toml:"max_age"`
	// CA are the certificates, in a PEM file, of those who vouch for the provider's. Default:
	// the system's.
	CA service.Path `toml:"ca"`
}

// AttesterMTLS is who vouches for devices' certificates.
type AttesterMTLS struct {
	// CA are the certificates, in a PEM file, of the authorities that sign devices'. Required.
	CA service.Path `toml:"ca"`
	// Name is what tells devices apart: "key" for the public key, or "subject-serial" for
	// the serialNumber of the certificate's subject, which stays when the key is another.
	// Required.
	Name string `toml:"name"`
}

// certificateNames are the names of [AttesterMTLS.Name].
var certificateNames = map[string]attester.CertificateName{"key": attester.CertificateKey, "subject-serial": attester.SubjectSerial}

// kind is how devices are told apart; 0 where that is not said, or in more than one way.
func (c *Attester) kind() (kind recipe.Attestation) {
	n := 0
	for of, is := range map[recipe.Attestation]bool{recipe.Codes: c.Codes != "", recipe.OIDC: c.OIDC != (AttesterOIDC{}), recipe.MTLS: c.MTLS != (AttesterMTLS{})} {
		if is {
			kind = of
			n++
		}
	}
	if n != 1 {
		return 0
	}
	return kind
}

// LoadAttester reads and validates attester.toml, and none of the files that it names:
// [Attester.Check] does.
func LoadAttester(path string) (*Attester, error) {
	c := &Attester{}
	if err := loadAs(path, AttesterRole, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate says what is wrong with the configuration by itself.
func (c *Attester) Validate() error {
	var f Faults
	kind := c.kind()
	f.Add("public: ", c.Public.Validate())
	f.Add("local.address: ", service.Local{Address: c.Local.Address}.Validate())
	f.If(c.Data == "", "data: the directory of devices is required")
	f.If(c.Recipe == "", "recipe: required: one of the deployment, which names the attester")
	f.If(c.Manifests == "", "manifests: a directory is required, with the manifests that leader, helper and gateway have signed")
	f.If(kind == 0, "codes, oidc, mtls: want one of them; starling attester codes makes codes")
	f.If(kind > recipe.Codes != (c.Names != ""), "names: goes with oidc and mtls, and with these is required; starling key token makes it")
	if o := c.OIDC; o != (AttesterOIDC{}) {
		f.If(o.Audience == "", "oidc.audience: required: the client that tokens are made for")
		f.Add("oidc.issuer: ", endpoint.CheckPeer(o.Issuer))
		f.If(o.MaxAge < 0, "oidc.max_age: negative")
	}
	if m := c.MTLS; m != (AttesterMTLS{}) {
		f.If(m.CA == "", "mtls.ca: required: a PEM file")
		f.If(certificateNames[m.Name] == 0, "mtls.name: want \"key\" or \"subject-serial\"")
		f.If(c.Public.TLSCertificate == "", "mtls: goes with public.tls_certificate: devices show theirs to the attester itself")
		f.If(c.Public.TLSClientCA != "", "public.tls_client_ca: goes without mtls, which asks for certificates where devices enrol, and not where they visit")
	}
	f.If(c.Key == "" || c.Delegation == "", "key, delegation: required; starling key online makes both")
	f.If(c.Devices < 0, "devices: negative")
	return f.All()
}

func (c *Attester) shown() (service.Listen, Agreement, string) { return c.Public, Agreement{}, "" }

// maxCodes bounds a file of codes, in bytes.
const maxCodes = 128 << 20

// maxCertificates bounds a file of certificates, in bytes.
const maxCertificates = 1 << 20

// options reads the files that the configuration names, but for the directory of its own.
func (c *Attester) options(log *slog.Logger) (o attester.Options, r *recipe.Recipe, err error) {
	kind := c.kind()
	if c.Recipe == "" || kind == 0 || c.Key == "" || c.Delegation == "" {
		return o, nil, nil // was told when the configuration was read
	}
	var f Faults
	checked, err := OpenRecipe(string(c.Recipe))
	if err != nil {
		f.Add("", err)
	} else if r = checked.Recipe(); r.Tokens == nil {
		f.If(true, "recipe: it counts no devices")
	}
	o.Signer, err = ReadSigner(c.Key, string(c.Delegation))
	f.Add("", err)
	o.Attestation, err = c.attestation()
	f.Add("", err)
	if r != nil && r.Tokens != nil {
		f.If(r.Tokens.Attestation != kind, "recipe: by it devices enrol with %v, and here with %v", r.Tokens.Attestation, kind)
	}
	if all := f.All(); all != nil {
		return o, nil, all
	}
	f.If(o.Signer.Root() != r.Tokens.Key, "delegation: it is of the root %s, and the recipe's attester is %s", o.Signer.Root(), r.Tokens.Key)
	manifests, err := manifestsOf(c.Manifests, r, log)
	f.Add("recipe: ", err)
	if all := f.All(); all != nil {
		return o, nil, all
	}
	parties := r.Parties()
	o.Deployment, o.Devices, o.Log = manifests.deployment, c.Devices, log
	o.Leader, o.Helper = strings.TrimRight(parties[0].URL, "/")+"/"+IssuerPath, strings.TrimRight(parties[1].URL, "/")+"/"+IssuerPath
	o.Gateway, o.Hops = tokensURL(r), !r.Path.Proofs()
	o.Terms = func(epoch uint32) (t attester.Terms, ok bool) {
		m, begin := manifests.of(epoch)
		if m == nil || m.Issuers.Attester != o.Signer.Root() {
			return t, false
		}
		return attester.Terms{Begin: begin, Cap: m.Issuers.Cap, Tokens: len(m.Issuers.Admission) > 0}, true
	}
	return o, r, nil
}

// attestation is how devices are told apart.
func (c *Attester) attestation() (attester.Attestation, error) {
	if c.kind() == recipe.Codes {
		x := &codeList{path: string(c.Codes)}
		if err := x.read(); err != nil {
			return nil, fmt.Errorf("codes: %w", err)
		}
		return x, nil
	}
	var key attester.NameKey
	text, err := c.Names.Text()
	if err != nil {
		return nil, fmt.Errorf("names: %w", err)
	}
	if n, err := hex.Decode(key[:], []byte(text)[:min(len(text), 2*len(key))]); err != nil || n != len(key) || len(text) != 2*len(key) {
		return nil, fmt.Errorf("names: %s has not %d hexadecimal digits: starling key token makes them", c.Names, 2*len(key))
	}
	if m := c.MTLS; c.kind() == recipe.MTLS {
		roots, err := certificates(m.CA)
		if err != nil {
			return nil, fmt.Errorf("mtls.ca: %w", err)
		}
		return attester.NewCertificates(attester.CertificateOptions{Roots: roots, Name: certificateNames[m.Name], Key: key})
	}
	o := attester.OIDCOptions{Issuer: c.OIDC.Issuer, Audience: c.OIDC.Audience, Claim: c.OIDC.Claim, MaxAge: time.Duration(c.OIDC.MaxAge), Key: key}
	if c.OIDC.CA != "" {
		roots, err := certificates(c.OIDC.CA)
		if err != nil {
			return nil, fmt.Errorf("oidc.ca: %w", err)
		}
		o.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	}
	return attester.NewOIDC(o)
}

// A codeList is the codes of a file that is read again when it has changed and a device
// brings one that is not known, at most once a second.
type codeList struct {
	path string

	mu     sync.Mutex
	codes  *attester.Codes
	was    fs.FileInfo // when the codes were read
	looked time.Time
}

// read reads the file if it has changed; what cannot be read changes nothing.
func (x *codeList) read() error {
	now, err := os.Stat(x.path)
	if err != nil || x.was != nil && now.ModTime().Equal(x.was.ModTime()) && now.Size() == x.was.Size() {
		return err
	}
	b, err := readFile(x.path, maxCodes)
	if err != nil {
		return err
	}
	codes, err := attester.ReadCodes(b)
	if err == nil {
		x.codes, x.was = codes, now
	}
	return err
}

// Device implements [attester.Attestation].
func (x *codeList) Device(ctx context.Context, e *attester.Evidence) ([32]byte, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, err := x.codes.Device(ctx, e)
	if errors.Is(err, attester.ErrProof) && time.Since(x.looked) >= time.Second {
		x.looked = time.Now()
		if x.read() == nil {
			return x.codes.Device(ctx, e)
		}
	}
	return id, err
}

// certificates reads those of authorities.
func certificates(path service.Path) (*x509.CertPool, error) {
	b, err := readFile(string(path), maxCertificates)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("no certificate in %s", path)
	}
	return pool, nil
}

// Check reads every file that the configuration names, as starting would, and opens no
// directory or listener.
func (c *Attester) Check() error {
	var f Faults
	f.Add("public: ", c.Public.CheckFiles())
	_, _, err := c.options(slog.New(slog.DiscardHandler))
	f.Add("", err)
	return f.All()
}

// An AttesterStatus is what an attester says of itself: of no device.
type AttesterStatus struct {
	Now      time.Time         `json:"now"`
	Devices  int               `json:"devices"`
	Outcomes map[string]uint64 `json:"outcomes"`
}

// Parts returns the attester as components for [service.Run], in order: the attester with its
// directory, then the local listener, then the public one.
func (c *Attester) Parts(log *slog.Logger, open Listeners) []service.Part {
	log = log.With(slog.String("role", "attester"))
	metrics := service.NewMetrics()
	var running atomic.Pointer[attester.Attester]
	ready := func() service.Readiness {
		if running.Load() == nil {
			return service.Unready(service.ReasonStopping, errNotStarted)
		}
		return service.Ready(false)
	}
	metrics.Counts("starling_attester_requests_total", "Requests of devices, by what became of them.",
		service.Label{Name: "outcome", Values: attester.Outcomes(), Only: true}, func(word string) float64 {
			if a := running.Load(); a != nil {
				return float64(a.Outcome(word))
			}
			return 0
		})
	metrics.Gauge("starling_attester_devices", "Devices that are known.", func() float64 {
		if a := running.Load(); a != nil {
			return float64(a.Devices())
		}
		return 0
	})
	public := c.Public
	public.AskClients = c.kind() == recipe.MTLS
	return publicParty("attester", public, c.Local, log, open, metrics, ready,
		func(ctx context.Context, ready func()) error {
			o, r, err := c.options(log)
			if err != nil {
				return err
			}
			fsys, err := locked("data", string(c.Data))
			if err != nil {
				return err
			}
			o.FS = fsys
			a, err := attester.New(o)
			if err != nil {
				return errors.Join(err, fsys.Close())
			}
			running.Store(a)
			ready()
			forgets(ctx, a.Forget, r, log)
			running.Store(nil)
			return errors.Join(a.Close(), fsys.Close())
		},
		func() http.Handler {
			if a := running.Load(); a != nil {
				return a
			}
			return nil
		},
		func() any {
			a := running.Load()
			if a == nil {
				return nil
			}
			s := &AttesterStatus{Now: time.Now().UTC(), Devices: a.Devices(), Outcomes: make(map[string]uint64)}
			for _, word := range attester.Outcomes() {
				if n := a.Outcome(word); n > 0 {
					s.Outcomes[word] = n
				}
			}
			return s
		},
		status.Operated("", func(w http.ResponseWriter, r *http.Request) error {
			a := running.Load()
			if r.URL.Path != CohortPath || a == nil {
				return &status.BadRequest{Err: errors.New("nothing of that name, or not started")}
			}
			return answerCohort(w, r, "attester", a.Deployment(), a.Owner(),
				func(_ context.Context, epoch uint32) (uint64, error) { return a.Count(epoch) })
		}))
}

// forgets drops what is kept of epochs that are over, now and then, until ctx ends.
func forgets(ctx context.Context, forget func(last uint32) error, r *recipe.Recipe, log *slog.Logger) {
	for t := time.NewTicker(retireEvery); ; {
		if over := time.Now().Unix()/int64(r.EpochLength()) - 2; over >= 0 {
			if err := forget(uint32(over)); err != nil {
				log.Error("what is kept of epochs that are over was not dropped", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}
