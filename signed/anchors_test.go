package signed

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestAnchors(t *testing.T) {
	one, two := Generate().Public(), Generate().Public()
	file := "starling anchors v1\n# who runs what\n\nleader-example leader.example " + one.String() + " Example   Foundation # the first\n" +
		"\thelper.2  127.0.0.1\t" + two.String() + "  Zweite Gesellschaft\n"
	a, err := ReadAnchors([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	first, ok := a.Find(one)
	if !ok || first != (Anchor{"leader-example", "leader.example", one, "Example Foundation"}) {
		t.Errorf("%+v, %v", first, ok)
	}
	if _, ok := a.Find(Generate().Public()); ok {
		t.Error("a key that is not there is found")
	}
	if _, ok := (*Anchors)(nil).Find(one); ok {
		t.Error("no anchors have one")
	}
	again, err := ReadAnchors(MarshalAnchors(a.List()...))
	if err != nil || len(again.List()) != 2 || again.List()[1] != a.List()[1] {
		t.Errorf("%v, %v", again, err)
	}
	for host, want := range map[string]bool{"leader.example": true, "LEADER.example.": true, "eu.leader.example": true,
		"evil-leader.example": false, "example": false, "": false, "leader.example.evil": false} {
		if first.Holds(host) != want {
			t.Errorf("%q: want %v", host, want)
		}
	}
	if second, _ := a.Find(two); second.Holds("1.127.0.0.1") || !second.Holds("127.0.0.1") {
		t.Error("an address has no hosts below it")
	}
	if !first.SameOwner(Anchor{Owner: "EXAMPLE foundation"}) || first.SameOwner(Anchor{Owner: "Example Foundation 2"}) {
		t.Error("owners")
	}
}

func TestAnchorsRefused(t *testing.T) {
	key, other := Generate().Public().String(), Generate().Public().String()
	line := "a a.example " + key + " Owner\n"
	for name, c := range map[string]struct {
		file string
		line int
	}{
		"empty":         {"", 1},
		"no head":       {line, 1},
		"another head":  {"starling anchors v2\n" + line, 1},
		"three fields":  {AnchorsHead + "\na a.example " + key + "\n", 2},
		"half a key":    {AnchorsHead + "\na a.example " + key[:62] + " Owner\n", 2},
		"upper case":    {AnchorsHead + "\na a.example " + strings.ToUpper(key) + " Owner\n", 2},
		"small order":   {AnchorsHead + "\na a.example " + smallOrder[4] + " Owner\n", 2},
		"name":          {AnchorsHead + "\nA a.example " + key + " Owner\n", 2},
		"domain":        {AnchorsHead + "\na https://a.example " + key + " Owner\n", 2},
		"port":          {AnchorsHead + "\na a.example:443 " + key + " Owner\n", 2},
		"two dots":      {AnchorsHead + "\na a..example " + key + " Owner\n", 2},
		"no owner":      {AnchorsHead + "\na a.example " + key + " # Owner\n", 2},
		"hidden":        {AnchorsHead + "\na a.example " + key + " Own\u202eer\n", 2},
		"not UTF-8":     {AnchorsHead + "\na a.example " + key + " Own\xff\n", 2},
		"name twice":    {AnchorsHead + "\n" + line + "\na b.example " + other + " Other\n", 4},
		"key twice":     {AnchorsHead + "\n" + line + "b b.example " + key + " Other\n", 3},
		"a long line":   {AnchorsHead + "\n" + strings.Repeat("#", 70_000) + "\n", 2},
		"a long file":   {AnchorsHead + strings.Repeat("\n", MaxAnchorsFile), 0},
		"too many rows": {AnchorsHead + "\n" + many(MaxAnchors+1), MaxAnchors + 2},
	} {
		_, err := ReadAnchors([]byte(c.file))
		var bad *AnchorsError
		if !errors.As(err, &bad) || !errors.Is(err, ErrAnchors) || bad.Line != c.line {
			t.Errorf("%s: %v, want line %d", name, err, c.line)
		}
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(Anchor{fmt.Sprintf("n%d", i), "a.example", Generate().Public(), "Owner"}.String() + "\n")
	}
	return b.String()
}

// FuzzAnchors: what is read can be written, and reads back as the same.
func FuzzAnchors(f *testing.F) {
	f.Add(MarshalAnchors(Anchor{"a", "a.example", Generate().Public(), "Owner"}, Anchor{"b", "::1", Generate().Public(), "Der Zweite"}))
	f.Add([]byte(AnchorsHead + "\n# none\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ReadAnchors(b)
		if err != nil {
			return
		}
		again, err := ReadAnchors(MarshalAnchors(a.List()...))
		if err != nil || len(again.List()) != len(a.List()) {
			t.Fatalf("%q: %v", b, err)
		}
		for i, x := range again.List() {
			if x != a.List()[i] {
				t.Fatalf("%+v became %+v", a.List()[i], x)
			}
		}
	})
}
