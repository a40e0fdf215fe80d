package postgres

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/dap"
)

// hidden is what the entries of runs, and the ids of flights, are enciphered with: each id
// is one block of AES-256 under a key of the task. Ids that differ still do, so that an id
// is looked for as before, and without the key they are random bytes.
type hidden struct {
	block cipher.Block
	veil  []byte // key of what hides digests
}

// veilSize is the size of the random bytes that a run has for its digest.
const veilSize = 16

// hidden is the task's, of a kind of runs; nil where it has no secret yet.
func (s *Store) hidden(of runsOf) (*hidden, error) {
	t := of.t
	if h := t.hidden[of.secret]; h != nil || !t.own() {
		return h, nil
	}
	keys, err := s.expand(t, of.secret, 64)
	if err != nil {
		return nil, err
	}
	defer clear(keys[:32])
	block, err := aes.NewCipher(keys[:32])
	if err != nil {
		return nil, err
	}
	if t.hidden == nil {
		t.hidden = make(map[string]*hidden)
	}
	t.hidden[of.secret] = &hidden{block, keys[32:]}
	return t.hidden[of.secret], nil
}

// hide is what rows have of ids, and of entries, which are two of them.
func (h *hidden) hide(all []byte) []byte {
	out := make([]byte, len(all))
	for i := 0; i < len(all); i += idSize {
		h.block.Encrypt(out[i:], all[i:i+idSize])
	}
	return out
}

// show turns what a row has into what was hidden, which is in no order.
func (h *hidden) show(all []byte) []byte {
	out := make([]byte, len(all))
	for i := 0; i < len(all); i += idSize {
		h.block.Decrypt(out[i:], all[i:i+idSize])
	}
	return out
}

// cover hides the digest of a run, which would tell of a few ids whether they are those, and
// shows it again.
func (h *hidden) cover(digest segment.SetDigest, veil []byte) (out segment.SetDigest) {
	mac := hmac.New(sha256.New, h.veil)
	mac.Write(veil)
	subtle.XORBytes(out[:], digest[:], mac.Sum(nil))
	return out
}

// errNoSecret: a row is enciphered, and the task had no secret when its row was read. It
// has got one since.
var errNoSecret = errors.New("ids are under a secret that was not there")

// splitIDs are the ids of a run's bytes.
func splitIDs(all []byte) []dap.ReportID {
	ids := make([]dap.ReportID, 0, len(all)/idSize)
	for id := range slices.Chunk(all, idSize) {
		ids = append(ids, dap.ReportID(id))
	}
	return ids
}
