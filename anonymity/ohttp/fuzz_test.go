package ohttp

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/starling-agg/starling/sealed"
)

// FuzzRequest: what is read can be written, and reads back as the same; of what we write
// there is one encoding.
func FuzzRequest(f *testing.F) {
	for _, m := range []*Request{
		{Method: "POST", Scheme: "https", Authority: "a", Path: "/", Header: []Field{{"content-type", "b"}}, Content: []byte("c")},
		{Method: MethodCover, Scheme: "http", Authority: "a:1", Path: "/b", Trailer: []Field{{"c", "d"}}},
	} {
		b, err := m.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(Pad(b, 64))
		b[0] = indeterminateRequest
		f.Add(b)
	}
	f.Add([]byte("\x02\x03GET\x05https\x01a\x01/\x01a\x01b\x00\x02cd\x01e\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ReadRequest(b, MessageLimits{})
		if err != nil {
			return
		}
		once, err := m.Append(nil)
		if err != nil {
			t.Fatalf("read and cannot be written: %v", err)
		}
		again, err := ReadRequest(once, MessageLimits{})
		if err != nil || !same(m.Header, again.Header) || !same(m.Trailer, again.Trailer) || !bytes.Equal(m.Content, again.Content) ||
			m.Method != again.Method || m.Scheme != again.Scheme || m.Authority != again.Authority || m.Path != again.Path {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
		if twice, err := again.Append(nil); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("two encodings: %x and %x, %v", once, twice, err)
		}
	})
}

func same(a, b []Field) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }

// FuzzResponse is FuzzRequest for responses.
func FuzzResponse(f *testing.F) {
	b, err := (&Response{Status: 200, Header: []Field{{"retry-after", "1"}}, Content: []byte("c")}).Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(Pad(b, 64))
	f.Add([]byte("\x03\x40\x66\x01a\x01b\x00\x40\xc8\x00\x02ab\x01c\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ReadResponse(b, MessageLimits{})
		if err != nil {
			return
		}
		once, err := m.Append(nil)
		if err != nil {
			t.Fatalf("read and cannot be written: %v", err)
		}
		again, err := ReadResponse(once, MessageLimits{})
		if err != nil || m.Status != again.Status || !same(m.Header, again.Header) || !bytes.Equal(m.Content, again.Content) ||
			!same(m.Trailer, again.Trailer) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

// FuzzKeyConfig: one encoding only.
func FuzzKeyConfig(f *testing.F) {
	for i, s := range suites {
		b, err := NewKeyConfig(generate(f, uint8(i), s)).Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ReadKeyConfig(b)
		if err != nil {
			return
		}
		if again, err := c.Append(nil); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x became %x, %v", b, again, err)
		}
	})
}

// FuzzManifest: one encoding only, and nothing else verifies than what was signed.
func FuzzManifest(f *testing.F) {
	b, err := testManifest(f, generate(f, 3, sealed.SuiteX25519), "https://relay.example/", "https://leader.example/").Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	signed, roots, _ := cosigned(f)
	b, err = signed.Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(append(bytes.Clone(b), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ReadManifest(b)
		if err != nil {
			return
		}
		if again, err := m.Append(nil); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x became %x, %v", b, again, err)
		}
		if m.Verify(roots) == nil && !reflect.DeepEqual(m, signed) {
			t.Fatalf("%x verifies", b)
		}
	})
}

// FuzzSplit: the gateway's first look never panics, and what opens was sealed to it.
func FuzzSplit(f *testing.F) {
	pair := generate(f, 1, sealed.SuiteX25519)
	ring, err := NewKeyring(pair)
	if err != nil {
		f.Fatal(err)
	}
	b, _, err := Encapsulate(1, pair.Public(), []byte("message"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ring.Split(b)
		if err != nil {
			return
		}
		if message, _, err := e.Open(); err == nil && string(message) != "message" {
			t.Fatalf("opened %q", message)
		}
	})
}
