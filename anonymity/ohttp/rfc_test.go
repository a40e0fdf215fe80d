package ohttp

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/sealed"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// keyPair makes a key pair of a given private key, by way of the key file's format.
func keyPair(t testing.TB, id uint8, s sealed.Suite, private, public []byte) *sealed.KeyPair {
	t.Helper()
	private = bytes.Clone(private)
	private[0], private[31] = private[0]&248, private[31]&127|64 // as X25519 itself does; the file wants it done
	var b cryptobyte.Builder
	b.AddBytes([]byte("starling hpke key v1\n"))
	b.AddUint8(id)
	b.AddUint16(s.KEM)
	b.AddUint16(s.KDF)
	b.AddUint16(s.AEAD)
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(private) })
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(public) })
	k, err := sealed.ParseKeyPair(b.BytesOrPanic())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestRFC9458 is the complete example of RFC 9458 appendix A.
func TestRFC9458(t *testing.T) {
	config := unhex(t, "01002031e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e79815500080001000100010003")
	private := unhex(t, "3c168975674b2fa8e465970b79c8dcf09f1c741626480bd4c6162fc5b6a98e1a")
	request := unhex(t, "00034745540568747470730b6578616d706c652e636f6d012f")
	encapsulated := unhex(t, "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b472"+
		"6374e469135906992e1268c594d2a10c695d858c40a026e7965e7d86b83dd440b2c0185204b4d63525")
	response := unhex(t, "0140c8")
	nonce := unhex(t, "c789e7151fcba46158ca84b04464910d")
	sealedResponse := unhex(t, "c789e7151fcba46158ca84b04464910d86f9013e404feea014e7be4a441f234f857fbd")

	c, err := ReadKeyConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if c.ID != 1 || c.KEM != sealed.KEMX25519 || !reflect.DeepEqual(c.Symmetric, []Symmetric{{1, 1}, {1, 3}}) {
		t.Errorf("key config read as %+v", c)
	}
	if again, err := c.Append(nil); err != nil || !bytes.Equal(again, config) {
		t.Errorf("key config written as %x, %v", again, err)
	}
	ring, err := NewKeyring(keyPair(t, 1, sealed.SuiteX25519, private, c.Key))
	if err != nil {
		t.Fatal(err)
	}
	e, err := ring.Split(encapsulated)
	if err != nil {
		t.Fatal(err)
	}
	plain, answer, err := e.Open()
	if err != nil || !bytes.Equal(plain, request) {
		t.Fatalf("opened %x, %v", plain, err)
	}
	m, err := ReadRequest(plain, MessageLimits{})
	if want := (&Request{Method: "GET", Scheme: "https", Authority: "example.com", Path: "/"}); err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("read %+v, %v", m, err)
	}
	if r, err := ReadResponse(response, MessageLimits{}); err != nil || r.Status != 200 {
		t.Errorf("read %+v, %v", r, err)
	}
	if b, err := answer.seal(nonce, response); err != nil || !bytes.Equal(b, sealedResponse) {
		t.Errorf("response sealed as %x, %v", b, err)
	}
	if b, err := (&ResponseOpener{answer.x}).Open(sealedResponse); err != nil || !bytes.Equal(b, response) {
		t.Errorf("response opened as %x, %v", b, err)
	}
}

// TestRFC9292 reads examples of RFC 9292 section 5.
func TestRFC9292(t *testing.T) {
	known := unhex(t, "0003474554056874747073000a2f68656c6c6f2e747874406c0a757365722d6167656e74346375726c2f372e31362e3320"+
		"6c69626375726c2f372e31362e33204f70656e53534c2f302e392e376c207a6c69622f312e322e3304686f73740f7777772e6578616d706c"+
		"652e636f6d0f6163636570742d6c616e677561676506656e2c206d690000")
	want := &Request{Method: "GET", Scheme: "https", Path: "/hello.txt", Header: []Field{
		{"user-agent", "curl/7.16.3 libcurl/7.16.3 OpenSSL/0.9.7l zlib/1.2.3"}, {"host", "www.example.com"},
		{"accept-language", "en, mi"}}}
	m, err := ReadRequest(known, MessageLimits{})
	if err != nil || !reflect.DeepEqual(m.Header, want.Header) || m.Path != want.Path || len(m.Content) != 0 {
		t.Fatalf("read %+v, %v", m, err)
	}
	if b, err := m.Append(nil); err != nil || !bytes.Equal(b, known) {
		t.Errorf("written as %x, %v", b, err)
	}
	// The same in indeterminate-length framing, with padding.
	indeterminate := unhex(t, "0203474554056874747073000a2f68656c6c6f2e7478740a757365722d6167656e74346375726c2f372e31362e33206c"+
		"69626375726c2f372e31362e33204f70656e53534c2f302e392e376c207a6c69622f312e322e3304686f73740f7777772e6578616d706c65"+
		"2e636f6d0f6163636570742d6c616e677561676506656e2c206d690000000000000000000000")
	if n, err := ReadRequest(indeterminate, MessageLimits{}); err != nil || !reflect.DeepEqual(n.Header, want.Header) || n.Path != want.Path {
		t.Errorf("read %+v, %v", n, err)
	}
	// An interim response before the final one, both framings.
	for _, s := range []string{
		"01" + "4066" + "07" + "0461626364" + "0131" + "40c8" + "00" + "03616263" + "00",
		"03" + "4066" + "0461626364" + "0131" + "00" + "40c8" + "00" + "0261620163" + "00" + "00",
	} {
		r, err := ReadResponse(unhex(t, s), MessageLimits{})
		if err != nil || r.Status != 200 || string(r.Content) != "abc" || len(r.Header) != 0 {
			t.Errorf("%s: read %+v, %v", s, r, err)
		}
	}
}
