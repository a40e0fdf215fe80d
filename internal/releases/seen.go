package releases

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/dap"
)

// Header is the field in which a leader tells a collector how far a task's releases are,
// beside a result, and in which the collector tells it the furthest that it has seen, with
// each question. A party that does not know it leaves it out.
const Header = "Starling-Releases"

// ProblemForgotten is the type of the problem that a collector gets who has seen a release
// that the leader has not made: the leader's store was put back.
const ProblemForgotten dap.ProblemType = "urn:starling:releases:forgotten"

// ProblemClosed is the type of the problem with which a task is refused that a restore of
// its leader closed for good.
const ProblemClosed dap.ProblemType = "urn:starling:releases:closed"

// Seen is how far somebody has seen a task's releases.
type Seen struct {
	Length uint64
	Chain  Digest
}

// String writes the length, a space and the digest in hexadecimal digits.
func (s Seen) String() string { return fmt.Sprintf("%d %x", s.Length, s.Chain[:]) }

// ErrSeen: not what [Seen.String] writes.
var ErrSeen = errors.New("releases: neither a length nor a digest")

// ParseSeen reads the one spelling of what [Seen.String] writes.
func ParseSeen(text string) (s Seen, err error) {
	length, digest, _ := strings.Cut(text, " ")
	if s.Length, err = strconv.ParseUint(length, 10, 64); err != nil {
		return Seen{}, ErrSeen
	}
	b, err := hex.DecodeString(digest)
	if err != nil || copy(s.Chain[:], b) != len(s.Chain) || s.String() != text {
		return Seen{}, ErrSeen
	}
	return s, nil
}
