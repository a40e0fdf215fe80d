package signed

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func aList() *List {
	return &List{Deployment: [32]byte{7}, Role: Leader, URL: "https://leader.example/", Epoch: 3, NotBefore: day(1), NotAfter: day(8), Body: []byte("keys")}
}

func TestList(t *testing.T) {
	root, s := owner(t)
	l := aList()
	file, err := l.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := OpenList(file, root.Public(), l.Deployment, Leader, l.URL)
	if err != nil || !reflect.DeepEqual(got, l) {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, open := range map[string]func() (*List, error){
		"another deployment": func() (*List, error) { return OpenList(file, root.Public(), [32]byte{8}, Leader, l.URL) },
		"the other role":     func() (*List, error) { return OpenList(file, root.Public(), l.Deployment, Helper, l.URL) },
		"another address": func() (*List, error) {
			return OpenList(file, root.Public(), l.Deployment, Leader, "https://leader.example")
		},
	} {
		if _, err := open(); !errors.Is(err, ErrList) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenList(file, Generate().Public(), l.Deployment, Leader, l.URL); !errors.Is(err, ErrSignature) {
		t.Errorf("another root: %v", err)
	}
	for i := range file {
		if _, _, err := ReadList(file[:i]); !errors.Is(err, ErrList) {
			t.Fatalf("%d bytes: %v", i, err)
		}
		changed := bytes.Clone(file)
		changed[i] ^= 1
		if _, err := OpenList(changed, root.Public(), l.Deployment, Leader, l.URL); !errors.Is(err, ErrList) && !errors.Is(err, ErrSignature) &&
			!errors.Is(err, ErrWindow) && !errors.Is(err, ErrKey) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	if _, _, err := ReadList(append(bytes.Clone(file), 0)); !errors.Is(err, ErrList) {
		t.Errorf("a byte more: %v", err)
	}
	for n, ok := range map[int]bool{0: false, 1: true, 7: true, 8: false} {
		if err := l.ValidAt(day(n)); (err == nil) != ok {
			t.Errorf("on day %d: %v", n, err)
		}
	}
}

func TestListRefused(t *testing.T) {
	_, s := owner(t)
	for name, c := range map[string]struct {
		change func(*List)
		want   error
	}{
		"the gateway's":   {func(l *List) { l.Role = Gateway }, ErrList},
		"no address":      {func(l *List) { l.URL = "" }, ErrList},
		"no key":          {func(l *List) { l.Body = nil }, ErrList},
		"too long":        {func(l *List) { l.Body = make([]byte, MaxList) }, ErrList},
		"no time":         {func(l *List) { l.NotAfter = l.NotBefore }, ErrList},
		"an expired key":  {func(l *List) { l.NotAfter = day(91) }, ErrWindow},
		"before its time": {func(l *List) { l.NotBefore = day(-1) }, ErrWindow},
	} {
		l := aList()
		c.change(l)
		if _, err := l.Sign(s); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzList: one encoding only, and nothing opens but what was signed.
func FuzzList(f *testing.F) {
	root, s := owner(f)
	file, err := aList().Sign(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add(file[1:])
	f.Add(append(bytes.Clone(file), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, signature, err := ReadList(b)
		if err != nil {
			return
		}
		body, err := l.body()
		if err != nil || !bytes.Equal(signature.Append(body), b) {
			t.Fatalf("%x has another encoding, %v", b, err)
		}
		if _, err := OpenList(b, root.Public(), [32]byte{7}, Leader, "https://leader.example/"); err == nil && !bytes.Equal(b, file) {
			t.Fatalf("%x opens", b)
		}
	})
}
