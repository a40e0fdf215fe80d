package credentials

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/anonymity/voprf"
)

// Visit visits the attester for the epoch of a manifest, unless the device has its
// credentials and tokens already. It first asks for the gateway's keys of tokens, where
// recipes ask for admission, and for tokens of all recipes of the manifest, whichever the
// device answers. The caller calls it at the time of [Wallet.Plan], and again at fixed
// distances until it succeeds. The manifest must be one that the device takes, of a log
// or of client.Manifests: its keys are what the answers are held to. One visit is made at
// a time, and what the wallet holds is shown meanwhile. It fails with [ErrNotEnrolled],
// [ErrIssuers], [ErrTooLate], [ErrKeys], [ErrAnswer], *[RefusedError], [ErrState], and
// where the attester is away.
func (w *Wallet) Visit(ctx context.Context, m *ohttp.Manifest) error {
	if err := w.turn(ctx); err != nil {
		return err
	}
	defer func() { <-w.asking }()
	a, err := w.Ask(m)
	if a == nil || err != nil {
		return err
	}
	if err := a.FetchKeys(ctx); err != nil {
		return err
	}
	if err := w.Draw(a); err != nil {
		return err
	}
	sent := a.Send(ctx)
	return cmp.Or(w.Keep(a), sent)
}

// An Asking is one visit on its way: what is sent, and what came of it. It has no part of the
// wallet, which may be closed meanwhile. For one goroutine.
type Asking struct {
	attester  attester
	enrolment visit.Enrolment
	message   visit.Visit
	manifest  *ohttp.Manifest
	pending   [2]*arc.Pending
	keys      [2]*arc.PublicKey
	lists     []*voprf.RoundKeys // of the gateway
	asked     []*tokens          // the requests under them
	asks      []*voprf.TokenRequest

	enrolled    bool // anew
	credentials *[2][arc.CredentialSize]byte
	tokens      []*tokens
}

// Ask is the visit for the epoch of a manifest, which is on the disk with all that is
// drawn for it: whoever asks again, after whatever failure, has the same, byte for byte.
// It is nil where the device has its credentials. It fails as [Wallet.Visit] does before
// it sends.
func (w *Wallet) Ask(m *ohttp.Manifest) (*Asking, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.kept.enrolment.Proof) == 0 {
		return nil, ErrNotEnrolled
	}
	e, err := w.plan(m)
	if err != nil || e.held {
		return nil, err
	}
	if !w.o.Now().Before(e.begin) {
		return nil, fmt.Errorf("%w: %d", ErrTooLate, m.Epoch)
	}
	a := &Asking{attester: w.o.attester(w.base), enrolment: w.kept.enrolment, manifest: m, message: visit.Visit{Deployment: m.Deployment, Epoch: m.Epoch}}
	for i, of := range []struct {
		key     []byte
		request *[arc.RequestSize]byte
	}{{m.Issuers.Leader[:], &a.message.Leader}, {m.Issuers.Helper[:], &a.message.Helper}} {
		if a.keys[i], err = arc.ReadPublicKey(of.key); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIssuers, err)
		}
		if a.keys[i].ID() != e.keys[i] {
			return nil, fmt.Errorf("%w: the epoch's manifest names another key than when the visit was planned", ErrIssuers)
		}
		if a.pending[i], err = arc.ReadPending(e.pending[i][:]); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrState, err)
		}
		copy(of.request[:], a.pending[i].Request().Append(nil))
	}
	return a, nil
}

// FetchKeys asks for the gateway's keys of tokens, where recipes ask for admission. It
// fails with [ErrKeys], *[RefusedError], and where the attester is away.
func (a *Asking) FetchKeys(ctx context.Context) (err error) {
	a.lists, err = a.attester.lists(ctx, a.manifest)
	return err
}

// Draw draws requests for tokens under the keys that were fetched, and writes them down before
// they are sent, or finds those that were drawn before. It fails with [ErrIssuers], [ErrState]
// and [ErrTooLate].
func (w *Wallet) Draw(a *Asking) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.find(a.manifest.Epoch)
	switch {
	case e == nil:
		return fmt.Errorf("%w: %d", ErrTooLate, a.manifest.Epoch)
	case e.held:
		return fmt.Errorf("%w: the visit was answered already", ErrState)
	}
	asked, err := e.ask(a.manifest, a.lists)
	if err != nil {
		return err
	}
	if len(e.tokens) < len(asked) {
		next := *e
		next.tokens = asked
		if err := w.save(func(k *kept) { k.epochs[slices.Index(k.epochs, e)] = &next }); err != nil {
			return err
		}
	}
	a.asked = asked
	a.asks, a.message.Asks, err = requests(a.manifest.Deployment, asked)
	return err
}

// Send makes the visit. It fails as [Wallet.Visit], and what came of it is kept with
// [Wallet.Keep] all the same.
func (a *Asking) Send(ctx context.Context) error {
	b, err := a.attester.visit(ctx, a.enrolment, &a.message)
	if refused := new(RefusedError); errors.As(err, &refused) && refused.Status == http.StatusUnauthorized {
		// It knows nothing of the device: its answer was lost, or what it kept.
		if string(a.enrolment.Proof) == asItself {
			return fmt.Errorf("%w, by what the attester has kept", ErrNotEnrolled)
		}
		if err = a.attester.enrol(ctx, a.enrolment); err == nil {
			a.enrolled = true
			b, err = a.attester.visit(ctx, a.enrolment, &a.message)
		}
	}
	if err != nil {
		return err
	}
	answer, err := visit.ReadAnswer(b)
	if err == nil && len(answer.Tokens) != len(a.asks)*visit.TokenSize {
		err = fmt.Errorf("%d bytes of tokens", len(answer.Tokens))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	var got [2][arc.CredentialSize]byte
	for i, from := range [][]byte{answer.Leader[:], answer.Helper[:]} {
		response, err := arc.ReadCredentialResponse(from)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrAnswer, err)
		}
		credential, err := a.pending[i].Finalize(a.keys[i], response)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrAnswer, err)
		}
		copy(got[i][:], credential.Append(nil))
	}
	if a.tokens, err = finalize(a.asked, a.lists, a.asks, answer.Tokens); err != nil {
		return err
	}
	a.credentials = &got
	return nil
}

// Keep writes down what came of a visit. Of two answers to one visit the first stays; both are
// to the same requests, and so worth the same. It fails with [ErrState], and with [ErrTooLate]
// where the epoch is over and forgotten.
func (w *Wallet) Keep(a *Asking) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.enrolled {
		if err := w.knows(a.enrolment); err != nil {
			return err
		}
	}
	if a.credentials == nil {
		return nil
	}
	e := w.find(a.manifest.Epoch)
	switch {
	case e == nil:
		return fmt.Errorf("%w: %d", ErrTooLate, a.manifest.Epoch)
	case e.held:
		return nil
	case e.keys != [2]arc.KeyID{a.keys[0].ID(), a.keys[1].ID()}:
		return fmt.Errorf("%w: the visit was of another plan", ErrState)
	}
	next := *e
	next.credentials, next.tokens, next.held = *a.credentials, a.tokens, true
	clear(next.pending[0][:]) // nothing is asked with them any more
	clear(next.pending[1][:])
	if err := next.open(); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	// An attester that answers a visit knows the device.
	return w.save(func(k *kept) { k.known, k.epochs[slices.Index(k.epochs, e)] = true, &next })
}

func (o *Options) attester(base *url.URL) attester { return attester{o.HTTP, base} }

func (a attester) enrol(ctx context.Context, e visit.Enrolment) error {
	b, err := e.Append(nil)
	if err != nil {
		return err
	}
	_, err = a.post(ctx, "enrol", visit.EnrolMedia, "", b, 0)
	return err
}

func (a attester) visit(ctx context.Context, e visit.Enrolment, v *visit.Visit) ([]byte, error) {
	return a.post(ctx, "visit", visit.VisitMedia, "Bearer "+base64.RawURLEncoding.EncodeToString(e.Secret[:]), v.Append(nil), visit.AnswerSize+len(v.Asks)/visit.AskSize*visit.TokenSize)
}

// post sends a message to the attester, and returns an answer of that size.
func (a attester) post(ctx context.Context, path, media, authorization string, b []byte, size int) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base.JoinPath(path).String(), bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", media)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	answer, err := a.answered(r, size)
	if err == nil && len(answer) != size {
		err = fmt.Errorf("credentials: the attester answers %d bytes, want %d", len(answer), size)
	}
	return answer, err
}

// answered sends a request to the attester, and returns an answer of most bytes or fewer.
func (a attester) answered(r *http.Request, most int) ([]byte, error) {
	resp, err := a.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, int64(max(most, 256))+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("credentials: %w", err)
	case resp.StatusCode/100 == 4:
		return nil, &RefusedError{resp.StatusCode, string(bytes.TrimSpace(answer[:min(len(answer), 32)]))}
	case resp.StatusCode != http.StatusOK || len(answer) > most:
		return nil, fmt.Errorf("credentials: the attester answers %d and %d bytes", resp.StatusCode, len(answer))
	}
	return answer, nil
}
