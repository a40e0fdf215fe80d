package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/internal/wire"
)

// tokens are those of a recipe's rounds in an epoch, or the requests for them.
type tokens struct {
	recipe [32]byte
	keys   [32]byte // the digest of the gateway's list that they were asked for under
	// first is the round of the first that is left; a round lasts for length seconds.
	first, length uint64
	// secrets are a token each, or before the visit was answered a request: both are as long.
	secrets []byte
}

const secretSize = voprf.TokenSize

// Both are kept in one place.
var _ = [1]struct{}{}[voprf.TokenSize-voprf.TokenRequestSize]

func (t *tokens) code(c *wire.Coder) {
	c.Fixed(t.recipe[:], "recipe")
	c.Fixed(t.keys[:], "keys")
	c.Uint64(&t.first, "first round")
	c.Uint64(&t.length, "length of a round")
	c.Vec24(&t.secrets, 0, "tokens")
	c.Check(len(t.secrets)%secretSize == 0 && t.length > 0, "tokens of another length")
}

func (t *tokens) rounds() int { return len(t.secrets) / secretSize }

// secret is what is kept of the i-th round.
func (t *tokens) secret(i int) []byte { return t.secrets[i*secretSize : (i+1)*secretSize] }

// of is the token of a round, or false where there is none.
func (t *tokens) of(round uint64) (token voprf.Token, ok bool) {
	if round < t.first || round-t.first >= uint64(t.rounds()) {
		return token, false
	}
	token, err := voprf.ReadToken(t.secret(int(round - t.first)))
	return token, err == nil
}

// left are those of rounds that are not over.
func (t *tokens) left(now time.Time) *tokens {
	over := 0
	for ; over < t.rounds() && int64((t.first+uint64(over)+1)*t.length) <= now.Unix(); over++ {
	}
	if over == 0 {
		return t
	}
	kept := *t
	kept.first += uint64(over)
	kept.secrets = t.secrets[over*secretSize:]
	return &kept
}

// lists asks the attester for the gateway's keys of an epoch, and holds them against the
// manifest: all devices have the same, and each is asked for as many tokens. It fails with
// [ErrKeys], *[RefusedError], and where the attester is away.
func (a attester) lists(ctx context.Context, m *ohttp.Manifest) ([]*voprf.RoundKeys, error) {
	want := m.Issuers.Admission
	if len(want) == 0 {
		return nil, nil
	}
	u := a.base.JoinPath("keys")
	u.RawQuery = fmt.Sprintf("epoch=%d", m.Epoch)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	b, err := a.answered(r, visit.MaxKeys)
	if err != nil {
		return nil, err
	}
	keys, err := visit.ReadKeys(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	if keys.Deployment != m.Deployment || keys.Epoch != m.Epoch || len(keys.Lists) != len(want) {
		return nil, fmt.Errorf("%w: %d lists of epoch %d, want %d of %d", ErrKeys, len(keys.Lists), keys.Epoch, len(want), m.Epoch)
	}
	all := make([]*voprf.RoundKeys, len(want))
	total := 0
	for i, list := range keys.Lists {
		if voprf.DigestOf(list) != want[i].Keys { // before it is read: that costs more
			return nil, fmt.Errorf("%w: those of recipe %x", ErrKeys, want[i].Recipe[:4])
		}
		l, err := voprf.ReadRoundKeys(list)
		if err != nil {
			return nil, fmt.Errorf("%w: recipe %x: %w", ErrKeys, want[i].Recipe[:4], err)
		}
		first, n, err := admission.Rounds(uint64(m.Epoch), l.Length, uint64(m.Length/time.Second))
		if err != nil {
			return nil, fmt.Errorf("%w: recipe %x: %w", ErrKeys, want[i].Recipe[:4], err)
		}
		// Of a round that belongs to another epoch a device would have a second token.
		if l.First < first || l.First-first > uint64(n) || uint64(len(l.Keys)) > uint64(n)-(l.First-first) {
			return nil, fmt.Errorf("%w: those of recipe %x are not of rounds of epoch %d", ErrKeys, want[i].Recipe[:4], m.Epoch)
		}
		all[i], total = l, total+len(l.Keys)
	}
	if total > visit.MaxTokens {
		return nil, fmt.Errorf("%w: %d tokens in an epoch, want at most %d", ErrKeys, total, visit.MaxTokens)
	}
	return all, nil
}

// ErrKeys: the gateway's keys for tokens are not those that the manifest names, which all
// devices see, or not for the rounds of the epoch. Nothing was asked for under them.
var ErrKeys = errors.New("credentials: the gateway's keys are not those of the manifest")

// ask makes requests for a token of each round, of all recipes alike, or finds those that
// were made before.
func (e *epoch) ask(m *ohttp.Manifest, lists []*voprf.RoundKeys) ([]*tokens, error) {
	if len(e.tokens) == 0 {
		all := make([]*tokens, len(lists))
		for i, l := range lists {
			all[i] = &tokens{recipe: m.Issuers.Admission[i].Recipe, keys: m.Issuers.Admission[i].Keys, first: l.First, length: l.Length}
			for n := range l.Keys {
				all[i].secrets = voprf.NewTokenRequest(voprf.Round{Deployment: m.Deployment, Number: l.First + uint64(n)}).Append(all[i].secrets)
			}
		}
		return all, nil
	}
	same := len(e.tokens) == len(lists)
	for i := 0; same && i < len(lists); i++ {
		t := e.tokens[i]
		same = t.recipe == m.Issuers.Admission[i].Recipe && t.keys == m.Issuers.Admission[i].Keys && t.first == lists[i].First && t.length == lists[i].Length && t.rounds() == len(lists[i].Keys)
	}
	if !same {
		return nil, fmt.Errorf("%w: the epoch's manifest names other keys for tokens than when they were asked for", ErrIssuers)
	}
	return e.tokens, nil
}

// requests reads the requests that are kept, in the order in which they are sent.
func requests(deployment [32]byte, all []*tokens) (asks []*voprf.TokenRequest, encoded []byte, err error) {
	for _, t := range all {
		for i := range t.rounds() {
			q, err := voprf.ReadTokenRequest(voprf.Round{Deployment: deployment, Number: t.first + uint64(i)}, t.secret(i))
			if err != nil {
				return nil, nil, fmt.Errorf("%w: %w", ErrState, err)
			}
			asks, encoded = append(asks, q), q.Request().Append(encoded)
		}
	}
	return asks, encoded, nil
}

// finalize makes tokens of the gateway's answers, each of which must be proved under the
// round's key. It fails with [ErrAnswer].
func finalize(all []*tokens, lists []*voprf.RoundKeys, asks []*voprf.TokenRequest, answer []byte) ([]*tokens, error) {
	made := make([]*tokens, len(all))
	n := 0
	for i, t := range all {
		one := *t
		one.secrets = make([]byte, 0, len(t.secrets))
		for _, key := range lists[i].Keys {
			e, err := voprf.ReadEvaluation(answer[n*visit.TokenSize : (n+1)*visit.TokenSize])
			if err != nil {
				return nil, fmt.Errorf("%w: token %d: %w", ErrAnswer, n, err)
			}
			token, err := asks[n].Finalize(key, e)
			if err != nil {
				return nil, fmt.Errorf("%w: token %d: %w", ErrAnswer, n, err)
			}
			one.secrets = token.Append(one.secrets)
			n++
		}
		made[i] = &one
	}
	return made, nil
}

// Admission gives the tokens of a recipe, by its id, for client.Options.Admission: of a round
// always the same one, whatever is sent with it and however often, so that the device counts
// once. It fails with a *[NoneError] where the device has none.
func (w *Wallet) Admission(recipe [32]byte) func(round uint64) (voprf.Token, error) {
	return func(round uint64) (voprf.Token, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, e := range w.kept.epochs {
			if !e.held {
				continue
			}
			for _, t := range e.tokens {
				if t.recipe != recipe {
					continue
				}
				if token, ok := t.of(round); ok {
					return token, nil
				}
			}
		}
		return voprf.Token{}, &NoneError{Reason: ReasonNoToken, detail: fmt.Sprintf("the device has no token of round %d", round)}
	}
}

// spent are epochs that have tokens of rounds that are over at a time.
func (e *epoch) spent(now time.Time) bool {
	for _, t := range e.tokens {
		if t.left(now) != t {
			return true
		}
	}
	return false
}

// forgotten is an epoch without the tokens of rounds that are over.
func (e *epoch) forgotten(now time.Time) *epoch {
	next := *e
	next.tokens = make([]*tokens, len(e.tokens))
	for i, t := range e.tokens {
		next.tokens[i] = t.left(now)
	}
	return &next
}
