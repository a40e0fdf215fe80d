package attester

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// TestCodes: a code is one device, however it is typed; a file of hashes tells no code, and
// what is none is refused.
func TestCodes(t *testing.T) {
	codes, file, err := MakeCodes(3)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadCodes(file)
	if err != nil || c.Len() != 3 {
		t.Fatalf("%d codes, %v", c.Len(), err)
	}
	seen := map[[32]byte]bool{}
	for _, code := range codes {
		if bytes.Contains(file, []byte(code)) {
			t.Error("the file has a code")
		}
		id, err := c.Device(t.Context(), &Evidence{Proof: []byte(code)})
		again, err2 := c.Device(t.Context(), &Evidence{Proof: []byte(" " + strings.ToLower(code) + "\n")})
		if err != nil || err2 != nil || id != again || seen[id] {
			t.Errorf("%x, %x, %v, %v", id, again, err, err2)
		}
		seen[id] = true
	}
	for _, bad := range []string{"", codes[0][1:], codes[0] + "A", string(file)} {
		if _, err := c.Device(t.Context(), &Evidence{Proof: []byte(bad)}); !errors.Is(err, ErrProof) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	line := strings.Split(string(file), "\n")[1]
	for _, bad := range []string{"", codesHead, "starling anchors v1\n", codesHead + "\nxx\n", codesHead + "\n" + line + "00\n", codesHead + "\n" + line + "\n" + line + "\n",
		codesHead + "\n\n" + line + "\n"} {
		if _, err := ReadCodes([]byte(bad)); !errors.Is(err, ErrCodes) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, n := range []int{0, maxCodes + 1} {
		if _, _, err := MakeCodes(n); err == nil {
			t.Errorf("%d codes", n)
		}
	}
}
