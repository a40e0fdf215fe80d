package signed

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// smallOrder are all encodings of points of small order that decoders of the curve have
// been known to take: the eight points, and the other ways to write those that have them.
var smallOrder = []string{
	"0100000000000000000000000000000000000000000000000000000000000000", // order 1
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // order 2
	"0000000000000000000000000000000000000000000000000000000000000000", // order 4
	"0000000000000000000000000000000000000000000000000000000000000080",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", // order 8
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
	"0100000000000000000000000000000000000000000000000000000000000080", // x = 0 with a sign
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // y = p + 1
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // y = p
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
}

func TestKeysRefused(t *testing.T) {
	for _, s := range smallOrder {
		if _, err := ParsePublicKey(s); !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", s, err)
		}
	}
	// y from p = 2^255-19 to 2^255-1, with either sign: no key has two encodings.
	decoded := 0
	for low := 0xed; low <= 0xff; low++ {
		for _, high := range []byte{0x7f, 0xff} {
			b := bytes.Repeat([]byte{0xff}, KeySize)
			b[0], b[KeySize-1] = byte(low), high
			_, err := ReadPublicKey(b)
			if !errors.Is(err, ErrKey) {
				t.Errorf("%x: %v", b, err)
			}
			if strings.Contains(err.Error(), "one encoding") {
				decoded++
			}
		}
	}
	if decoded < 10 {
		t.Errorf("only %d of 38 are points written in another way: does the test test anything?", decoded)
	}
	for _, s := range []string{"", "00", strings.Repeat("00", 33), strings.Repeat("g", 64),
		"D75A980182B10AB7D54BFED3C964073A0EE172F3DAA62325AF021A68F707511A",
		"0200000000000000000000000000000000000000000000000000000000000000"} { // no point
		if _, err := ParsePublicKey(s); !errors.Is(err, ErrKey) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestKeysOfRFC8032: keys of RFC 8032 section 7.1 are taken, and ours sign as the
// standard library does.
func TestKeysOfRFC8032(t *testing.T) {
	for seed, public := range map[string]string{
		"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60": "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
		"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb": "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
	} {
		k, err := ParsePublicKey(public)
		if err != nil || k.String() != public {
			t.Errorf("%s: %v", public, err)
		}
		b, _ := hex.DecodeString(fmt.Sprintf("%x%s%s", fileMagic, seed, public))
		private, err := ParsePrivateKey(b)
		if err != nil || private.Public() != k || !bytes.Equal(private.Marshal(), b) {
			t.Fatalf("%s: %v", seed, err)
		}
		if s := private.sign("ab", []byte("c")); !ed25519.Verify(k[:], []byte("ab\x00c"), s[:]) {
			t.Error("does not verify")
		}
	}
}

func TestKeyFile(t *testing.T) {
	file := Generate().Marshal()
	for i := range file {
		changed := bytes.Clone(file)
		changed[i] ^= 1
		if _, err := ParsePrivateKey(changed); !errors.Is(err, ErrKey) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := ParsePrivateKey(file[:i]); !errors.Is(err, ErrKey) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
	if _, err := ParsePrivateKey(append(file, 0)); !errors.Is(err, ErrKey) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestKeysAreNotPrinted(t *testing.T) {
	k := Generate()
	var b strings.Builder
	slog.New(slog.NewTextHandler(&b, nil)).Info("k", "key", k)
	j, err := json.Marshal(k)
	text := fmt.Sprintf("%v %+v %#v %s %x %d %q", k, k, k, k, k, k, k) + b.String() + string(j)
	seed := k.key.Seed()
	if err != nil || strings.Contains(text, hex.EncodeToString(seed[:4])) || strings.Contains(text, fmt.Sprint(seed[0], seed[1])) ||
		strings.Count(text, "redacted") != 9 {
		t.Errorf("%s, %v", text, err)
	}
}

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func day(n int) time.Time { return begin.AddDate(0, 0, n) }

// owner is a root with a signer, good for 90 days from begin.
func owner(t testing.TB) (root *PrivateKey, s *Signer) {
	t.Helper()
	root, online := Generate(), Generate()
	d, err := Delegate(root, online.Public(), begin, day(90))
	if err != nil {
		t.Fatal(err)
	}
	if s, err = NewSigner(online, d); err != nil {
		t.Fatal(err)
	}
	return root, s
}

func TestChain(t *testing.T) {
	root, s := owner(t)
	other, theirs := owner(t)
	message := []byte("message")
	good, err := s.Sign("starling test one", message, day(1), day(8))
	if err != nil {
		t.Fatal(err)
	}
	file := good.Append(nil)
	if again, err := ReadSignature(file); err != nil || again != good || len(file) != SignatureSize {
		t.Fatalf("%d bytes, %v", len(file), err)
	}
	if err := good.Verify(root.Public(), "starling test one", message, day(1), day(8)); err != nil {
		t.Fatal(err)
	}
	foreign, err := theirs.Sign("starling test one", message, day(1), day(8))
	if err != nil {
		t.Fatal(err)
	}
	mixed := good // their online key under our root's word
	mixed.Signature = foreign.Signature
	for name, c := range map[string]struct {
		s       Signature
		root    PublicKey
		domain  string
		message string
		from    time.Time
		until   time.Time
		want    error
	}{
		"another root":       {good, other.Public(), "starling test one", "message", day(1), day(8), ErrSignature},
		"no root":            {good, PublicKey{}, "starling test one", "message", day(1), day(8), ErrKey},
		"another owner":      {foreign, root.Public(), "starling test one", "message", day(1), day(8), ErrSignature},
		"another online key": {mixed, root.Public(), "starling test one", "message", day(1), day(8), ErrSignature},
		"another domain":     {good, root.Public(), "starling test two", "message", day(1), day(8), ErrSignature},
		"a moved border":     {good, root.Public(), "starling test on", "emessage", day(1), day(8), ErrSignature},
		"another message":    {good, root.Public(), "starling test one", "massage", day(1), day(8), ErrSignature},
		"before its time":    {good, root.Public(), "starling test one", "message", day(-1), day(8), ErrWindow},
		"an expired key":     {good, root.Public(), "starling test one", "message", day(88), day(91), ErrWindow},
	} {
		if err := c.s.Verify(c.root, c.domain, []byte(c.message), c.from, c.until); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for i := range file { // every byte counts
		changed := bytes.Clone(file)
		changed[i] ^= 0x40
		x, err := ReadSignature(changed)
		if err == nil {
			err = x.Verify(root.Public(), "starling test one", message, day(1), day(8))
		}
		if !errors.Is(err, ErrSignature) && !errors.Is(err, ErrWindow) && !errors.Is(err, ErrKey) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := ReadSignature(file[:i]); !errors.Is(err, ErrSignature) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
	if _, err := s.Sign("starling test one", message, day(85), day(92)); !errors.Is(err, ErrWindow) {
		t.Errorf("signed past its end: %v", err)
	}
}

func TestDelegation(t *testing.T) {
	root, online := Generate(), Generate()
	for name, c := range map[string]struct {
		key         PublicKey
		from, until time.Time
		want        error
	}{
		"too long":    {online.Public(), begin, begin.Add(MaxOnline + time.Second), ErrWindow},
		"empty":       {online.Public(), begin, begin, ErrWindow},
		"before 1970": {online.Public(), time.Unix(-1, 0), time.Unix(1, 0), ErrWindow},
		"itself":      {root.Public(), begin, day(1), ErrKey},
		"no key":      {PublicKey{}, begin, day(1), ErrKey},
	} {
		if _, err := Delegate(root, c.key, c.from, c.until); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d, err := Delegate(root, online.Public(), begin, begin.Add(MaxOnline))
	if err != nil {
		t.Fatal(err)
	}
	file := d.MarshalFile()
	if again, err := ParseDelegation(file); err != nil || again != d {
		t.Error(again, err)
	}
	for i := range file {
		if _, err := ParseDelegation(file[:i]); !errors.Is(err, ErrSignature) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
	if _, err := ParseDelegation(append(file, 0)); !errors.Is(err, ErrSignature) {
		t.Errorf("a byte more: %v", err)
	}
	if _, err := NewSigner(Generate(), d); !errors.Is(err, ErrKey) {
		t.Errorf("another key: %v", err)
	}
	// A root may sign nothing longer than MaxOnline, even if it wants to.
	d.NotAfter = d.NotAfter.Add(time.Hour)
	d.Signature = root.sign(delegationDomain, d.body())
	if err := d.Verify(root.Public()); !errors.Is(err, ErrWindow) {
		t.Errorf("a long life: %v", err)
	}
}

// TestVouchedAgain: that a delegation held before excuses no other one, and no other root.
func TestVouchedAgain(t *testing.T) {
	root, other := Generate(), Generate()
	for range 2 * maxWords {
		d, err := Delegate(root, Generate().Public(), begin, day(1))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := d.Verify(root.Public()); err != nil || !vouched.has(&d) {
				t.Fatal(err)
			}
		}
		if err := d.Verify(other.Public()); !errors.Is(err, ErrSignature) {
			t.Fatalf("another root: %v", err)
		}
	}
	if n := len(vouched.held); n > maxWords {
		t.Errorf("%d are remembered", n)
	}
	d, err := Delegate(root, Generate().Public(), begin, day(1))
	if err != nil || d.Verify(root.Public()) != nil {
		t.Fatal(err)
	}
	good := d.Append(nil)
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 1
		changed, err := ReadDelegation(b)
		if err != nil {
			continue
		}
		for range 2 {
			if changed.Verify(root.Public()) == nil || vouched.has(&changed) {
				t.Fatalf("byte %d changed, and it holds", i)
			}
		}
	}
}

// FuzzSignature: one encoding only, and nothing verifies but what was signed.
func FuzzSignature(f *testing.F) {
	root, s := owner(f)
	good, err := s.Sign("starling test one", []byte("message"), day(1), day(8))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.Append(nil))
	f.Add(good.Append(nil)[:SignatureSize-1])
	f.Add(good.Append([]byte{0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ReadSignature(b)
		if err != nil {
			return
		}
		if again := x.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		if err := x.Verify(root.Public(), "starling test one", []byte("message"), day(1), day(8)); err == nil && x != good {
			t.Fatalf("%x verifies", b)
		}
	})
}
