package visit

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// codecs read and write each message.
var codecs = map[string]func(b []byte) ([]byte, error){
	"visit": func(b []byte) ([]byte, error) {
		v, err := Read(b)
		if err != nil {
			return nil, err
		}
		return v.Append(nil), err
	},
	"answer": func(b []byte) ([]byte, error) {
		a, err := ReadAnswer(b)
		if err != nil {
			return nil, err
		}
		return a.Append(nil), err
	},
	"order": func(b []byte) ([]byte, error) {
		o, err := ReadOrder(b)
		return o.Append(nil), err
	},
	"keys": func(b []byte) ([]byte, error) {
		k, err := ReadKeys(b)
		if err != nil {
			return nil, err
		}
		return k.Append(nil)
	},
	"token order": func(b []byte) ([]byte, error) {
		o, err := ReadTokenOrder(b)
		if err != nil {
			return nil, err
		}
		return o.Append(nil), err
	},
	"enrolment": func(b []byte) ([]byte, error) {
		e, err := ReadEnrolment(b)
		if err != nil {
			return nil, err
		}
		return e.Append(nil)
	},
}

func messages(t testing.TB) map[string][]byte {
	t.Helper()
	v := Visit{Deployment: [32]byte{1}, Epoch: 2, Leader: [arc.RequestSize]byte{3}, Helper: [arc.RequestSize]byte{4}}
	a := Answer{Leader: [arc.ResponseSize]byte{5}, Helper: [arc.ResponseSize]byte{6}}
	asks := v
	asks.Asks = bytes.Repeat([]byte{8}, 2*AskSize)
	given := a
	given.Tokens = bytes.Repeat([]byte{9}, 2*TokenSize)
	now := time.Unix(1_700_000_000, 0)
	o := Order{Role: signed.Helper, Deployment: v.Deployment, Epoch: 2, Request: v.Helper}
	if err := o.Sign(signedtest.Signer(t, signed.Generate(), now, time.Hour), now); err != nil {
		t.Fatal(err)
	}
	tokens := TokenOrder{Deployment: v.Deployment, Epoch: 2, Asks: asks.Asks}
	if err := tokens.Sign(signedtest.Signer(t, signed.Generate(), now, time.Hour), now); err != nil {
		t.Fatal(err)
	}
	keys, err := (&Keys{Deployment: v.Deployment, Epoch: 2, Lists: [][]byte{{1}, {2, 3}}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	e := Enrolment{Secret: [SecretSize]byte{7}, Proof: []byte("code")}
	b, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"visit": v.Append(nil), "answer": a.Append(nil), "order": o.Append(nil), "enrolment": b, "keys": keys,
		"visit/tokens": asks.Append(nil), "answer/tokens": given.Append(nil), "token order": tokens.Append(nil)}
}

// TestMessages: each message has one encoding, of its size, and what is cut or longer is none.
func TestMessages(t *testing.T) {
	all := messages(t)
	for name, size := range map[string]int{"visit": Size, "answer": AnswerSize, "order": OrderSize, "visit/tokens": Size + 2*AskSize,
		"answer/tokens": AnswerSize + 2*TokenSize, "token order": MinTokenOrder + AskSize} {
		if len(all[name]) != size {
			t.Errorf("a %s has %d bytes, want %d", name, len(all[name]), size)
		}
	}
	for name, b := range all {
		name, _, _ = strings.Cut(name, "/")
		if got, err := codecs[name](b); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: %v", name, err)
		}
		for _, bad := range [][]byte{nil, b[:1], b[:len(b)-1], append(bytes.Clone(b), 0)} {
			if _, err := codecs[name](bad); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s of %d bytes: %v", name, len(bad), err)
			}
		}
	}
	for _, n := range []int{0, 1, AskSize + 1, (MaxTokens + 1) * AskSize} {
		o := TokenOrder{Asks: make([]byte, n)}
		if err := o.Sign(nil, time.Time{}); !errors.Is(err, ErrMalformed) {
			t.Errorf("an order with %d bytes of requests: %v", n, err)
		}
	}
	if _, err := (&Keys{Lists: [][]byte{make([]byte, MaxKeys)}}).Append(nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("lists that are too long: %v", err)
	}
	for _, n := range []int{0, MaxProof + 1} {
		if _, err := (&Enrolment{Proof: make([]byte, n)}).Append(nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("a proof of %d bytes: %v", n, err)
		}
	}
}

// TestOrderHolds: an order is for one issuer, deployment, epoch and request, from one
// attester, while its key holds; any other bit makes it none.
func TestOrderHolds(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	root := signed.Generate()
	o := Order{Role: signed.Leader, Deployment: [32]byte{1}, Epoch: 2, Request: [arc.RequestSize]byte{3}}
	if err := o.Sign(signedtest.Signer(t, root, now, time.Hour), now); err != nil {
		t.Fatal(err)
	}
	if err := o.Verify(root.Public(), signed.Leader, [32]byte{1}, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"another root":       o.Verify(signed.Generate().Public(), signed.Leader, [32]byte{1}, now),
		"the helper's":       o.Verify(root.Public(), signed.Helper, [32]byte{1}, now),
		"another deployment": o.Verify(root.Public(), signed.Leader, [32]byte{2}, now),
		"too late":           o.Verify(root.Public(), signed.Leader, [32]byte{1}, now.Add(2*time.Hour)),
		"too early":          o.Verify(root.Public(), signed.Leader, [32]byte{1}, now.Add(-time.Hour)),
	} {
		if !errors.Is(err, ErrOrder) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := o.Append(nil)
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		x, err := ReadOrder(bad)
		if err == nil {
			err = x.Verify(root.Public(), signed.Leader, [32]byte{1}, now)
		}
		if err == nil {
			t.Fatalf("byte %d may be another", i)
		}
	}
}

// TestTokenOrderHolds: an order for tokens is for one deployment, epoch and list of requests,
// from one attester, while its key holds; any other bit makes it none.
func TestTokenOrderHolds(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	root := signed.Generate()
	o := TokenOrder{Deployment: [32]byte{1}, Epoch: 2, Asks: make([]byte, AskSize)}
	if err := o.Sign(signedtest.Signer(t, root, now, time.Hour), now); err != nil {
		t.Fatal(err)
	}
	if err := o.Verify(root.Public(), [32]byte{1}, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"another root":       o.Verify(signed.Generate().Public(), [32]byte{1}, now),
		"another deployment": o.Verify(root.Public(), [32]byte{2}, now),
		"too late":           o.Verify(root.Public(), [32]byte{1}, now.Add(2*time.Hour)),
		"too early":          o.Verify(root.Public(), [32]byte{1}, now.Add(-time.Hour)),
	} {
		if !errors.Is(err, ErrOrder) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := o.Append(nil)
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		x, err := ReadTokenOrder(bad)
		if err == nil {
			err = x.Verify(root.Public(), [32]byte{1}, now)
		}
		if err == nil {
			t.Fatalf("byte %d may be another", i)
		}
	}
}

func FuzzMessages(f *testing.F) {
	for _, b := range messages(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, codec := range codecs {
			if got, err := codec(b); err == nil && !bytes.Equal(got, b) {
				t.Errorf("%s: another encoding was taken", name)
			}
		}
	})
}
