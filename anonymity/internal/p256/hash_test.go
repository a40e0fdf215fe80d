package p256

import (
	"encoding/hex"
	"strings"
	"testing"
)

// TestHashToCurveVectors has the vectors of RFC 9380 appendix J.1.1.
func TestHashToCurveVectors(t *testing.T) {
	const tag = "QUUX-V01-CS02-with-P256_XMD:SHA-256_SSWU_RO_"
	for _, v := range []struct{ msg, x, y, q0 string }{
		{"", "2c15230b26dbc6fc9a37051158c95b79656e17a1a920b11394ca91c44247d3e4",
			"8a7a74985cc5c776cdfe4b1f19884970453912e9d31528c060be9ab5c43e8415",
			"ab640a12220d3ff283510ff3f4b1953d09fad35795140b1c5d64f313967934d5"},
		{"abc", "0bb8b87485551aa43ed54f009230450b492fead5f1cc91658775dac4a3388a0f",
			"5c41b3d0731a27a7b14bc0bf0ccded2d8751f83493404c84a88e71ffd424212e",
			"5219ad0ddef3cc49b714145e91b2f7de6ce0a7a7dc7406c7726c7e373c58cb48"},
		{"abcdef0123456789", "65038ac8f2b1def042a5df0b33b1f4eca6bff7cb0f9c6c1526811864e544ed80",
			"cad44d40a656e7aff4002a8de287abc8ae0482b5ae825822bb870d6df9b56ca3",
			"a17bdf2965eb88074bc01157e644ed409dac97cfcf0c61c998ed0fa45e79e4a2"},
		{"q128_" + strings.Repeat("q", 128), "4be61ee205094282ba8a2042bcb48d88dfbb609301c49aa8b078533dc65a0b5d",
			"98f8df449a072c4721d241a3b1236d3caccba603f916ca680f4539d2bfb3c29e",
			"c76aaa823aeadeb3f356909cb08f97eee46ecb157c1f56699b5efebddf0e6398"},
		{"a512_" + strings.Repeat("a", 512), "457ae2981f70ca85d8e24c308b14db22f3e3862c5ea0f652ca38b5e49cd64bc5",
			"ecb9f0eadc9aeed232dabc53235368c1394c78de05dd96893eefa62b0f4757dc",
			"d88b989ee9d1295df413d4456c5c850b8b2fb0f5402cc5c4c7e815412e926db8"},
	} {
		e := HashToGroup([]byte(v.msg), tag)
		if x, y := e.x.bytes(), e.y.bytes(); hex.EncodeToString(x[:]) != v.x || hex.EncodeToString(y[:]) != v.y {
			t.Errorf("%.20q is hashed to %x, %x", v.msg, x, y)
		}
		// The first of the two points that are added.
		var b [2 * wideSize]byte
		expand(b[:], []byte(v.msg), tag)
		var u fe
		u.setWide((*[wideSize]byte)(b[:]))
		q := simplifiedSWU(&u)
		if x := q.x.bytes(); hex.EncodeToString(x[:]) != v.q0 {
			t.Errorf("%.20q: the first point is %x", v.msg, x)
		}
	}
}

// TestExpandVectors has vectors of RFC 9380 appendix K.1.
func TestExpandVectors(t *testing.T) {
	const tag = "QUUX-V01-CS02-with-expander-SHA256-128"
	for _, v := range []struct {
		msg    string
		length int
		want   string // the first 32 bytes
	}{
		{"", 32, "68a985b87eb6b46952128911f2a4412bbc302a9d759667f87f7a21d803f07235"},
		{"abc", 32, "d8ccab23b5985ccea865c6c97b6e5b8350e794e603b4b97902f53a8a0d605615"},
		{"q128_" + strings.Repeat("q", 128), 32, "b23a1d2b4d97b2ef7785562a7e8bac7eed54ed6e97e29aa51bfe3f12ddad1ff9"},
		{"", 128, "af84c27ccfd45d41914fdff5df25293e221afc53d8ad2ac06d5e3e29485dadbe"},
		{"abc", 128, "abba86a6129e366fc877aab32fc4ffc70120d8996c88aee2fe4b32d6c7b6437a"},
	} {
		out := make([]byte, v.length)
		expand(out, []byte(v.msg), tag)
		if hex.EncodeToString(out[:32]) != v.want {
			t.Errorf("%.20q to %d bytes: %x", v.msg, v.length, out[:32])
		}
	}
}

// TestSimplifiedSWUOfZero: u with Z^2 u^4 + Z u^2 = 0 take the map's other branch.
func TestSimplifiedSWUOfZero(t *testing.T) {
	// The other solutions have u^2 = 1/10, of which one is a square.
	var tenth, root, again fe
	ten := small(10)
	tenth.invert(&ten)
	if again.square(root.root(&tenth)).equal(&tenth) != 1 {
		t.Fatal("1/10 has no root")
	}
	for _, u := range []fe{{}, root, root.negated()} {
		e := simplifiedSWU(&u)
		var y2 fe
		if y2.square(&e.y); *new(fe).polynomial(&e.x) != y2 {
			t.Errorf("%v is mapped off the curve", u)
		}
	}
}
