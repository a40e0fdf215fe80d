package attester

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	codesHead  = "starling enrolment codes v1"
	codeDomain = "starling enrolment code v1"
	codeSize   = 16      // bytes
	maxCodes   = 1 << 20 // of a file
	maxFile    = maxCodes * 80
)

var codeText = base32.StdEncoding.WithPadding(base32.NoPadding)

// Codes are one-time codes, each for one device. That no person has two is the word of who
// gave them out. Kept of a code is its hash.
type Codes struct{ hashes map[[32]byte]struct{} }

func codeHash(code string) [32]byte { return sha256.Sum256([]byte(codeDomain + code)) }

// MakeCodes makes new codes, of 128 random bits each, and the file of their hashes, sorted,
// so that no line tells which code was made first.
func MakeCodes(n int) (codes []string, file []byte, err error) {
	if n < 1 || n > maxCodes {
		return nil, nil, fmt.Errorf("attester: %d codes, want 1 to %d", n, maxCodes)
	}
	var lines []string
	for range n {
		var b [codeSize]byte
		rand.Read(b[:])
		code := codeText.EncodeToString(b[:])
		h := codeHash(code)
		codes, lines = append(codes, code), append(lines, hex.EncodeToString(h[:]))
	}
	slices.Sort(lines)
	return codes, []byte(codesHead + "\n" + strings.Join(lines, "\n") + "\n"), nil
}

// ErrCodes: not a file of codes.
var ErrCodes = errors.New("attester: not a file of enrolment codes")

// ReadCodes reads the file of the hashes of codes ([ErrCodes]).
func ReadCodes(file []byte) (*Codes, error) {
	head, rest, ok := strings.Cut(string(file), "\n")
	if !ok || head != codesHead || len(file) > maxFile {
		return nil, fmt.Errorf("%w: want the line %q at its head", ErrCodes, codesHead)
	}
	c := &Codes{hashes: make(map[[32]byte]struct{})}
	n := 1
	for line := range strings.Lines(rest) {
		n++
		var h [32]byte
		text := strings.TrimSuffix(line, "\n")
		if k, err := hex.Decode(h[:], []byte(text)[:min(len(text), 64)]); err != nil || k != len(h) || len(text) != 64 {
			return nil, fmt.Errorf("%w: line %d is no hash", ErrCodes, n)
		}
		if _, twice := c.hashes[h]; twice {
			return nil, fmt.Errorf("%w: line %d stands twice", ErrCodes, n)
		}
		c.hashes[h] = struct{}{}
	}
	return c, nil
}

// Len is how many there are.
func (c *Codes) Len() int { return len(c.hashes) }

// Device implements [Attestation]: the device is whoever has the code.
func (c *Codes) Device(_ context.Context, e *Evidence) ([32]byte, error) {
	code := strings.ToUpper(strings.TrimSpace(string(e.Proof)))
	h := codeHash(code)
	if _, ok := c.hashes[h]; !ok {
		return [32]byte{}, fmt.Errorf("%w: no such code was given out", ErrProof)
	}
	return h, nil
}
