package uploads

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/starling-agg/starling/shuffle/onion"
)

// Contributions knows envelopes of the shuffled and the direct path, which go to hop 1 or to
// an analyzer. It fits gateway.Protocol. The zero value is ready.
type Contributions struct{}

// ErrContribution: not an upload request of one envelope.
var ErrContribution = errors.New("uploads: not an upload of one envelope")

// shuffle is the recipe whose contributions a path is of.
func shuffle(path string) (id [32]byte, err error) {
	rest, ok := strings.CutPrefix(path, "shuffles/")
	encoded, _, _ := strings.Cut(rest, "/")
	b, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil || len(b) != len(id) {
		return id, ErrContribution
	}
	if id = [32]byte(b); path != onion.ContributionsPath(id) {
		return id, ErrContribution
	}
	return id, nil
}

// Route says whether path, without a slash at its start, and media type are those of a
// contribution.
func (Contributions) Route(path, media string) (string, error) {
	if _, err := shuffle(path); err != nil {
		return "", err
	}
	if got, params, err := mime.ParseMediaType(media); err != nil || got != onion.ContributionsMedia || len(params) > 0 {
		return "", fmt.Errorf("%w: media type", ErrContribution)
	}
	return onion.ContributionsMedia, nil
}

// Task is the recipe of a path of contributions.
func (Contributions) Task(path string) ([32]byte, error) { return shuffle(path) }

// Name returns what names an envelope: its recipe and its SHA-256. It fails for a body that is
// not exactly one envelope: they say themselves how long they are, so that one of another size
// moves no other when many are joined.
func (Contributions) Name(path string, body []byte) ([]byte, error) {
	id, err := shuffle(path)
	if err != nil {
		return nil, err
	}
	if _, _, rest, err := onion.ReadEnvelope(body); err != nil || len(rest) > 0 {
		return nil, ErrContribution
	}
	sum := sha256.Sum256(body)
	return append(id[:], sum[:]...), nil
}

// Join makes one upload, in pieces: envelopes follow one another.
func (Contributions) Join(bodies [][]byte) [][]byte { return bodies }

// Refusals is never any: whoever takes envelopes has one answer, of no bytes.
func (Contributions) Refusals(_ [][]byte, answer []byte) (map[string]uint64, error) {
	if len(answer) > 0 {
		return nil, errors.New("uploads: the answer to contributions is not empty")
	}
	return nil, nil
}

// Reasons are the words of Refusals: none.
func (Contributions) Reasons() []string { return nil }

// Final says whether an error answer is about the upload: its bytes are refused (400, 413).
func (Contributions) Final(status int, _ []byte) bool {
	return status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge
}

// Unknown says whether an error answer says that nobody there knows the recipe.
func (Contributions) Unknown(status int, answer []byte) bool {
	var p struct{ Type string }
	return status == http.StatusNotFound && json.Unmarshal(answer, &p) == nil && p.Type == onion.ProblemUnknownRecipe
}

// Both knows uploads of DAP and contributions, which their paths tell apart. It fits
// gateway.Protocol. The zero value is ready.
type Both struct{}

// protocol is one that can tell a path.
type protocol interface {
	Route(path, media string) (string, error)
	Task(path string) ([32]byte, error)
	Name(path string, body []byte) ([]byte, error)
}

func of(path string) protocol {
	if strings.HasPrefix(path, "shuffles/") {
		return Contributions{}
	}
	return DAP{}
}

// Route is that of the protocol that has the path.
func (Both) Route(path, media string) (string, error) { return of(path).Route(path, media) }

// Task is that of the protocol that has the path.
func (Both) Task(path string) ([32]byte, error) { return of(path).Task(path) }

// Name is that of the protocol that has the path.
func (Both) Name(path string, body []byte) ([]byte, error) { return of(path).Name(path, body) }

// Join is the same in both.
func (Both) Join(bodies [][]byte) [][]byte { return bodies }

// Refusals are DAP's: an answer that is not empty is none to contributions, which are no
// reports, so that it fails.
func (Both) Refusals(bodies [][]byte, answer []byte) (map[string]uint64, error) {
	return DAP{}.Refusals(bodies, answer)
}

// Reasons are DAP's.
func (Both) Reasons() []string { return DAP{}.Reasons() }

// Final is the same in both.
func (Both) Final(status int, answer []byte) bool { return DAP{}.Final(status, answer) }

// Unknown is any answer that nothing is there. A leader that is sent a contribution, or hop 1
// a report, has no word of its protocol for that; and anybody may send either to both, so that
// what never was taken must not be held without bound.
func (Both) Unknown(status int, _ []byte) bool { return status == http.StatusNotFound }
