package sealed

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
)

var suites = []Suite{
	SuiteX25519,
	SuiteXWing,
	{KEMP256, KDFSHA256, AEADAES128GCM},
	{KEMX25519, KDFSHA384, AEADAES256GCM},
	{KEMX25519, KDFSHA512, AEADChaCha20Poly1305},
}

func generate(t testing.TB, id uint8, s Suite) *KeyPair {
	t.Helper()
	k, err := Generate(id, s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func keyring(t testing.TB, keys ...*KeyPair) *Keyring {
	t.Helper()
	r, err := NewKeyring(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// parallel is a runner with a goroutine for each item.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// RFC 9180 appendix A.1.1 (base mode, X25519, HKDF-SHA256, AES-128-GCM), its first
// encryption.
func TestRFC9180(t *testing.T) {
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	private := unhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
	public := unhex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d")
	// The vector's private key is not clamped, and a key file has one encoding.
	private[0] &= 248
	private[31] = private[31]&127 | 64
	file := append([]byte(fileMagic), 7, 0, 0x20, 0, 1, 0, 1, 0, 32)
	file = append(append(append(file, private...), 0, 32), public...)
	k, err := ParseKeyPair(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := k.Open(
		unhex("37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"),
		unhex("4f6465206f6e2061204772656369616e2055726e"),
		unhex("436f756e742d30"),
		unhex("f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "4265617574792069732074727574682c20747275746820626561757479"; hex.EncodeToString(got) != want {
		t.Errorf("opened %x, want %s", got, want)
	}
}

func TestSealOpen(t *testing.T) {
	for _, s := range suites {
		t.Run(fmt.Sprintf("%04x-%d-%d", s.KEM, s.KDF, s.AEAD), func(t *testing.T) {
			k := generate(t, 9, s)
			pub, err := NewPublicKey(s, k.Public().Bytes())
			if err != nil {
				t.Fatal(err)
			}
			info, aad, message := []byte("info"), []byte("aad"), []byte("message")
			enc, ct, err := pub.Seal(info, aad, message)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := k.Open(enc, info, aad, ct); err != nil || !bytes.Equal(got, message) {
				t.Fatalf("opened %q, %v", got, err)
			}
			flip := func(b []byte) []byte {
				b = bytes.Clone(b)
				b[len(b)/2] ^= 1
				return b
			}
			for name, open := range map[string]func() ([]byte, error){
				"enc":       func() ([]byte, error) { return k.Open(flip(enc), info, aad, ct) },
				"short enc": func() ([]byte, error) { return k.Open(enc[1:], info, aad, ct) },
				"no enc":    func() ([]byte, error) { return k.Open(nil, info, aad, ct) },
				"zero enc":  func() ([]byte, error) { return k.Open(make([]byte, len(enc)), info, aad, ct) },
				"info":      func() ([]byte, error) { return k.Open(enc, flip(info), aad, ct) },
				"aad":       func() ([]byte, error) { return k.Open(enc, info, flip(aad), ct) },
				"ct":        func() ([]byte, error) { return k.Open(enc, info, aad, flip(ct)) },
				"short ct":  func() ([]byte, error) { return k.Open(enc, info, aad, ct[:3]) },
				"no ct":     func() ([]byte, error) { return k.Open(enc, info, aad, nil) },
				"key":       func() ([]byte, error) { return generate(t, 9, s).Open(enc, info, aad, ct) },
			} {
				if got, err := open(); !errors.Is(err, ErrOpen) || got != nil {
					t.Errorf("changed %s: got %q, %v; want ErrOpen", name, got, err)
				}
			}
		})
	}
}

// TestContexts: both ends of a context export the same secrets, which differ by label and
// by context.
func TestContexts(t *testing.T) {
	for _, s := range suites {
		k := generate(t, 9, s)
		enc, sender, err := k.Public().Sender([]byte("info"))
		if err != nil || len(enc) != s.EncSize() {
			t.Fatalf("%04x: enc of %d bytes, want %d; %v", s.KEM, len(enc), s.EncSize(), err)
		}
		recipient, err := k.Recipient(enc, []byte("info"))
		if err != nil {
			t.Fatal(err)
		}
		other, err := k.Recipient(enc, []byte("other"))
		if err != nil {
			t.Fatal(err)
		}
		a, err1 := sender.Export("label", 32)
		b, err2 := recipient.Export("label", 32)
		c, err3 := recipient.Export("lapel", 32)
		d, err4 := other.Export("label", 32)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) || bytes.Equal(a, c) || bytes.Equal(a, d) {
			t.Errorf("%04x: exported %x and %x; %x under another label, %x under another info", s.KEM, a, b, c, d)
		}
		if _, err := k.Recipient(enc[1:], []byte("info")); !errors.Is(err, ErrOpen) {
			t.Errorf("%04x: short enc: %v", s.KEM, err)
		}
	}
}

func TestUnsupportedSuites(t *testing.T) {
	for _, s := range []Suite{
		{0, KDFSHA256, AEADAES128GCM}, {0x0041, KDFSHA256, AEADAES128GCM},
		{KEMX25519, 0, AEADAES128GCM}, {KEMX25519, 0x0010, AEADAES128GCM},
		{KEMX25519, KDFSHA256, 0}, {KEMX25519, KDFSHA256, 0xffff},
	} {
		if s.Supported() {
			t.Errorf("%+v is supported", s)
		}
		if _, err := Generate(1, s); !errors.Is(err, ErrSuite) {
			t.Errorf("Generate %+v: %v", s, err)
		}
		if _, err := NewPublicKey(s, make([]byte, 32)); !errors.Is(err, ErrSuite) {
			t.Errorf("NewPublicKey %+v: %v", s, err)
		}
	}
	if _, err := NewPublicKey(SuiteX25519, make([]byte, 31)); !errors.Is(err, ErrKey) {
		t.Errorf("short public key: %v", err)
	}
}

func TestKeyFile(t *testing.T) {
	for _, s := range suites {
		k := generate(t, 200, s)
		file, err := k.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseKeyPair(file)
		if err != nil {
			t.Fatal(err)
		}
		if again.ID() != 200 || again.Public().Suite() != s || !bytes.Equal(again.Public().Bytes(), k.Public().Bytes()) {
			t.Errorf("%+v: another key came back", s)
		}
		for n := range file {
			if _, err := ParseKeyPair(file[:n]); !errors.Is(err, ErrKey) {
				t.Fatalf("%+v: cut at %d: %v", s, n, err)
			}
		}
		if _, err := ParseKeyPair(append(bytes.Clone(file), 0)); !errors.Is(err, ErrKey) {
			t.Errorf("%+v: trailing byte: %v", s, err)
		}
		for _, at := range []int{len(fileMagic) + 10, len(file) - 2} { // in the private key, in the public key
			damaged := bytes.Clone(file)
			damaged[at] ^= 0x10
			if _, err := ParseKeyPair(damaged); !errors.Is(err, ErrKey) {
				t.Errorf("%+v: damage at %d: %v", s, at, err)
			}
		}
	}
}

func TestKeyPairDoesNotPrint(t *testing.T) {
	k := generate(t, 1, SuiteX25519)
	private, err := k.key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("key", "pair", k, "in", struct{ K *KeyPair }{k})
	slog.New(slog.NewTextHandler(&b, nil)).Info("key", "pair", k, "in", struct{ K *KeyPair }{k})
	fmt.Fprintf(&b, "%v %+v %#v %x %d %s", k, k, k, k, k, struct{ K *KeyPair }{k})
	for _, secret := range []string{string(private), hex.EncodeToString(private), fmt.Sprint(private)} {
		if bytes.Contains(b.Bytes(), []byte(secret)) {
			t.Errorf("the secret was printed: %s", b.Bytes())
		}
	}
	if !bytes.Contains(b.Bytes(), []byte(redacted)) {
		t.Errorf("printed %s", b.Bytes())
	}
}

func TestKeyring(t *testing.T) {
	a, b := generate(t, 1, SuiteX25519), generate(t, 2, SuiteXWing)
	if _, err := NewKeyring(a, b, generate(t, 1, SuiteXWing)); !errors.Is(err, ErrKey) {
		t.Errorf("two keys of one id: %v", err)
	}
	r := keyring(t, b, a)
	if k := r.Keys(); len(k) != 2 || k[0] != b || k[1] != a {
		t.Error("Keys are not in the order given")
	}
	if !r.Has(1) || !r.Has(2) || r.Has(3) || r.Has(0) {
		t.Error("Has is wrong")
	}
	if _, err := r.Open(3, nil, nil, nil, nil); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("unknown key: %v", err)
	}
}

func TestOpenBatch(t *testing.T) {
	r := keyring(t, generate(t, 1, SuiteX25519), generate(t, 2, SuiteXWing))
	info, mine := []byte("info"), errors.New("refused before")
	for name, run := range map[string]Runner{"serial": Serial, "parallel": parallel} {
		t.Run(name, func(t *testing.T) {
			items := make([]Item, 40)
			want := make([]error, len(items))
			for i := range items {
				k := r.Keys()[i%2]
				aad := []byte{byte(i)}
				enc, ct, err := k.Public().Seal(info, aad, fmt.Appendf(nil, "message %d", i))
				if err != nil {
					t.Fatal(err)
				}
				items[i] = Item{ID: k.ID(), Enc: enc, AAD: aad, Ciphertext: ct}
				switch i % 5 {
				case 1:
					items[i].ID, want[i] = 3, ErrUnknownKey
				case 2:
					items[i].AAD, want[i] = []byte("other"), ErrOpen
				case 3:
					items[i].Err, want[i] = mine, mine
				}
			}
			r.OpenBatch(info, items, run)
			for i, it := range items {
				if !errors.Is(it.Err, want[i]) {
					t.Errorf("item %d: %v, want %v", i, it.Err, want[i])
				}
				if want[i] == nil && string(it.Plaintext) != fmt.Sprintf("message %d", i) || want[i] != nil && it.Plaintext != nil {
					t.Errorf("item %d: opened %q", i, it.Plaintext)
				}
			}
		})
	}
}

func FuzzParseKeyPair(f *testing.F) {
	seeds := 0
	for _, s := range suites {
		file, err := generate(f, 5, s).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
		seeds++
	}
	if seeds == 0 {
		f.Fatal("empty seed corpus")
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		k, err := ParseKeyPair(file)
		if err != nil {
			return
		}
		if again, err := k.Marshal(); err != nil || !bytes.Equal(again, file) {
			t.Errorf("%x is another encoding of a key file (%v)", file, err)
		}
	})
}

// One operation is a batch of 256 messages of about the size of a Prio3Histogram report
// share.
func BenchmarkOpenBatch(b *testing.B) {
	for _, s := range []Suite{SuiteX25519, SuiteXWing} {
		b.Run(fmt.Sprintf("%04x", s.KEM), func(b *testing.B) {
			k := generate(b, 1, s)
			r := keyring(b, k)
			info, aad := []byte("info"), make([]byte, 200)
			items := make([]Item, 256)
			for i := range items {
				enc, ct, err := k.Public().Seal(info, aad, make([]byte, 400))
				if err != nil {
					b.Fatal(err)
				}
				items[i] = Item{ID: 1, Enc: enc, AAD: aad, Ciphertext: ct}
			}
			b.ReportAllocs()
			for b.Loop() {
				r.OpenBatch(info, items, Serial)
			}
			b.ReportMetric(float64(b.N*len(items))/b.Elapsed().Seconds(), "open/s")
		})
	}
}
