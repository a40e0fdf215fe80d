package tlog

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	merkle "golang.org/x/mod/sumdb/tlog"
)

// A Hash is that of a leaf or a node of a log's tree: SHA-256, as RFC 6962 has it.
type Hash = merkle.Hash

// A Checkpoint is what a log says of itself at one size.
type Checkpoint struct {
	// Origin is the log's name; 1 to 255 bytes without control characters.
	Origin string
	// Size is the number of entries, 0 or more.
	Size int64
	// Root is the root of the tree over them.
	Root Hash
	// Extensions are lines that others' logs may add. They mean nothing here, and ours add
	// none.
	Extensions []string
}

// Errors of checkpoints, to branch on with errors.Is.
var (
	// ErrCheckpoint: malformed.
	ErrCheckpoint = errors.New("tlog: malformed checkpoint")
	// ErrUnsigned: not signed by the log that is wanted, or a signature does not hold.
	ErrUnsigned = errors.New("tlog: the checkpoint is not signed by the log")
)

const (
	// MaxNote bounds a signed checkpoint with its cosignatures, in bytes.
	MaxNote = 128 << 10
	// MaxSize bounds the size of a log.
	MaxSize = 1 << 40

	maxExtensions = 16
)

// emptyRoot is the root of a tree without a leaf.
var emptyRoot = func() Hash {
	h, err := merkle.TreeHash(0, nil)
	if err != nil {
		panic("tlog: internal error: " + err.Error())
	}
	return h
}()

// Text is what is signed of a checkpoint.
func (c *Checkpoint) Text() string {
	s := c.Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + base64.StdEncoding.EncodeToString(c.Root[:]) + "\n"
	for _, x := range c.Extensions {
		s += x + "\n"
	}
	return s
}

// ReadCheckpoint reads the text of a checkpoint, without signatures. It takes the one
// encoding that [Checkpoint.Text] writes and fails with [ErrCheckpoint].
func ReadCheckpoint(text []byte) (*Checkpoint, error) {
	bad := func(why string) (*Checkpoint, error) { return nil, fmt.Errorf("%w: %s", ErrCheckpoint, why) }
	body, ok := strings.CutSuffix(string(text), "\n")
	lines := strings.Split(body, "\n")
	if !ok || len(text) > MaxNote || len(lines) < 3 || len(lines) > 3+maxExtensions {
		return bad("want three lines or a few more")
	}
	for _, line := range lines {
		if line == "" || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' }) {
			return bad("an empty line, or a control character")
		}
	}
	c := &Checkpoint{Origin: lines[0]}
	if len(lines) > 3 {
		c.Extensions = lines[3:]
	}
	if len(c.Origin) > maxName {
		return bad("the origin is too long")
	}
	var err error
	if c.Size, err = parseSize(lines[1]); err != nil {
		return bad(err.Error())
	}
	root, err := parseHash(lines[2])
	if err != nil {
		return bad("the root is no hash")
	}
	if c.Root = root; c.Size == 0 && root != emptyRoot {
		return bad("the root of an empty log is another")
	}
	return c, nil
}

// parseSize reads a size of a log in its one decimal form.
func parseSize(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > MaxSize || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("the size %.30q", s)
	}
	return n, nil
}

// parseHash reads a hash in its one base64 form.
func parseHash(s string) (h Hash, err error) {
	b, err := decodeBase64(s)
	if err != nil || len(b) != len(h) {
		return h, errors.New("no hash")
	}
	return Hash(b), nil
}

// Sign is the signed note of a checkpoint, by the log's key.
func (c *Checkpoint) Sign(log *Secret) ([]byte, error) {
	if log.key.scheme != Ed25519 || log.key.name != c.Origin {
		return nil, fmt.Errorf("%w: the key of %s signs no checkpoint of %s", ErrKey, log.key.name, c.Origin)
	}
	if _, err := ReadCheckpoint([]byte(c.Text())); err != nil {
		return nil, err
	}
	return note.Sign(&note.Note{Text: c.Text()}, log.At(time.Time{}))
}

// openNote opens a signed checkpoint of one of the logs, with the witnesses' signatures
// that hold in the note.
func openNote(signed []byte, logs, witnesses []*Key) (*Checkpoint, *note.Note, error) {
	if len(signed) > MaxNote {
		return nil, nil, fmt.Errorf("%w: longer than %d bytes", ErrCheckpoint, MaxNote)
	}
	c, err := TextOf(signed)
	if err != nil {
		return nil, nil, err
	}
	known := make([]note.Verifier, 0, len(logs)+len(witnesses))
	for _, k := range logs {
		if k.name == c.Origin {
			known = append(known, k)
		}
	}
	if len(known) == 0 {
		return nil, nil, fmt.Errorf("%w: of the log %.100q, which is not known", ErrUnsigned, c.Origin)
	}
	for _, k := range witnesses {
		known = append(known, k)
	}
	n, err := note.Open(signed, note.VerifierList(known...))
	var none *note.UnverifiedNoteError
	var wrong *note.InvalidSignatureError
	switch {
	case errors.As(err, &none):
		return nil, nil, fmt.Errorf("%w: no signature of a known key", ErrUnsigned)
	case errors.As(err, &wrong):
		return nil, nil, fmt.Errorf("%w: the signature of %s does not hold", ErrUnsigned, wrong.Name)
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	if n.Text != c.Text() {
		return nil, nil, fmt.Errorf("%w: an empty line in the text", ErrCheckpoint)
	}
	for _, sig := range n.Sigs {
		for _, k := range logs {
			if sig.Name == k.name && sig.Hash == k.KeyHash() {
				return c, n, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("%w: only witnesses have signed", ErrUnsigned)
}

// Cosign returns the signature lines that a witness's keys add to the text of a
// checkpoint at a time: what add-checkpoint answers.
func Cosign(text string, at time.Time, keys ...*Secret) ([]byte, error) {
	signers := make([]note.Signer, len(keys))
	for i, s := range keys {
		if s.key.scheme == Ed25519 {
			return nil, fmt.Errorf("%w: %s is a log's key and signs for no witness", ErrKey, s.key.name)
		}
		signers[i] = s.At(at)
	}
	whole, err := note.Sign(&note.Note{Text: text}, signers...)
	if err != nil {
		return nil, err
	}
	return whole[len(text)+1:], nil
}

// timeOf is the time of a cosignature of a note, in whole seconds.
func timeOf(sig note.Signature) (t time.Time, ok bool) {
	b, err := decodeBase64(sig.Base64)
	if err != nil || len(b) < 4 {
		return t, false
	}
	at, ok := cosignedAt(b[4:])
	return time.Unix(int64(at), 0).UTC(), ok
}

// TextOf reads the checkpoint of a signed note, and looks at no signature. It fails with
// [ErrCheckpoint].
func TextOf(signed []byte) (*Checkpoint, error) {
	text, _, _ := strings.Cut(string(signed), "\n\n")
	return ReadCheckpoint([]byte(text + "\n"))
}

// OpenCosigned opens a signed checkpoint that one of the log's keys has signed, and counts
// the signatures of some witnesses, which may be none. The note that it returns has only
// those of known keys, the log's first. It fails with [ErrCheckpoint] and [ErrUnsigned].
func OpenCosigned(signed []byte, logs, witnesses []*Key) (c *Checkpoint, n int, known []byte, err error) {
	c, opened, err := openNote(signed, logs, witnesses)
	if err != nil {
		return nil, 0, nil, err
	}
	isWitness := func(s note.Signature) bool {
		return slices.ContainsFunc(witnesses, func(k *Key) bool { return s.Name == k.name && s.Hash == k.KeyHash() })
	}
	known = []byte(c.Text() + "\n")
	for _, witness := range []bool{false, true} {
		for _, sig := range opened.Sigs {
			if isWitness(sig) == witness {
				known = fmt.Appendf(known, "\u2014 %s %s\n", sig.Name, sig.Base64)
				if witness {
					n++
				}
			}
		}
	}
	return c, n, known, nil
}
