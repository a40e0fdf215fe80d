package ohttp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

var suites = []sealed.Suite{
	sealed.SuiteX25519, sealed.SuiteXWing,
	{KEM: sealed.KEMP256, KDF: sealed.KDFSHA384, AEAD: sealed.AEADAES256GCM},
	{KEM: sealed.KEMX25519, KDF: sealed.KDFSHA512, AEAD: sealed.AEADChaCha20Poly1305},
}

func generate(t testing.TB, id uint8, s sealed.Suite) *sealed.KeyPair {
	t.Helper()
	k, err := sealed.Generate(id, s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestExchange: both messages arrive under every suite, at the lengths promised, and no
// changed bit does.
func TestExchange(t *testing.T) {
	for _, s := range suites {
		t.Run(fmt.Sprintf("%04x-%d-%d", s.KEM, s.KDF, s.AEAD), func(t *testing.T) {
			pair := generate(t, 7, s)
			ring, err := NewKeyring(pair, generate(t, 6, s))
			if err != nil {
				t.Fatal(err)
			}
			config, err := ring.Configs()[0].Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			read, err := ReadKeyConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			public, err := read.Choose()
			if err != nil {
				t.Fatal(err)
			}
			message := []byte("a message")
			request, opener, err := Encapsulate(read.ID, public, message)
			if err != nil {
				t.Fatal(err)
			}
			if len(request) != len(message)+RequestOverhead(s) {
				t.Errorf("request of %d bytes, want %d", len(request), len(message)+RequestOverhead(s))
			}
			open := func(b []byte) ([]byte, *ResponseSealer, error) {
				e, err := ring.Split(b)
				if err != nil {
					return nil, nil, err
				}
				return e.Open()
			}
			got, answer, err := open(request)
			if err != nil || !bytes.Equal(got, message) {
				t.Fatalf("got %q, %v", got, err)
			}
			response, err := answer.Seal(message)
			if err != nil || len(response) != len(message)+ResponseOverhead(s) {
				t.Fatalf("response of %d bytes, %v", len(response), err)
			}
			if got, err := opener.Open(response); err != nil || !bytes.Equal(got, message) {
				t.Fatalf("got %q, %v", got, err)
			}
			// Every byte of the head and some of the rest; X-Wing makes each trial slow.
			for i := 0; i < len(request); i += 1 + i/32 {
				request[i] ^= 0x40
				_, _, err := open(request)
				if want := ErrSealed; i < headerSize {
					if !errors.Is(err, ErrUnknownKey) {
						t.Errorf("byte %d of the head changed: %v", i, err)
					}
				} else if !errors.Is(err, want) {
					t.Errorf("byte %d changed: %v", i, err)
				}
				request[i] ^= 0x40
			}
			for i := range response {
				response[i] ^= 1
				if _, err := opener.Open(response); !errors.Is(err, ErrSealed) {
					t.Errorf("byte %d of the response changed: %v", i, err)
				}
				response[i] ^= 1
			}
			// Sealed to one key and sent under the id of another.
			request[0] = 6
			if _, _, err := open(request); !errors.Is(err, ErrSealed) {
				t.Errorf("under another key's id: %v", err)
			}
			for n := range RequestOverhead(s) {
				if _, err := ring.Split(request[:n]); !errors.Is(err, ErrTruncated) {
					t.Fatalf("%d bytes: %v", n, err)
				}
			}
			for n := range ResponseOverhead(s) {
				if _, err := opener.Open(response[:n]); !errors.Is(err, ErrTruncated) {
					t.Fatalf("response of %d bytes: %v", n, err)
				}
			}
		})
	}
}

func TestFreshContexts(t *testing.T) {
	pair := generate(t, 1, sealed.SuiteX25519)
	a, _, err1 := Encapsulate(1, pair.Public(), []byte("m"))
	b, _, err2 := Encapsulate(1, pair.Public(), []byte("m"))
	if err1 != nil || err2 != nil || bytes.Equal(a[headerSize:headerSize+32], b[headerSize:headerSize+32]) {
		t.Errorf("two encapsulations share a context: %v, %v", err1, err2)
	}
}

func TestKeyConfigs(t *testing.T) {
	var list []KeyConfig
	for i, s := range suites {
		list = append(list, NewKeyConfig(generate(t, uint8(i), s)))
	}
	b, err := AppendKeyConfigs(nil, list)
	if err != nil {
		t.Fatal(err)
	}
	unknown := append([]byte{0, 9, 1, 0xff, 0xff}, 1, 2, 3, 4, 5, 6) // a KEM of tomorrow
	got, err := ReadKeyConfigs(append(unknown, b...))
	if err != nil || !reflect.DeepEqual(got, list) {
		t.Errorf("got %d configurations, %v", len(got), err)
	}
	if _, err := ReadKeyConfigs(unknown); !errors.Is(err, ErrKeyConfig) {
		t.Errorf("only unknown KEMs: %v", err)
	}
	for n := range b {
		if got, err := ReadKeyConfigs(b[:n]); err == nil && len(got) >= len(list) {
			t.Errorf("%d of %d bytes read as the whole", n, len(b))
		}
	}
}

func TestMessages(t *testing.T) {
	request := &Request{Method: "POST", Scheme: "https", Authority: "leader.example:8443", Path: "/v1/tasks/x/reports?y",
		Header: []Field{{"content-type", "application/dap-upload-req"}, {"x", ""}}, Content: bytes.Repeat([]byte{1}, 20_000),
		Trailer: []Field{{"t", "u"}}}
	b, err := request.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, padding := range []int{0, 1, 5000} {
		got, err := ReadRequest(append(bytes.Clone(b), make([]byte, padding)...), MessageLimits{Lines: 3})
		if err != nil || !reflect.DeepEqual(got, request) {
			t.Errorf("padding %d: %v", padding, err)
		}
	}
	// Cutting is legal where a part begins: behind the control data, the header and the
	// content; nowhere else.
	trailer := len(b) - 5
	content := trailer - 20_000 - 4
	header := content - 1 - (1 + 12 + 1 + 26 + 1 + 1 + 1)
	for n := range b {
		_, err := ReadRequest(b[:n], MessageLimits{})
		if legal := n == header || n == content || n == trailer; legal != (err == nil) {
			t.Errorf("cut to %d of %d bytes: %v", n, len(b), err)
		}
	}
	response := &Response{Status: 404, Header: []Field{{"retry-after", "5"}}, Content: []byte("no")}
	if b, err = response.Append(nil); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadResponse(b, MessageLimits{}); err != nil || !reflect.DeepEqual(got, response) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := ReadRequest(b, MessageLimits{}); !errors.Is(err, ErrMessage) {
		t.Errorf("a response read as a request: %v", err)
	}
}

func TestMessageRefuses(t *testing.T) {
	good := Request{Method: "POST", Scheme: "https", Authority: "a", Path: "/"}
	with := func(f Field) *Request { m := good; m.Header = []Field{f}; return &m }
	for name, m := range map[string]*Request{
		"pseudo-field":     with(Field{":path", "/"}),
		"capital":          with(Field{"Host", "a"}),
		"empty name":       with(Field{"", "a"}),
		"line break":       with(Field{"a", "b\r\nc: d"}),
		"NUL":              with(Field{"a", "\x00"}),
		"connection field": with(Field{"transfer-encoding", "chunked"}),
		"outer space":      with(Field{"a", " b"}),
		"no method":        {Scheme: "https", Authority: "a", Path: "/"},
		"method of two":    {Method: "A B", Scheme: "https", Authority: "a", Path: "/"},
		"no scheme":        {Method: "POST", Authority: "a", Path: "/"},
		"no path":          {Method: "POST", Scheme: "https", Authority: "a"},
		"space in path":    {Method: "POST", Scheme: "https", Authority: "a", Path: "/ x"},
	} {
		if _, err := m.Append(nil); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: written, %v", name, err)
		}
		b := []byte{knownRequest}
		for _, s := range []string{m.Method, m.Scheme, m.Authority, m.Path} {
			b = appendString(b, s)
		}
		var fields []byte
		for _, f := range m.Header {
			fields = appendString(appendString(fields, f.Name), f.Value)
		}
		b = appendString(b, string(fields))
		if _, err := ReadRequest(b, MessageLimits{}); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: read, %v", name, err)
		}
	}
	for _, status := range []int{0, 99, 100, 199, 600} {
		if _, err := (&Response{Status: status}).Append(nil); !errors.Is(err, ErrMessage) {
			t.Errorf("status %d: %v", status, err)
		}
	}
	padded := append([]byte{knownResponse, 0x40, 200, 0, 0, 0}, 0, 0, 1)
	if _, err := ReadResponse(padded, MessageLimits{}); !errors.Is(err, ErrMessage) {
		t.Errorf("padding with a one: %v", err)
	}
	for _, n := range []int{1, 1023, 1024, 1025, 2048, 5000} {
		long := append([]byte{knownResponse, 0x40, 200, 0, 0, 0}, make([]byte, n)...)
		if _, err := ReadResponse(long, MessageLimits{}); err != nil {
			t.Errorf("%d bytes of padding: %v", n, err)
		}
		long[len(long)-1] = 1
		if _, err := ReadResponse(long, MessageLimits{}); !errors.Is(err, ErrMessage) {
			t.Errorf("a one behind %d bytes of padding: %v", n-1, err)
		}
	}
	if _, err := ReadResponse(bytes.Repeat([]byte{0x40, 100, 0}, 20)[0:], MessageLimits{}); !errors.Is(err, ErrMessage) {
		t.Errorf("framing 100: %v", err)
	}
	interim := append([]byte{knownResponse}, bytes.Repeat([]byte{0x40, 100, 0}, 9)...)
	if _, err := ReadResponse(append(interim, 0x40, 200), MessageLimits{}); !errors.Is(err, ErrLimit) {
		t.Errorf("nine informational responses: %v", err)
	}
	long := good
	long.Path = "/" + strings.Repeat("x", 5000)
	many := good
	for range 65 {
		many.Header = append(many.Header, Field{"a", "b"})
	}
	wide := *with(Field{"a", strings.Repeat("x", 17<<10)})
	for _, m := range []Request{long, many, wide} {
		b, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRequest(b, MessageLimits{}); !errors.Is(err, ErrLimit) {
			t.Errorf("above the limits: %v", err)
		}
	}
}

func TestVarint(t *testing.T) {
	for _, v := range []uint64{0, 1, 63, 64, 16383, 16384, 1<<30 - 1, 1 << 30, maxVarint} {
		b := appendVarint(nil, v)
		r := &reader{in: b}
		if got := r.varint(); got != v || r.err != nil || len(r.in) != 0 || len(b) != varintLen(v) {
			t.Errorf("%d became %x and %d, %v", v, b, got, r.err)
		}
	}
	if b := appendVarint(nil, 494878333); !bytes.Equal(b, []byte{0x9d, 0x7f, 0x3e, 0x7d}) { // RFC 9000 appendix A.1
		t.Errorf("got %x", b)
	}
}

func TestBucket(t *testing.T) {
	last := 0
	for n := range 1 << 20 {
		b := PaddedSize(n, MinRequest)
		switch {
		case b < n || b < last:
			t.Fatalf("%d in a bucket of %d", n, b)
		case n > 64<<10 && float64(b) > 1.04*float64(n):
			t.Fatalf("%d padded to %d, more than 4 %%", n, b)
		case PaddedSize(b, MinRequest) != b:
			t.Fatalf("bucket %d goes into %d", b, PaddedSize(b, MinRequest))
		}
		last = b
	}
	for n, want := range map[int]int{0: 4096, 4096: 4096, 4097: 8192, 33000: 65536, 65536: 65536, 65537: 67584} {
		if got := PaddedSize(n, MinRequest); got != want {
			t.Errorf("PaddedSize(%d) = %d, want %d", n, got, want)
		}
	}
}

func testManifest(t testing.TB, k *sealed.KeyPair, relay, target string) *Manifest {
	t.Helper()
	return &Manifest{
		Deployment: [32]byte{4}, Epoch: 1, Revision: 2, Length: 1000 * time.Second,
		NotBefore: time.Unix(1000, 0).UTC(), NotAfter: time.Unix(2000, 0).UTC(), Previous: [32]byte{5}, Relay: relay,
		Gateway: []KeyConfig{NewKeyConfig(k)}, Tries: 3, Every: 60 * time.Second, Hold: DefaultHold, Targets: []string{target},
		Recipes: [][32]byte{{1}, {2}},
		Pinned:  []Pinned{{target + "hpke_config", "application/dap-hpke-config-list", []byte{1, 2, 3}}},
	}
}

// TestManifestIssuers: the issuers of an epoch are a part of what all three sign, and what
// cannot be is refused.
func TestManifestIssuers(t *testing.T) {
	issuers := func() *Manifest {
		m := testManifest(t, generate(t, 3, sealed.SuiteX25519), "https://relay.example/", "https://leader.example/v1/")
		m.Issuers = &Issuers{Leader: [IssuerKeySize]byte{2, 1}, Helper: [IssuerKeySize]byte{2, 2}, Attester: signed.Generate().Public(), Cap: 6000,
			Admission: []AdmissionKeys{{[32]byte{1}, [32]byte{11}}, {[32]byte{2}, [32]byte{12}}}}
		return m
	}
	m := issuers()
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadManifest(b)
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Fatalf("got %+v, %v", got, err)
	}
	for n := range b {
		if _, err := ReadManifest(b[:n]); !errors.Is(err, ErrManifest) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	digest, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Issuers){
		"leader's":  func(x *Issuers) { x.Leader[5]++ },
		"helper's":  func(x *Issuers) { x.Helper[5]++ },
		"attester":  func(x *Issuers) { x.Attester = signed.Generate().Public() },
		"cap":       func(x *Issuers) { x.Cap++ },
		"admission": func(x *Issuers) { x.Admission[1].Keys[0]++ },
		"fewer":     func(x *Issuers) { x.Admission = x.Admission[:1] },
	} {
		other := issuers()
		other.Gateway, other.Issuers.Attester = m.Gateway, m.Issuers.Attester
		change(other.Issuers)
		if d, err := other.Digest(); err != nil || d == digest {
			t.Errorf("%s: not in the digest, %v", name, err)
		}
	}
	for name, change := range map[string]func(*Issuers){
		"one key":     func(x *Issuers) { x.Helper = x.Leader },
		"no attester": func(x *Issuers) { x.Attester = signed.PublicKey{} },
		"no cap":      func(x *Issuers) { x.Cap = 0 },
		"vast cap":    func(x *Issuers) { x.Cap = 1 << 63 },
		"order":       func(x *Issuers) { slices.Reverse(x.Admission) },
		"twice":       func(x *Issuers) { x.Admission[1] = x.Admission[0] },
		"not live":    func(x *Issuers) { x.Admission[1].Recipe = [32]byte{3} },
		"too many":    func(x *Issuers) { x.Admission = make([]AdmissionKeys, MaxAdmission+1) },
	} {
		m := issuers()
		change(m.Issuers)
		if _, err := m.Append(nil); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Nothing may follow, and no extension comes twice.
	at := bytes.Index(b, m.Issuers.Leader[:]) - 6
	extension := b[at+2 : len(b)-2]
	for _, more := range [][]byte{extension, {0, extensionWitnesses, 0, 0}} {
		longer := append(bytes.Clone(b[:len(b)-2]), more...)
		binary.BigEndian.PutUint16(longer[at:], uint16(len(extension)+len(more)))
		if _, err := ReadManifest(append(longer, 0, 0)); !errors.Is(err, ErrManifest) {
			t.Errorf("followed by %d bytes: %v", len(more), err)
		}
	}
}

func TestManifest(t *testing.T) {
	for _, s := range suites {
		m := testManifest(t, generate(t, 3, s), "https://relay.example/", "https://leader.example/v1/")
		b, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadManifest(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("got %+v, %v", got, err)
		}
		for n := range b {
			if _, err := ReadManifest(b[:n]); !errors.Is(err, ErrManifest) {
				t.Fatalf("%d of %d bytes: %v", n, len(b), err)
			}
		}
		for _, kind := range []byte{0, extensionIssuers, extensionWitnesses, 77} { // empty ones
			extended := append(bytes.Clone(b[:len(b)-4]), 0, 4, 0, kind, 0, 0, 0, 0)
			if _, err := ReadManifest(extended); !errors.Is(err, ErrManifest) {
				t.Errorf("extension %d: %v", kind, err)
			}
		}
	}
	for name, change := range map[string]func(*Manifest){
		"epoch":      func(m *Manifest) { m.Epoch++ },
		"next epoch": func(m *Manifest) { m.NotBefore, m.NotAfter = m.NotBefore.Add(m.Length), m.NotAfter.Add(m.Length) },
		"length":     func(m *Manifest) { m.Length = MinEpoch - time.Second },
		"long":       func(m *Manifest) { m.NotAfter = m.NotAfter.Add(time.Second) },
		"fraction":   func(m *Manifest) { m.NotBefore = m.NotBefore.Add(time.Millisecond) },
		"no key":     func(m *Manifest) { m.Gateway = nil },
		"two keys":   func(m *Manifest) { m.Gateway = append(m.Gateway, m.Gateway[0]) },
		"one id": func(m *Manifest) {
			m.Gateway = append(m.Gateway, NewKeyConfig(generate(t, m.Gateway[0].ID, sealed.SuiteX25519)))
		},
		"one key": func(m *Manifest) {
			m.Gateway = append(m.Gateway, m.Gateway[0])
			m.Gateway[1].ID++
		},
		"three keys": func(m *Manifest) {
			for id := range uint8(2) {
				m.Gateway = append(m.Gateway, NewKeyConfig(generate(t, id, sealed.SuiteX25519)))
			}
		},
		"no try":     func(m *Manifest) { m.Tries = 0 },
		"many tries": func(m *Manifest) { m.Tries, m.Every = MaxTries+1, time.Second },
		"at once":    func(m *Manifest) { m.Every = 0 },
		"long tries": func(m *Manifest) { m.Every = 400 * time.Second },
		"one recipe": func(m *Manifest) { m.Recipes[1] = m.Recipes[0] },
		"falling":    func(m *Manifest) { m.Recipes[0], m.Recipes[1] = m.Recipes[1], m.Recipes[0] },
		"role":       func(m *Manifest) { m.Signatures = []Cosignature{{Role: signed.Gateway + 1}} },
		"two of one": func(m *Manifest) { m.Signatures = []Cosignature{{Role: signed.Leader}, {Role: signed.Leader}} },
		"key":        func(m *Manifest) { m.Gateway[0].Key = m.Gateway[0].Key[1:] },
		"suite":      func(m *Manifest) { m.Gateway[0].Symmetric = []Symmetric{{1, 0xffff}} },
		"window":     func(m *Manifest) { m.NotAfter = m.NotBefore },
		"relay":      func(m *Manifest) { m.Relay = "relay.example" },
		"user":       func(m *Manifest) { m.Relay = "https://me@relay.example/" },
		"query":      func(m *Manifest) { m.Relay = "https://relay.example/?device=7" },
		"no target":  func(m *Manifest) { m.Targets = nil },
		"two alike":  func(m *Manifest) { m.Targets = append(m.Targets, m.Targets[0]) },
		"pin twice":  func(m *Manifest) { m.Pinned = append(m.Pinned, m.Pinned[0]) },
		"empty pin":  func(m *Manifest) { m.Pinned[0].Body = nil },
		"unpathable": func(m *Manifest) { m.Targets[0] = "mailto:leader" },
	} {
		m := testManifest(t, generate(t, 3, sealed.SuiteX25519), "https://relay.example/", "https://leader.example/")
		change(m)
		if _, err := m.Append(nil); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m := testManifest(t, generate(t, 3, sealed.SuiteX25519), "https://relay.example/", "https://leader.example/")
	for unix, ok := range map[int64]bool{999: false, 1000: true, 1999: true, 2000: false} {
		if err := m.ValidAt(time.Unix(unix, 0)); (err == nil) != ok {
			t.Errorf("at %d: %v", unix, err)
		}
	}
}
