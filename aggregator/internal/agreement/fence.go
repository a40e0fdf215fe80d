package agreement

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// FenceHeader is the header field of a request from our leader that carries its fence.
const FenceHeader = "Starling-Agreement"

// fenceValue is the field's value: the id of the verification key that jobs begin with, and
// the fence.
func fenceValue(id uint8, fence Digest) string {
	return strconv.Itoa(int(id)) + " " + hex.EncodeToString(fence[:])
}

// readFence reads the field's value, in its one spelling.
func readFence(s string) (id uint8, fence Digest, err error) {
	number, digits, _ := strings.Cut(s, " ")
	n, err := strconv.ParseUint(number, 10, 8)
	if err == nil {
		_, err = hex.Decode(fence[:], []byte(digits[:min(len(digits), 2*len(fence))]))
	}
	if err != nil || fenceValue(uint8(n), fence) != s {
		return 0, Digest{}, fmt.Errorf("%w: a fence of %d bytes", ErrMessage, len(s))
	}
	return uint8(n), fence, nil
}
