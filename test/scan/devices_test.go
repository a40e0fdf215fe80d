package scan

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

// A device has an address, a directory, and what it was given.
type device struct {
	w      *world
	code   string
	dir    string
	http   *http.Client
	wallet *credentials.Wallet
	now    time.Time // on its clock
	way    *way
}

// heard passes on what a device sends to its attester, and looks for what is in it.
type heard struct{ d *device }

func (h heard) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet { // the gateway's keys, which all ask for alike
		return h.d.http.Do(r)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	n := h.d.w.needles
	if e, err := visit.ReadEnrolment(b); err == nil {
		n.needle("secret", e.Secret[:])
		hash := sha256.Sum256(append([]byte("starling device secret v1"), e.Secret[:]...))
		n.needle("hash of the secret", hash[:])
	} else if v, err := visit.Read(b); err == nil {
		digest := v.Digest()
		n.needle("hash of the visit", digest[:])
		for _, q := range [][]byte{v.Leader[:], v.Helper[:]} {
			hash := sha256.Sum256(q)
			n.needle("hash of the request", hash[:])
		}
		order := visit.TokenOrder{Deployment: v.Deployment, Epoch: v.Epoch, Asks: v.Asks}
		ordered := order.Digest()
		n.needle("hash of the order", ordered[:])
		for ask := range slices.Chunk(v.Asks, visit.AskSize) {
			n.needle("request for a token", ask[2:]) // but for how many elements it has
		}
	} else {
		return nil, errors.New("a message of an unknown kind")
	}
	return h.d.http.Do(r)
}

// way passes on what a device sends by the relay, and looks for what is in it.
type way struct {
	*ohttp.Transport
	d    *device
	sent []byte // the last upload
}

func (x *way) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		for report, err := range dap.Reports(b, nil) {
			if err == nil {
				err = x.d.w.sees(&report, "")
			}
			if err != nil {
				return nil, err
			}
			x.sent = bytes.Clone(b)
		}
	}
	return x.Transport.Do(r)
}

// sees has a report looked for, and what leader and helper will find in it. Its kind goes
// before the names of what is known to both by itself.
func (w *world) sees(r *dap.Report, kind string) error {
	n := w.needles
	n.needle(kind+"report id", r.Metadata.ID[:])
	task, cfg := w.checked.Task()
	aad := dap.InputShareAAD(task, cfg.Bytes(), &r.Metadata, r.PublicShare)
	for i, x := range []struct {
		role   dap.Role
		sealed *dap.HpkeCiphertext
	}{{dap.RoleLeader, &r.Leader}, {dap.RoleHelper, &r.Helper}} {
		n.needle(kind+"sealed share", x.sealed.Enc)
		n.needle(kind+"sealed share", x.sealed.Payload)
		plain, err := w.openShare(x.role, x.sealed, cfg.Version.InputShareInfo(x.role), aad)
		if err != nil {
			return err
		}
		share, err := dap.ReadPlaintextInputShare(plain)
		if err != nil {
			return err
		}
		n.needle("share", share.Payload)
		data, _ := share.PrivateExtensions.Get(dap.ExtPresentation)
		p, err := arc.ReadPresentation(data)
		if err != nil {
			return err
		}
		tag := p.Tag()
		mark := w.verifiers[i].Mark(tag)
		n.needle("tag", tag[:])
		n.needle("presentation", data)
		n.needle(kind+"mark", mark[:])
	}
	return nil
}

// openShare opens a share as the aggregator will, with the key from its directory.
func (w *world) openShare(role dap.Role, c *dap.HpkeCiphertext, info, aad []byte) ([]byte, error) {
	files, err := filepath.Glob(w.in(map[dap.Role]string{dap.RoleLeader: "leader", dap.RoleHelper: "helper"}[role] + "/keys/*.hpke"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		k, err := sealed.ParseKeyPair(b)
		if err != nil {
			return nil, err
		}
		if k.ID() == c.ConfigID {
			return k.Open(c.Enc, info, aad, c.Payload)
		}
	}
	return nil, fmt.Errorf("no key %d of the %v", c.ConfigID, role)
}

// device makes one, with an address of its own where the system gives any.
func (w *world) device(i int) *device {
	t := w.t
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	d := &device{w: w, code: w.codes[i], dir: fmt.Sprintf("device-%d", i+1), now: time.Now()}
	dialer := &net.Dialer{}
	if runtime.GOOS == "linux" { // which takes all of 127.0.0.0/8 for its own
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, byte(190+i), byte(201+i), byte(130+7*i))}
	}
	from := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			at := c.LocalAddr().(*net.TCPAddr).AddrPort()
			if dialer.LocalAddr != nil {
				w.needles.address(at)
			}
			w.needles.text("address", at.String())
		}
		return c, err
	}}
	t.Cleanup(from.CloseIdleConnections)
	d.http = &http.Client{Transport: from}
	w.needles.text("code", d.code)
	hash := sha256.Sum256([]byte("starling enrolment code v1" + d.code))
	w.needles.needle("hash of the code", hash[:])

	fsys, err := disk.OS(w.in(d.dir + "/wallet"))
	ok(err)
	d.wallet, err = credentials.Open(credentials.Options{Attester: w.recipe.Tokens.Attester, Deployment: w.issuing.Deployment, FS: fsys, HTTP: heard{d},
		Now: func() time.Time { return d.now }})
	ok(err)
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Relay: from, Source: d.manifests()})
	ok(err)
	d.way = &way{Transport: via, d: d}
	return d
}

func (d *device) manifests() *client.Manifests {
	d.w.t.Helper()
	m, err := client.NewManifests(client.ManifestsOptions{Recipe: d.w.recipe, Anchors: d.w.anchors, Source: ohttp.Pin(d.w.manifest), Memory: client.Forgetful()})
	if err != nil {
		d.w.t.Fatal(err)
	}
	return m
}

// enrol has the attester know it.
func (d *device) enrol(ctx context.Context) error { return d.wallet.Enrol(ctx, []byte(d.code)) }

// plan has the device make its requests, and looks for what it keeps until they are answered.
func (d *device) plan() error {
	if _, err := d.wallet.Plan(d.w.issuing); err != nil {
		return err
	}
	b := d.w.read(d.dir + "/wallet/wallet")
	found, anyIssuer := 0, arc.GenerateKey()
	for i := 0; i+arc.PendingSize <= len(b); i++ { // wherever they stand in its file
		p, err := arc.ReadPending(b[i : i+arc.PendingSize])
		if err == nil { // other bytes may be read as one, too, but prove nothing
			_, err = anyIssuer.Respond(p.Request())
		}
		if err != nil {
			continue
		}
		found++
		all := p.Append(nil)
		d.w.needles.needle("credential", all[:32]) // m1, for good
		d.w.needles.needle("blind", all[32:128])
		d.w.needles.needle("request", all[128:])
		i += arc.PendingSize - 1
	}
	if found != 2 {
		return fmt.Errorf("%d pending requests in the wallet", found)
	}
	return nil
}

// visit has it visit the attester.
func (d *device) visit(ctx context.Context) error {
	if err := d.wallet.Visit(ctx, d.w.issuing); err != nil {
		return err
	}
	d.now = d.w.epochBegin.Add(time.Minute)
	c := arc.Cohort{Leader: devices, Helper: devices, Attested: devices}
	if err := d.wallet.Told(d.w.issuing, c); err != nil {
		return err
	}
	held, err := d.wallet.For(devices).Held(uint64(d.w.issuing.Epoch))
	if err != nil {
		return err
	}
	for _, c := range []*arc.Credential{held.Leader, held.Helper} {
		b := c.Append(nil)
		d.w.needles.needle("credential", b[:len(b)-33]) // but for the issuer's public key
	}
	for i := range d.w.tokens.Keys {
		token, err := d.wallet.Admission(d.w.checked.ID())(d.w.round + uint64(i))
		if err != nil {
			return err
		}
		d.w.needles.needle("token", token.Nonce[:])
		d.w.needles.needle("token", token.Output[:])
	}
	return nil
}

// client makes what it sends.
func (d *device) client() (*client.Client, error) {
	return client.New(client.Options{Checked: d.w.checked, Anchors: d.w.anchors, Via: d.way, Credentials: d.wallet.For(devices),
		Admission: d.wallet.Admission(d.w.checked.ID()), Tries: client.Tries{Count: 1, Every: 10 * time.Second}})
}

// answer has it decide and send.
func (d *device) answer(ctx context.Context) (err error) {
	c, err := d.client()
	if err != nil {
		return err
	}
	plan, err := participate.NewPlan(participate.PlanOptions{Client: c})
	if err != nil {
		return err
	}
	fsys, err := disk.OS(d.w.in(d.dir + "/ledger"))
	if err != nil {
		return err
	}
	ledger, err := participate.OpenLedger(fsys, participate.LedgerOptions{MaxEpsilon: 10, MaxDelta: .1})
	if err != nil {
		return errors.Join(err, fsys.Close())
	}
	defer func() { err = errors.Join(err, ledger.Close(), fsys.Close()) }()
	decision, err := (&participate.Device{Ledger: ledger}).Decide(ctx, plan, client.Bool(true), d.w.asked)
	if err != nil {
		return err
	}
	return decision.Send(ctx)
}

// report makes a report beside what the device's ledger knows of.
func (d *device) report(ctx context.Context) (dap.Report, error) {
	c, err := d.client()
	if err == nil {
		err = c.Refresh(ctx)
	}
	if err != nil {
		return dap.Report{}, err
	}
	return c.Prepare(client.Bool(true), d.w.asked)
}

// upload brings bytes to the leader itself, past relay and gateway.
func (d *device) upload(ctx context.Context, b []byte) error {
	task, _ := d.w.checked.Task()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.w.servers.LeaderURL()+"tasks/"+task.String()+"/reports", bytes.NewReader(b))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", dap.ContentType(dap.MediaUploadReq))
	resp, err := d.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the leader answers %d, %q, %w", resp.StatusCode, answer, err)
	}
	return nil
}

// refused has devices bring reports that do not count: one that is there already, a second
// of the same device, one that the helper cannot open, and one of another time.
func (w *world) refused(ctx context.Context) error {
	first, last := w.devices[0], w.devices[people]
	second, err := first.report(ctx)
	if err != nil {
		return err
	}
	if err := w.sees(&second, ""); err != nil { // its mark is the first one's
		return err
	}
	w.needles.needle("refused report id", second.Metadata.ID[:])
	spoiled, err := last.report(ctx)
	if err != nil {
		return err
	}
	if err := w.sees(&spoiled, "spoiled "); err != nil {
		return err
	}
	spoiled.Helper.Payload[len(spoiled.Helper.Payload)-1] ^= 1
	early := second
	early.Metadata.Time += 1000
	early.Metadata.ID[0] ^= 1
	w.needles.needle("early report id", early.Metadata.ID[:])
	b, err := dap.AppendUploadRequest(nil, []dap.Report{second, spoiled, early})
	if err != nil {
		return err
	}
	return errors.Join(first.upload(ctx, b), first.upload(ctx, first.way.sent))
}

// errs has the device make mistakes everywhere, of which somebody might tell.
func (d *device) errs(ctx context.Context) error {
	for _, base := range []string{d.w.recipe.Tokens.Attester, d.w.front.RelayURL(), d.w.servers.LeaderURL(), d.w.watched.LogURL(), "http://" + d.w.watched.Witnesses[0].Public.Addr().String() + "/"} {
		for _, path := range []string{"", "enrol", "visit", "checkpoint", "add-checkpoint", deploy.IssuerPath, "tasks/" + d.code + "/reports"} {
			for _, media := range []string{"", visit.EnrolMedia, visit.VisitMedia, ohttp.RequestMedia} {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(d.code))
				if err != nil {
					return err
				}
				r.Header.Set("Content-Type", media)
				r.Header.Set("Authorization", "Bearer "+d.code)
				r.Header.Set("X-Forwarded-For", d.code)
				resp, err := d.http.Do(r)
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, resp.Body)
				if err = errors.Join(err, resp.Body.Close()); err != nil {
					return err
				}
			}
		}
		// What is no HTTP, and a request that ends in its middle.
		for _, text := range []string{"\x16\x03\x01" + d.code + "\r\n\r\n", "POST /enrol HTTP/1.1\r\nHost: x\r\nContent-Type: " + visit.EnrolMedia + "\r\nContent-Length: 100\r\n\r\n" + d.code} {
			c, err := d.http.Transport.(*http.Transport).DialContext(ctx, "tcp", strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/"))
			if err != nil {
				return err
			}
			if _, err := io.WriteString(c, text); err != nil {
				return err
			}
			if err := c.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}
