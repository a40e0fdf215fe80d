package tlog

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	merkle "golang.org/x/mod/sumdb/tlog"
)

// A Proof is that one entry is in a log: tlog-proof's, which is verified without asking
// anybody.
type Proof struct {
	// Extra is for whoever uses the proof, and proved by nothing; empty for none.
	Extra []byte
	// Index is the entry's place in the log.
	Index int64
	// Hashes lead from the entry to the root.
	Hashes []Hash
	// Note is the signed checkpoint.
	Note []byte
}

// ErrProof: malformed, or it proves something else.
var ErrProof = errors.New("tlog: the proof does not hold")

const (
	proofHead = "c2sp.org/tlog-proof@v1\n"
	// maxPath bounds the hashes of a proof in a log of MaxSize: C2SP has 63.
	maxPath = 63
	// MaxProof bounds a proof's file, in bytes.
	MaxProof = MaxNote + 128<<10
	maxExtra = MaxEntry
)

// Append appends the proof's file.
func (p *Proof) Append(dst []byte) []byte {
	dst = append(dst, proofHead...)
	if len(p.Extra) > 0 {
		dst = fmt.Appendf(dst, "extra %s\n", base64.StdEncoding.EncodeToString(p.Extra))
	}
	dst = fmt.Appendf(dst, "index %d\n", p.Index)
	for _, h := range p.Hashes {
		dst = fmt.Appendf(dst, "%s\n", base64.StdEncoding.EncodeToString(h[:]))
	}
	return append(append(dst, '\n'), p.Note...)
}

// ReadProof reads exactly one proof's file, and verifies nothing. It fails with
// [ErrProof].
func ReadProof(b []byte) (*Proof, error) {
	bad := func(why string) (*Proof, error) { return nil, fmt.Errorf("%w: %s", ErrProof, why) }
	rest, ok := bytes.CutPrefix(b, []byte(proofHead))
	if !ok || len(b) > MaxProof {
		return bad("no proof of tlog-proof's version 1, or too long")
	}
	head, signed, ok := bytes.Cut(rest, []byte("\n\n"))
	if !ok {
		return bad("no checkpoint")
	}
	p := &Proof{Note: bytes.Clone(signed)}
	lines := strings.Split(string(head), "\n")
	if extra, ok := strings.CutPrefix(lines[0], "extra "); ok {
		var err error
		if p.Extra, err = decodeBase64(extra); err != nil || len(p.Extra) == 0 || len(p.Extra) > maxExtra {
			return bad("the extra data")
		}
		lines = lines[1:]
	}
	if len(lines) == 0 || len(lines) > 1+maxPath {
		return bad("no index, or too many hashes")
	}
	index, ok := strings.CutPrefix(lines[0], "index ")
	var err error
	if p.Index, err = parseSize(index); !ok || err != nil {
		return bad("no index")
	}
	for _, line := range lines[1:] {
		h, err := parseHash(line)
		if err != nil {
			return bad("a line that is no hash")
		}
		p.Hashes = append(p.Hashes, h)
	}
	return p, nil
}

// OpenProof says whether the proof shows an entry in a log that the policy takes, however
// long ago. It fails with [ErrProof] and as [Policy.Open].
func (p *Policy) OpenProof(x *Proof, entry []byte, now time.Time) (*Witnessed, error) {
	w, err := p.Open(x.Note, now)
	if err != nil {
		return nil, err
	}
	if x.Index >= w.Size || merkle.CheckRecord(x.Hashes, w.Size, w.Root, x.Index, LeafHash(entry)) != nil {
		return nil, fmt.Errorf("%w: the entry is not at place %d of the log", ErrProof, x.Index)
	}
	return w, nil
}

// Continues says whether a proof shows that one tree continues another, as RFC 6962 has
// it. Any tree continues the empty one, and itself, without a proof. It fails with
// [ErrProof].
func Continues(oldSize int64, oldRoot Hash, size int64, root Hash, proof []Hash) error {
	switch {
	case oldSize > size || oldSize < 0:
		return fmt.Errorf("%w: from size %d back to %d", ErrProof, oldSize, size)
	case oldSize == 0 || oldSize == size:
		if len(proof) > 0 {
			return fmt.Errorf("%w: more than is needed", ErrProof)
		}
		if oldSize == size && oldRoot != root {
			return fmt.Errorf("%w: two trees of size %d", ErrProof, size)
		}
		return nil
	}
	if merkle.CheckTree(proof, size, root, oldSize, oldRoot) != nil {
		return fmt.Errorf("%w: the tree of size %d does not continue that of size %d", ErrProof, size, oldSize)
	}
	return nil
}

// A Submission is what a log sends a witness: tlog-witness's add-checkpoint.
type Submission struct {
	// Old is the size that the witness has signed last, as the log knows.
	Old int64
	// Proof shows that the new tree continues that of Old.
	Proof []Hash
	// Note is the signed checkpoint.
	Note []byte
}

// MaxSubmission bounds a submission, in bytes.
const MaxSubmission = MaxNote + 4<<10

// Append appends the body of the request.
func (s *Submission) Append(dst []byte) []byte {
	dst = fmt.Appendf(dst, "old %d\n", s.Old)
	for _, h := range s.Proof {
		dst = fmt.Appendf(dst, "%s\n", base64.StdEncoding.EncodeToString(h[:]))
	}
	return append(append(dst, '\n'), s.Note...)
}

// ReadSubmission reads exactly one body, and verifies nothing. It fails with [ErrProof].
func ReadSubmission(b []byte) (*Submission, error) {
	bad := func(why string) (*Submission, error) { return nil, fmt.Errorf("%w: %s", ErrProof, why) }
	head, signed, ok := bytes.Cut(b, []byte("\n\n"))
	if !ok || len(b) > MaxSubmission {
		return bad("no checkpoint behind an empty line, or too long")
	}
	lines := strings.Split(string(head), "\n")
	if len(lines) > 1+maxPath {
		return bad("too many hashes")
	}
	old, ok := strings.CutPrefix(lines[0], "old ")
	s := &Submission{Note: bytes.Clone(signed)}
	var err error
	if s.Old, err = parseSize(old); !ok || err != nil {
		return bad("no old size")
	}
	for _, line := range lines[1:] {
		h, err := parseHash(line)
		if err != nil {
			return bad("a line that is no hash")
		}
		s.Proof = append(s.Proof, h)
	}
	return s, nil
}
