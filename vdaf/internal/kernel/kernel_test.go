package kernel

import "testing"

func TestUse(t *testing.T) {
	defer func(old []Impl) { all = old }(all)
	all = nil
	fast, other, cannot := true, true, false
	Register("p.f", Go, true, nil)
	Register("p.f", "fast", true, &fast)
	Register("p.f", "other", true, &other)
	Register("p.g", Go, true, nil)
	Register("p.g", "fast", false, &cannot)
	if got := len(All()); got != 5 {
		t.Fatalf("%d implementations, want 5", got)
	}
	for _, c := range []struct {
		name                string
		fast, other, cannot bool
	}{{Go, false, false, false}, {"fast", true, false, false}, {"other", false, true, false}} {
		restore, err := Use(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if fast != c.fast || other != c.other || cannot != c.cannot {
			t.Errorf("%s: fast %v, other %v, unsupported %v", c.name, fast, other, cannot)
		}
		restore()
		if !fast || !other || cannot {
			t.Errorf("%s: not restored", c.name)
		}
	}
	if _, err := Use("none"); err == nil {
		t.Error("an unknown name was taken")
	}
}

func TestRegisterTwice(t *testing.T) {
	defer func(old []Impl) { all = old }(all)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Register("p.f", Go, true, nil)
	Register("p.f", Go, true, nil)
}
