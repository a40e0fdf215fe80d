package sender

import (
	"errors"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/recipe"
)

func TestReadAttributes(t *testing.T) {
	got, err := ReadAttributes(strings.NewReader("# mine\n\n platform = linux # the kernel\nlanguage=de=AT\n"))
	want := map[recipe.Attribute]string{recipe.Platform: "linux", recipe.Language: "de=AT"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ReadAttributes(strings.NewReader("")); err != nil || len(got) != 0 {
		t.Errorf("of an empty file: %v, %v", got, err)
	}
	long := strings.Repeat("#", MaxAttributes-1) + "\n"
	if _, err := ReadAttributes(strings.NewReader(long)); err != nil {
		t.Errorf("of %d bytes: %v", len(long), err)
	}
	for text, line := range map[string]int{
		"platform": 1, "platform=": 1, "platform= # linux": 1, "shoe size=43": 1, "\nplatform=linux\nplatform=linux": 3, "=linux": 1,
		long + "\n": 0, strings.Repeat("#\n", MaxAttributes): 0,
	} {
		bad := new(AttributesError)
		if got, err := ReadAttributes(strings.NewReader(text)); !errors.As(err, &bad) || bad.Line != line || got != nil {
			t.Errorf("%.30q: %v, %v; want an error in line %d", text, got, err, line)
		}
	}
	if _, err := ReadAttributes(io.MultiReader(strings.NewReader("platform=linux\n"), failing{})); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("of a file that cannot be read to its end: %v", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestLookedUp(t *testing.T) {
	entry := recipe.Hash{1, 2}
	of := func(h recipe.Hash) *recipe.Targeting {
		x := new(recipe.Targeting)
		x.Certificate.Entry = h
		return x
	}
	if err := LookedUp(entry)(of(entry)); err != nil {
		t.Error(err)
	}
	if err := LookedUp(entry)(of(recipe.Hash{1})); err == nil {
		t.Error("another entry is taken")
	}
}

// TestHome: a counter that would be put back with the ledger finds nothing out, and a home
// with one is refused before anything is written.
func TestHome(t *testing.T) {
	dir := t.TempDir()
	limits := participate.LedgerOptions{MaxEpsilon: 1, MaxDelta: 1e-4}
	for _, c := range []struct {
		home Home
		ok   bool
	}{
		{Home{Dir: filepath.Join(dir, "ledger"), Limits: limits}, true},
		{Home{Dir: filepath.Join(dir, "ledger"), Counter: filepath.Join(dir, "counter"), Limits: limits}, true},
		{Home{Dir: filepath.Join(dir, "ledger"), Counter: filepath.Join(dir, "ledger", "counter"), Limits: limits}, false},
		{Home{Dir: filepath.Join(dir, "ledger"), Counter: filepath.Join(dir, "ledger", "below", "..", "counter"), Limits: limits}, false},
		{Home{Dir: "ledger", Counter: "./ledger/x/counter", Limits: limits}, false},
		{Home{Dir: filepath.Join(dir, "ledger")}, false},
		{Home{Limits: limits}, false},
	} {
		if err := c.home.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.home, err)
		}
		if !c.ok {
			if p, err := OpenPerson(t.Context(), options(t, recipe.Always{}, nil), c.home); err == nil {
				t.Errorf("%+v: opened", c.home)
				p.Close()
			}
		}
	}
	if found, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(found) > 0 {
		t.Errorf("written: %q, %v", found, err)
	}
}
