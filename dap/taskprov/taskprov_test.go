package taskprov

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// The example of the draft's section 3.2, of draft-ietf-ppm-dap-taskprov at its commit
// b58b4d78 (7 July 2026).
const draftExample = ":BHRlc3QAG2h0dHBzOi8vbGVhZGVyLmV4YW1wbGUuY29tLwAbaHR0cHM6Ly9oZWxwZXIuZXhhbXBsZS5jb20v" +
	"AAAAAAAAADwAAAAAAAAACgEAAAAAAAEAAAAUAAEAEAAAAAAAAAA8AAAAAAAAAGQ=:"

// TestDraftExample: the draft's own example is read as what it says, in both drafts of DAP,
// and written again as it was.
func TestDraftExample(t *testing.T) {
	a, err := Parse([]string{draftExample})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range dap.Versions {
		c, err := dap.ReadTaskConfiguration(v, a.Config)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		iv, ok := c.Interval()
		if string(c.TaskInfo) != "test" || string(c.Leader) != "https://leader.example.com/" || string(c.Helper) != "https://helper.example.com/" ||
			c.TimePrecision != 60 || c.MinBatchSize != 10 || c.BatchMode != dap.TimeInterval || c.VDAFType != dap.TypePrio3Count ||
			!ok || iv.Start != 60 || iv.Duration != 100 {
			t.Errorf("%v: %+v", v, c)
		}
		if c.TaskID() != a.TaskID() {
			t.Errorf("%v: the ids differ", v)
		}
	}
	if again, err := Value(a.Framing, a.Config); err != nil || again != draftExample {
		t.Errorf("written as %q, %v", again, err)
	}
	// Of the formula alone, by another program: the draft states no id.
	const id = "35848a898adb146b559385247c7e49db1cbd28af52e3c11cfb01d4fc4b490479"
	if got := a.TaskID(); hex.EncodeToString(got[:]) != id {
		t.Errorf("id %x, want %s", got, id)
	}
}

// TestDaphneVerifyKey: the verification key that another implementation computes
// (github.com/cloudflare/daphne at 7d1b4428, crates/daphne/src/taskprov.rs,
// check_vdaf_key_computation). The formula is the same in all drafts since then.
func TestDaphneVerifyKey(t *testing.T) {
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	seed := unhex("1a2a3f1bebb4bbe455eaacee291a0f32d7e1bc6c751005607b81dac3a7da761d")
	task := dap.TaskID(unhex("b4769bb063a8b3312af74297f30fdbf8e0b71c2eb2481f591d1d7de66a4ce34f"))
	key, err := dap.DeriveVerifyKey(seed, task)
	if err != nil {
		t.Fatal(err)
	}
	if want := unhex("fbd17db5390f949ee32d2634dc499f5b91287bcc317c0761dd04e835c2ab1333"); !bytes.Equal(key[:], want) {
		t.Errorf("key %x, want %x", key, want)
	}
	if len(seed) != SeedSize {
		t.Errorf("a seed of %d bytes", len(seed))
	}
}

// TestParse: what is no single byte sequence is no advertisement (RFC 9651 sections 3.3.5,
// 4.2 and 4.2.7), and what is one, with parameters or spaces, is.
func TestParse(t *testing.T) {
	long := base64.StdEncoding.EncodeToString(make([]byte, MaxConfiguration))
	for name, c := range map[string]struct {
		values []string
		want   string // in hex; empty for none
		err    error
	}{
		"none":                   {nil, "", ErrNone},
		"empty":                  {[]string{""}, "", ErrNone},
		"spaces":                 {[]string{"   "}, "", ErrNone},
		"bytes":                  {[]string{":AQI=:"}, "0102", nil},
		"no bytes":               {[]string{"::"}, "", nil},
		"spaces around":          {[]string{"  :AQI=: "}, "0102", nil},
		"parameters":             {[]string{`:AQI=:;a;b=1; c="x";d=:AA==:;e=?0;f=1.5;g=tok/en;h=@7`}, "0102", nil},
		"bits under the padding": {[]string{":AQJ=:"}, "0102", nil},
		"a broken parameter":     {[]string{":AQI=:;A=1"}, "", ErrNone},
		"an unended parameter":   {[]string{`:AQI=:;a="x`}, "", ErrNone},
		"twice":                  {[]string{":AQI=:", ":AQI=:"}, "", ErrNone},
		"twice on one line":      {[]string{":AQI=:, :AQI=:"}, "", ErrNone},
		"beside an empty one":    {[]string{":AQI=:", ""}, "", ErrNone},
		"a string":               {[]string{`"AQI="`}, "", ErrNone},
		"an inner list":          {[]string{"(:AQI=:)"}, "", ErrNone},
		"a boolean":              {[]string{"?1"}, "", ErrNone},
		"an open end":            {[]string{":AQI="}, "", ErrNone},
		"of the other alphabet":  {[]string{":-_I=:"}, "", ErrNone},
		"a tab":                  {[]string{":AQI=:\t"}, "", ErrNone},
		"more after it":          {[]string{":AQI=: x"}, "", ErrNone},
		"another encoding":       {[]string{":\xc3\xa9:"}, "", ErrNone},
		"Janus's":                {[]string{"AQI"}, "0102", nil},
		"Janus's, padded":        {[]string{"AQI="}, "", ErrNone},
		"Janus's, other bits":    {[]string{"AQJ"}, "", ErrNone},
		"Janus's, cut":           {[]string{"A"}, "", ErrNone},
		"Janus's, twice":         {[]string{"AQI", "AQI"}, "", ErrNone},
		"a little too long":      {[]string{":" + base64.StdEncoding.EncodeToString(make([]byte, MaxConfiguration+1)) + ":"}, "", ErrLong},
		"much too long":          {[]string{":" + long + long + ":"}, "", ErrLong},
		"too long in pieces":     {strings.Split(strings.Repeat(":AQI=:,", 2000), ","), "", ErrLong},
	} {
		a, err := Parse(c.values)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
		if err == nil && hex.EncodeToString(a.Config) != c.want {
			t.Errorf("%s: %x, want %s", name, a.Config, c.want)
		}
	}
	if a, err := Parse([]string{":" + long + ":"}); err != nil || len(a.Config) != MaxConfiguration {
		t.Errorf("the longest: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(draftExample, "", false)
	f.Add(":AQI=:;a=1", ":AQI=:", true)
	f.Add(strings.TrimRight(strings.Trim(draftExample, ":"), "="), "", false)
	f.Fuzz(func(t *testing.T, first, second string, both bool) {
		values := []string{first}
		if both {
			values = append(values, second)
		}
		a, err := Parse(values)
		if err != nil {
			if !errors.Is(err, ErrNone) && !errors.Is(err, ErrLong) {
				t.Errorf("an error of no type: %v", err)
			}
			return
		}
		if both {
			t.Error("two fields were read as one")
		}
		v, err := Value(a.Framing, a.Config)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse([]string{v})
		if len(a.Config) == 0 && a.Framing == dap.Janus {
			return // nothing at all
		}
		if err != nil || !bytes.Equal(again.Config, a.Config) || again.Framing != a.Framing || again.TaskID() != a.TaskID() {
			t.Errorf("%q is read as %x, and its own value as %v, %v", values, a.Config, again, err)
		}
	})
}
