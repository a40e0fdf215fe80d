package party

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/internal/body"
	"github.com/starling-agg/starling/internal/buffer"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// A Problem is the body of a refusal.
type Problem struct {
	Type string `json:"type"`
}

var (
	errToken  = errors.New("shuffle: no token that is known here")
	errPath   = errors.New("shuffle: nothing is there")
	errRecipe = errors.New("shuffle: no such recipe here")
	errMethod = errors.New("shuffle: not that method")
	errMedia  = errors.New("shuffle: not that media type")
	errBody   = errors.New("shuffle: the body broke off")
	errBusy   = errors.New("shuffle: too much at one time")
)

// reasons are what a request is refused for, in the order in which they are looked for: a
// closed set.
var reasons = []struct {
	is     error
	status int
	word   string
}{
	{errToken, http.StatusUnauthorized, "token"}, {errPath, http.StatusNotFound, "path"}, {errRecipe, http.StatusNotFound, "unknown-recipe"},
	{errMethod, http.StatusMethodNotAllowed, "method"}, {errMedia, http.StatusUnsupportedMediaType, "media"},
	{body.ErrLarge, http.StatusRequestEntityTooLarge, "oversized"}, {body.ErrSlow, http.StatusRequestTimeout, "slow"},
	{body.ErrFull, http.StatusServiceUnavailable, "busy"}, {errBusy, http.StatusServiceUnavailable, "busy"}, {errBody, http.StatusBadRequest, "broken-off"},
	{ErrFull, http.StatusServiceUnavailable, "full"}, {ErrBroken, http.StatusInternalServerError, "disk"},
	{onion.ErrEnvelope, http.StatusBadRequest, "malformed"}, {ErrRound, http.StatusNotFound, "round"}, {ErrNotYet, http.StatusTooEarly, "not-yet"},
	{ErrConflict, http.StatusConflict, "conflict"}, {ErrOffset, http.StatusConflict, "offset"},
	{onion.ErrEarly, http.StatusForbidden, "early"}, {onion.ErrFew, http.StatusForbidden, "few"}, {onion.ErrCount, http.StatusForbidden, "count"},
	{onion.ErrRoot, http.StatusForbidden, "root"}, {onion.ErrManifest, http.StatusBadRequest, "manifest"},
	{signed.ErrSignature, http.StatusForbidden, "signature"}, {signed.ErrWindow, http.StatusForbidden, "signing-key"}, {signed.ErrKey, http.StatusForbidden, "signing-key"},
}

// reasonOf is the error that a word stands for; nil where it is none.
func reasonOf(word string) error {
	for _, r := range reasons {
		if r.word == word {
			return r.is
		}
	}
	return nil
}

func refuse(w http.ResponseWriter, err error) {
	status, word := http.StatusInternalServerError, "failure"
	for _, r := range reasons {
		if errors.Is(err, r.is) {
			status, word = r.status, r.word
			break
		}
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(Problem{onion.ProblemPrefix + word})
}

// ServeHTTP implements [http.Handler]:
//
//	GET  shuffles/ID/keys                  the signed list of keys
//	POST shuffles/ID/contributions         envelopes, one behind another
//	POST shuffles/ID/batches/ROUND         a signed manifest; answered with a Progress
//	POST shuffles/ID/batches/ROUND/OFFSET  records of it from there on; the same
//	GET  shuffles/ID/results/ROUND         the signed result
func (p *Party) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p.serve(w, r); err != nil {
		refuse(w, err)
	}
}

func (p *Party) serve(w http.ResponseWriter, r *http.Request) error {
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if len(path) < 3 || path[0] != "shuffles" || r.URL.RawQuery != "" {
		return errPath
	}
	id, err := base64.RawURLEncoding.Strict().DecodeString(path[1])
	if err != nil || len(id) != 32 {
		return errPath
	}
	x := p.shuffles[[32]byte(id)]
	if x == nil {
		return errRecipe
	}
	numbers := make([]uint64, len(path)-3)
	for i, s := range path[3:] {
		if numbers[i], err = strconv.ParseUint(s, 10, 64); err != nil || strconv.FormatUint(numbers[i], 10) != s {
			return errPath
		}
	}
	what, n := path[2], len(numbers)
	switch {
	case what == "keys" && n == 0:
		return p.serveKeys(w, r, x)
	case what == "contributions" && n == 0 && p.o.gathers():
		return p.serveContributions(w, r, x)
	case what == "batches" && (n == 1 || n == 2) && !p.o.gathers():
		return p.serveBatch(w, r, x, numbers)
	case what == "results" && n == 1 && p.o.tallies():
		return p.serveResult(w, r, x, numbers[0])
	}
	return errPath
}

// known says whether a request has one of some bearer tokens.
func known(r *http.Request, tokens []string) bool {
	value, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	got, found := sha256.Sum256([]byte(value)), 0
	for _, t := range tokens {
		want := sha256.Sum256([]byte(t))
		found |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return ok && found == 1
}

// take reads what is brought.
func (p *Party) take(w http.ResponseWriter, r *http.Request, media string, limit int64, then func([]byte) error) error {
	if r.Method != http.MethodPost {
		return errMethod
	}
	if len(p.o.Tokens) > 0 && !known(r, p.o.Tokens) {
		return errToken
	}
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != media {
		return errMedia
	}
	if p.Err() != nil {
		return ErrBroken
	}
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	default:
		return errBusy
	}
	b, release, err := p.budget.Read(w, r, limit, p.o.Limits.BodyTimeout)
	defer release()
	switch {
	case err == nil:
		err = then(b)
		buffer.Put(b)
		return err
	case errors.Is(err, body.ErrLarge), errors.Is(err, body.ErrSlow), errors.Is(err, body.ErrFull):
		return err
	}
	return errBody
}

func (p *Party) serveContributions(w http.ResponseWriter, r *http.Request, x *shuffle) error {
	return p.take(w, r, onion.ContributionsMedia, p.o.Limits.Body, func(b []byte) error {
		if err := p.contributions(r.Context(), x, b); err != nil {
			return err
		}
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
		return nil
	})
}

func (p *Party) serveBatch(w http.ResponseWriter, r *http.Request, x *shuffle, numbers []uint64) error {
	media, limit := onion.ManifestMedia, int64(onion.MaxManifest)
	if len(numbers) == 2 {
		media, limit = onion.RecordsMedia, p.o.Limits.Body
	}
	return p.take(w, r, media, limit, func(b []byte) (err error) {
		var progress Progress
		if len(numbers) == 1 {
			progress, err = p.announce(x, numbers[0], b)
		} else {
			progress, err = p.piece(r.Context(), x, numbers[0], numbers[1], b)
		}
		if err != nil {
			p.count(x, wordRefused, 1)
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		return json.NewEncoder(w).Encode(progress)
	})
}

func (p *Party) serveKeys(w http.ResponseWriter, r *http.Request, x *shuffle) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return errMethod
	}
	b, err := p.keys(x)
	if err != nil {
		return err
	}
	return send(w, onion.KeysMedia, b)
}

func send(w http.ResponseWriter, media string, b []byte) error {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Write(b)
	return nil
}

// keys is the signed list of the keys of rounds that take contributions, or batches of them:
// those that are not flushed.
func (p *Party) keys(x *shuffle) ([]byte, error) {
	now := p.o.Clock.Now()
	l := &onion.KeyList{Recipe: x.Recipe, Role: p.o.Role, Issued: now}
	p.mu.Lock()
	var rounds []uint64
	for n, r := range x.rounds {
		if r.key != nil && now.Before(x.Flush(n)) && !x.Flush(n).After(p.o.Signer.Until()) {
			rounds = append(rounds, n)
		}
	}
	slices.Sort(rounds)
	for i, n := range rounds {
		if i > 0 && n != rounds[i-1]+1 {
			break // a clock had jumped
		}
		if len(l.Keys) == 0 {
			l.First = n
		}
		l.Keys = append(l.Keys, [32]byte(x.rounds[n].key.Public().Bytes()))
		l.Until = x.Flush(n)
	}
	p.mu.Unlock()
	if len(l.Keys) == 0 {
		return nil, ErrRound
	}
	return l.Sign(p.o.Signer)
}

func (p *Party) serveResult(w http.ResponseWriter, r *http.Request, x *shuffle, n uint64) error {
	if r.Method != http.MethodGet {
		return errMethod
	}
	if !known(r, p.o.Readers) {
		return errToken
	}
	b, err := disk.ReadFile(x.fs, resultName(n), onion.MaxTally+onion.MaxManifest+1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrRound
	}
	if err != nil {
		return err
	}
	return send(w, onion.ResultMedia, b)
}
