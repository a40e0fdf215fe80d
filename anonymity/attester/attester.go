package attester

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/internal/orders"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/internal/body"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/signed"
)

// Terms are what the manifest of an epoch says of visits.
type Terms struct {
	// Begin is when the epoch begins: visits are before.
	Begin time.Time
	// Cap is how many devices may have credentials.
	Cap uint64
	// Tokens says that the gateway has keys for tokens of the epoch, which every visit asks
	// for, then, and else none.
	Tokens bool
}

// Options make an attester.
type Options struct {
	// Deployment is for whose issuers it vouches. Required.
	Deployment [32]byte
	// Signer is the attester's. Required.
	Signer *signed.Signer
	// Attestation tells devices apart. Required.
	Attestation Attestation
	// Leader and Helper are where the two issuers take orders. Required.
	Leader, Helper string
	// Hops says that these stand beside hop 1 and hop 2 of the shuffler.
	Hops bool
	// Gateway is where the gateway takes orders for tokens, and says which keys it has.
	// Required where Terms say that there are tokens.
	Gateway string
	// Terms are those of an epoch, false where no manifest of it is known. Required, and
	// safe for concurrent use.
	Terms func(epoch uint32) (Terms, bool)
	// FS has which devices there are, and their visits. Required, and used by one process at
	// a time.
	FS disk.FS
	// Devices are known at most; default 10,000,000.
	Devices int
	// Requests are worked on at one time; default 64.
	Requests int
	// Timeout is how long an issuer may take; default 15 s.
	Timeout time.Duration
	// Transport carries orders; default one of its own.
	Transport http.RoundTripper
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Log is told of what goes wrong, and never of a device; default none.
	Log *slog.Logger
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
}

const (
	defaultDevices  = 10_000_000
	defaultRequests = 64
	bodyTime        = 15 * time.Second
	maxBody         = max(visit.MaxEnrolment, visit.MaxSize)
	devicesFile     = "devices"
	visitsSuffix    = ".visits"
	secretDomain    = "starling device secret v1"
)

// Failpoints of an attester: before and after a visit is written down, and before the answer
// to it goes out.
const (
	failBeforeNote   = "attester.before-note"
	failBeforeOrder  = "attester.after-note-before-order"
	failBeforeAnswer = "attester.after-order-before-answer"
)

// Failpoints lists the failpoints of an attester, without those of its logs.
func Failpoints() []string { return []string{failBeforeNote, failBeforeOrder, failBeforeAnswer} }

func (o *Options) validate() error {
	switch {
	case o.Signer == nil || o.Attestation == nil || o.Terms == nil || o.FS == nil:
		return errors.New("attester: no signer, attestation, terms or directory")
	case o.Devices < 0 || o.Requests < 0 || o.Timeout < 0:
		return errors.New("attester: negative")
	}
	asked := []string{o.Leader, o.Helper}
	if o.Gateway != "" {
		asked = append(asked, o.Gateway)
	}
	for _, at := range asked {
		if err := endpoint.CheckPeer(at); err != nil {
			return fmt.Errorf("attester: issuer: %w", err)
		}
	}
	if o.Devices == 0 {
		o.Devices = defaultDevices
	}
	if o.Requests == 0 {
		o.Requests = defaultRequests
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: o.Requests,
			ForceAttemptHTTP2: true, DisableCompression: true}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// An Attester is an [http.Handler], safe for concurrent use.
type Attester struct {
	o      Options
	budget *body.Budget
	// places are by what is asked for, so that strangers, who may ask for keys and try to
	// enrol, keep no visit out while another party is slow.
	places   map[string]chan struct{}
	fetching sync.Mutex // over asking the gateway for keys

	mu      sync.Mutex
	log     *disk.Log             // of devices
	secrets map[[32]byte][32]byte // hash of each device's secret, by its name
	devices map[[32]byte][32]byte // and the other way round
	// enrolling are secrets, by device, that are being written down, or may be there.
	enrolling map[[32]byte][32]byte
	visits    map[uint32]*visits
	keys      map[uint32]keys   // that the gateway has said last, of each epoch
	counts    map[string]uint64 // by outcome
	closed    bool
}

// keys are an answer of the gateway's, handed on for a while.
type keys struct {
	b     []byte
	until time.Time
}

// keysFor is for how long the gateway is not asked again, so that who asks the attester cannot
// have it asked at will; what was wrong is right again after it.
const keysFor = time.Minute

// visits are those of one epoch.
type visits struct {
	log *disk.Log

	mu      sync.Mutex
	made    map[[32]byte][32]byte // digest of each device's, by its name
	pending map[[32]byte][32]byte // that are being written down, or may be there
}

// New makes an attester and reads which devices there are. It fails with [ErrNames].
func New(o Options) (*Attester, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	a := &Attester{o: o, budget: body.NewBudget(int64(2 * o.Requests * maxBody)), places: make(map[string]chan struct{}),
		secrets: make(map[[32]byte][32]byte), devices: make(map[[32]byte][32]byte), enrolling: make(map[[32]byte][32]byte), visits: make(map[uint32]*visits), keys: make(map[uint32]keys), counts: make(map[string]uint64)}
	for _, path := range []string{"enrol", "visit", "keys"} {
		a.places[path] = make(chan struct{}, o.Requests)
	}
	log, _, err := disk.OpenLog(o.FS, devicesFile, disk.LogOptions{MaxRecord: 64, Failpoints: o.Failpoints}, func(b []byte) error {
		if len(b) != 64 {
			return fmt.Errorf("a record of %d bytes", len(b))
		}
		a.know([32]byte(b[:32]), [32]byte(b[32:]))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("attester: devices: %w", err)
	}
	a.log = log
	if err := a.keepNames(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return a, nil
}

func (a *Attester) know(device, secret [32]byte) {
	a.secrets[device], a.devices[secret] = secret, device
}

// Close closes the logs, and the connections to issuers that nobody uses: a party that
// stops waits for those that never had a request. No request may be under way.
func (a *Attester) Close() error {
	if t, ok := a.o.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	errs := []error{a.log.Close()}
	for _, v := range a.visits {
		errs = append(errs, v.log.Close())
	}
	return errors.Join(errs...)
}

// Outcomes of a request, for counting; a closed set.
const (
	enrolled  = "enrolled"
	visited   = "visited"
	again     = "again" // the same visit as before
	malformed = "malformed"
	unproved  = "unproved"       // an enrolment that proves nothing
	taken     = "enrolled-other" // the device is known by another secret
	stranger  = "stranger"       // a visit of nobody who enrolled
	second    = "second-visit"   // another one of the device in the epoch
	unknown   = "unknown-epoch"
	begun     = "begun"
	full      = "full"
	busy      = "busy"
	away      = "issuer-away"
	refused   = "issuer-refused"
	silent    = "provider-away" // who says what a proof is worth does not answer
	failed    = "failed"
	told      = "keys" // was told the gateway's
)

// Outcomes lists what becomes of requests.
func Outcomes() []string {
	return []string{enrolled, visited, again, malformed, unproved, taken, stranger, second, unknown, begun, full, busy, away, refused, silent, failed, told}
}

// Outcome counts the requests that ended so since the start.
func (a *Attester) Outcome(word string) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[word]
}

// A Refusal is why a request was not granted.
type Refusal struct {
	Outcome string // of [Outcomes]
	Err     error
}

func (e *Refusal) Error() string { return fmt.Sprintf("attester: %s: %v", e.Outcome, e.Err) }
func (e *Refusal) Unwrap() error { return e.Err }

// statuses are those of the answers.
var statuses = map[string]int{
	malformed: http.StatusBadRequest, unproved: http.StatusForbidden, taken: http.StatusConflict, stranger: http.StatusUnauthorized,
	second: http.StatusConflict, unknown: http.StatusNotFound, begun: http.StatusGone, full: http.StatusTooManyRequests,
	busy: http.StatusServiceUnavailable, away: http.StatusServiceUnavailable, refused: http.StatusBadGateway,
	silent: http.StatusServiceUnavailable, failed: http.StatusServiceUnavailable,
}

// ServeHTTP answers POST enrol and POST visit, and GET keys, the gateway's for tokens of an
// epoch, ?epoch=N.
func (a *Attester) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, word, err := a.serve(w, r)
	a.mu.Lock()
	a.counts[word]++
	a.mu.Unlock()
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		if word == failed || word == away || word == refused || word == silent {
			a.o.Log.Error("a request was not granted", "outcome", word, "error", err)
		}
		http.Error(w, word, statuses[word])
		return
	}
	switch {
	case word == told:
		w.Header().Set("Content-Type", visit.KeysMedia)
	case answer != nil:
		w.Header().Set("Content-Type", visit.AnswerMedia)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.Write(answer)
}

func (a *Attester) serve(w http.ResponseWriter, r *http.Request) (answer []byte, word string, err error) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	keys := r.Method == http.MethodGet && path == "keys"
	media := map[string]string{"enrol": visit.EnrolMedia, "visit": visit.VisitMedia}[path]
	if !keys && (r.Method != http.MethodPost || media == "" || r.Header.Get("Content-Type") != media) {
		return nil, malformed, visit.ErrMalformed
	}
	places := a.places[path]
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		return nil, busy, errors.New("as many requests are worked on as may be")
	}
	if keys {
		answer, err = a.serveKeys(r)
		return answer, wordOf(told, err), err
	}
	most := visit.MaxSize
	if media == visit.EnrolMedia {
		most = visit.MaxEnrolment
	}
	b, release, err := a.budget.Read(w, r, int64(most), bodyTime)
	defer release()
	switch {
	case errors.Is(err, body.ErrFull):
		return nil, busy, err
	case err != nil:
		return nil, malformed, err
	}
	said := enrolled
	if media == visit.EnrolMedia {
		var e visit.Enrolment
		if e, err = visit.ReadEnrolment(b); err != nil {
			return nil, malformed, err
		}
		var shown []*x509.Certificate
		if r.TLS != nil {
			shown = r.TLS.PeerCertificates
		}
		err = a.Enrol(r.Context(), &e, shown)
	} else {
		answer, said, err = a.visited(r.Context(), r.Header.Get("Authorization"), b)
	}
	return answer, wordOf(said, err), err
}

// wordOf is the outcome of what went well, or of its error.
func wordOf(well string, err error) string {
	refusal := new(Refusal)
	switch {
	case errors.As(err, &refusal):
		return refusal.Outcome
	case err != nil:
		return failed
	}
	return well
}

// serveKeys asks the gateway for its keys of an epoch, which a device holds against the
// manifest: nothing that is answered here needs to be believed.
func (a *Attester) serveKeys(r *http.Request) ([]byte, error) {
	epoch, err := strconv.ParseUint(r.URL.Query().Get("epoch"), 10, 32)
	if err != nil {
		return nil, &Refusal{malformed, err}
	}
	if terms, ok := a.o.Terms(uint32(epoch)); !ok || !terms.Tokens || a.o.Gateway == "" {
		return nil, &Refusal{unknown, fmt.Errorf("no keys of epoch %d are known", epoch)}
	}
	a.fetching.Lock() // one asks, and the others have its answer
	defer a.fetching.Unlock()
	a.mu.Lock()
	known := a.keys[uint32(epoch)]
	a.mu.Unlock()
	now := a.o.Now()
	if now.Before(known.until) {
		return known.b, nil
	}
	if err := r.Context().Err(); err != nil { // nobody waits any more
		return nil, &Refusal{busy, err}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), a.o.Timeout) // the answer is for all
	defer cancel()
	get, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s?epoch=%d", a.o.Gateway, epoch), nil)
	if err != nil {
		return nil, err
	}
	b, err := a.answered(get, visit.KeysMedia, visit.MaxKeys)
	if err == nil {
		_, err = visit.ReadKeys(b) // or an answer that was cut would be handed on
	}
	if err != nil {
		return nil, &Refusal{away, fmt.Errorf("the gateway's keys: %w", err)}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for other, old := range a.keys {
		if !now.Before(old.until) {
			delete(a.keys, other)
		}
	}
	a.keys[uint32(epoch)] = keys{b, now.Add(keysFor)}
	return b, nil
}

func (a *Attester) visited(ctx context.Context, authorization string, b []byte) (answer []byte, word string, err error) {
	v, err := visit.Read(b)
	if err != nil {
		return nil, "", &Refusal{malformed, err}
	}
	text, ok := strings.CutPrefix(authorization, "Bearer ")
	secret, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil || len(secret) != visit.SecretSize {
		return nil, "", &Refusal{stranger, errors.New("it shows no secret of a device")}
	}
	got, repeated, err := a.Visit(ctx, [visit.SecretSize]byte(secret), &v)
	if err != nil {
		return nil, "", err
	}
	if word = visited; repeated {
		word = again
	}
	return got.Append(nil), word, nil
}

func hashOf(secret [visit.SecretSize]byte) [32]byte {
	return sha256.Sum256(append([]byte(secretDomain), secret[:]...))
}

// Enrol has a device known from now on by its secret; shown are the certificates of its
// connection, as [Evidence] has them. Again with the same secret is harmless. It fails with
// *[Refusal], or where it cannot be written down.
func (a *Attester) Enrol(ctx context.Context, e *visit.Enrolment, shown []*x509.Certificate) error {
	device, err := a.o.Attestation.Device(ctx, &Evidence{Proof: e.Proof, Nonce: visit.Nonce(a.o.Deployment, e.Secret), Certificates: shown})
	switch {
	case errors.Is(err, ErrAway):
		return &Refusal{silent, err}
	case err != nil:
		return &Refusal{unproved, err}
	}
	secret := hashOf(e.Secret)
	a.mu.Lock()
	known, there := a.secrets[device]
	_, used := a.devices[secret]
	switch {
	case a.closed:
		a.mu.Unlock()
		return errors.New("attester: closed")
	case there && known == secret:
		a.mu.Unlock()
		return nil
	case there || used:
		a.mu.Unlock()
		return &Refusal{taken, errors.New("the device has enrolled with another secret, or the secret is another's")}
	case len(a.secrets)+len(a.enrolling) >= a.o.Devices:
		a.mu.Unlock()
		return &Refusal{full, fmt.Errorf("%d devices are known", len(a.secrets))}
	}
	for other, with := range a.enrolling { // a few: they wait for the disk
		if other == device || with == secret {
			a.mu.Unlock()
			return &Refusal{busy, errors.New("it is being written down")}
		}
	}
	a.enrolling[device] = secret
	a.mu.Unlock()
	err = a.log.Append(ctx, append(device[:], secret[:]...))
	a.mu.Lock()
	defer a.mu.Unlock()
	if !errors.Is(err, disk.ErrStateUnknown) { // else the log takes nothing more, and a start reads what there is
		delete(a.enrolling, device)
	}
	if err != nil {
		return fmt.Errorf("attester: devices: %w", err)
	}
	a.know(device, secret)
	return nil
}

// Visit has a device's requests answered by both issuers, and says whether the visit was made
// before. It fails with *[Refusal], or where the visit cannot be written down.
func (a *Attester) Visit(ctx context.Context, secret [visit.SecretSize]byte, v *visit.Visit) (answer *visit.Answer, repeated bool, err error) {
	refuse := func(word string, err error) (*visit.Answer, bool, error) { return nil, false, &Refusal{word, err} }
	a.mu.Lock()
	device, ok := a.devices[hashOf(secret)]
	a.mu.Unlock()
	if !ok {
		return refuse(stranger, errors.New("nobody has enrolled with that secret"))
	}
	if v.Deployment != a.o.Deployment {
		return refuse(unknown, fmt.Errorf("deployment %x is another", v.Deployment[:4]))
	}
	terms, ok := a.o.Terms(v.Epoch)
	if !ok {
		return refuse(unknown, fmt.Errorf("no manifest of epoch %d is known", v.Epoch))
	}
	if !a.o.Now().Before(terms.Begin) {
		return refuse(begun, fmt.Errorf("epoch %d began at %s", v.Epoch, terms.Begin.Format(time.RFC3339)))
	}
	if (v.Tokens() > 0) != terms.Tokens { // all visits of an epoch are alike
		return refuse(malformed, fmt.Errorf("it asks for %d tokens", v.Tokens()))
	}
	of, err := a.epoch(v.Epoch)
	if err != nil {
		return nil, false, err
	}
	if err := a.o.Failpoints.Hit(failBeforeNote); err != nil {
		return nil, false, err
	}
	repeated, word, err := of.note(ctx, device, v.Digest(), terms.Cap)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("attester: visits of epoch %d: %w", v.Epoch, err)
	case word != "":
		return refuse(word, fmt.Errorf("of epoch %d", v.Epoch))
	}
	if err := a.o.Failpoints.Hit(failBeforeOrder); err != nil {
		return nil, false, err
	}
	if answer, err = a.order(ctx, v); err != nil {
		return nil, false, err
	}
	return answer, repeated, a.o.Failpoints.Hit(failBeforeAnswer)
}

// note writes a visit down, unless the device has made another, or as many have as may.
func (v *visits) note(ctx context.Context, device, digest [32]byte, most uint64) (repeated bool, refusal string, err error) {
	v.mu.Lock()
	before, there := v.made[device]
	writing, pending := v.pending[device]
	switch {
	case there && before == digest:
		v.mu.Unlock()
		return true, "", nil
	case there || pending && writing != digest:
		v.mu.Unlock()
		return false, second, nil
	case pending: // the same one at the same time
		v.mu.Unlock()
		return false, busy, nil
	case uint64(len(v.made)+len(v.pending)) >= most:
		v.mu.Unlock()
		return false, full, nil
	}
	v.pending[device] = digest
	v.mu.Unlock()
	err = v.log.Append(ctx, append(device[:], digest[:]...))
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		v.made[device] = digest
	}
	if !errors.Is(err, disk.ErrStateUnknown) { // else it is pending until a start reads what there is
		delete(v.pending, device)
	}
	return false, "", err
}

// epoch opens the visits of an epoch.
func (a *Attester) epoch(epoch uint32) (*visits, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, errors.New("attester: closed")
	}
	if v := a.visits[epoch]; v != nil {
		return v, nil
	}
	v := &visits{made: make(map[[32]byte][32]byte), pending: make(map[[32]byte][32]byte)}
	log, _, err := disk.OpenLog(a.o.FS, strconv.FormatUint(uint64(epoch), 10)+visitsSuffix, disk.LogOptions{MaxRecord: 64, Failpoints: a.o.Failpoints},
		func(b []byte) error {
			if len(b) != 64 {
				return fmt.Errorf("a record of %d bytes", len(b))
			}
			v.made[[32]byte(b[:32])] = [32]byte(b[32:])
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("attester: visits of epoch %d: %w", epoch, err)
	}
	v.log = log
	a.visits[epoch] = v
	return v, nil
}

// order asks both issuers and the gateway at one time.
func (a *Attester) order(ctx context.Context, v *visit.Visit) (*visit.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	answer := new(visit.Answer)
	var errs [3]error
	var all sync.WaitGroup
	roles := visit.Issuers(a.o.Hops)
	for i, to := range []struct {
		role signed.Role
		url  string
		into *[arc.ResponseSize]byte
	}{{roles[0], a.o.Leader, &answer.Leader}, {roles[1], a.o.Helper, &answer.Helper}} {
		all.Go(func() {
			o := visit.Order{Role: to.role, Deployment: v.Deployment, Epoch: v.Epoch, Request: [arc.RequestSize]byte(v.Request(to.role))}
			if errs[i] = o.Sign(a.o.Signer, a.o.Now()); errs[i] == nil {
				errs[i] = a.ask(ctx, to.url, &o, to.into)
			}
			if errs[i] != nil {
				errs[i] = fmt.Errorf("the %v's issuer: %w", to.role, errs[i])
			}
		})
	}
	if n := v.Tokens(); n > 0 {
		all.Go(func() {
			o := visit.TokenOrder{Deployment: v.Deployment, Epoch: v.Epoch, Asks: v.Asks}
			if errs[2] = o.Sign(a.o.Signer, a.o.Now()); errs[2] == nil {
				answer.Tokens, errs[2] = a.post(ctx, a.o.Gateway, visit.TokenOrderMedia, o.Append(nil), visit.TokensMedia, n*visit.TokenSize)
			}
			if errs[2] != nil {
				errs[2] = fmt.Errorf("the gateway's tokens: %w", errs[2])
			}
		})
	}
	all.Wait()
	err := errors.Join(errs[:]...)
	var said *statusError
	switch {
	case err == nil:
		return answer, nil
	case errors.Is(err, signed.ErrWindow):
		return nil, fmt.Errorf("attester: its own key: %w", err)
	case errors.As(err, &said) && said.status/100 == 4:
		return nil, &Refusal{refused, err}
	}
	return nil, &Refusal{away, err}
}

// statusError is an answer of an issuer that is no credential, or of the gateway that is no
// tokens.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("HTTP status %d: %q", e.status, e.text) }

// ask brings an order to an issuer. Nothing that it answers is believed but by the device.
func (a *Attester) ask(ctx context.Context, url string, o *visit.Order, into *[arc.ResponseSize]byte) error {
	b, err := a.post(ctx, url, visit.OrderMedia, o.Append(nil), visit.ResponseMedia, len(into))
	if err != nil {
		return err
	}
	copy(into[:], b)
	return nil
}

// post brings an order, and returns an answer of one media type and size.
func (a *Attester) post(ctx context.Context, url, media string, order []byte, want string, size int) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(order))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", media)
	b, err := a.answered(r, want, size)
	if err == nil && len(b) != size {
		err = fmt.Errorf("an answer of %d bytes, want %d", len(b), size)
	}
	return b, err
}

// answered sends a request, and returns an answer of a media type, of most bytes or fewer.
func (a *Attester) answered(r *http.Request, want string, most int) ([]byte, error) {
	resp, err := a.o.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, &statusError{resp.StatusCode, string(b[:min(len(b), 64)])}
	case len(b) > most || resp.Header.Get("Content-Type") != want:
		return nil, fmt.Errorf("an answer of %d bytes that is not what was asked for", len(b))
	}
	return b, nil
}

// ErrNotBegun: the epoch has not begun, and until it has its number is nobody's business.
var ErrNotBegun = errors.New("attester: the epoch has not begun")

// Count is how many devices were let ask for an epoch, once it has begun. It fails with
// [ErrNotBegun], and where no manifest of the epoch is known; it is kept when the visits are
// forgotten.
func (a *Attester) Count(epoch uint32) (uint64, error) {
	n, kept, err := orders.ReadCount(a.o.FS, epoch)
	if err != nil {
		return 0, fmt.Errorf("attester: %w", err)
	}
	if kept {
		return n, nil
	}
	terms, ok := a.o.Terms(epoch)
	if !ok || a.o.Now().Before(terms.Begin) {
		return 0, fmt.Errorf("%w: %d", ErrNotBegun, epoch)
	}
	v, err := a.epoch(epoch)
	if err != nil {
		return 0, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.pending) > 0 {
		return 0, fmt.Errorf("%w: a visit is being written down", ErrNotBegun)
	}
	return uint64(len(v.made)), nil
}

// Deployment is for whose issuers it vouches.
func (a *Attester) Deployment() [32]byte { return a.o.Deployment }

// Owner is the root key of the attester's owner.
func (a *Attester) Owner() signed.PublicKey { return a.o.Signer.Root() }

// Devices is how many are known.
func (a *Attester) Devices() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.secrets)
}

// Forget drops the visits of epochs up to one that are over, but for how many there were.
func (a *Attester) Forget(last uint32) error {
	var over []uint32
	for entry, err := range disk.Files(a.o.FS, ".") {
		if err != nil {
			return fmt.Errorf("attester: %w", err)
		}
		digits, ok := strings.CutSuffix(entry.Name, visitsSuffix)
		if n, err := strconv.ParseUint(digits, 10, 32); ok && err == nil && uint32(n) <= last {
			over = append(over, uint32(n))
		}
	}
	for _, n := range over {
		if err := a.forget(n); err != nil {
			return fmt.Errorf("attester: visits of epoch %d: %w", n, err)
		}
	}
	return nil
}

func (a *Attester) forget(epoch uint32) error {
	v, err := a.epoch(epoch)
	if err != nil {
		return err
	}
	err = orders.KeepCount(a.o.FS, epoch, func() (uint64, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		return uint64(len(v.made)), nil
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.visits, epoch)
	if err := v.log.Close(); err != nil {
		return err
	}
	return disk.Remove(a.o.FS, strconv.FormatUint(uint64(epoch), 10)+visitsSuffix)
}
