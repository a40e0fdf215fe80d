package recipe_test

import (
	"errors"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dap"
)

// owned makes a recipe with parties at these URLs and says which field is refused for an
// owner of two of them.
func owned(t *testing.T, leader, helper, relay, gateway string) (refused string) {
	t.Helper()
	r := needles()
	r.Path = TwoServer{Leader: leader, Helper: helper, BatchMode: dap.TimeInterval}
	r.Relay = &Relay{URL: relay, Gateway: gateway}
	err := account.Validate(r)
	if invalid := new(InvalidError); errors.As(err, &invalid) {
		return invalid.Field
	}
	if err != nil {
		t.Fatal(err)
	}
	return ""
}

// Whatever way one owner's hosts are spelled, two parties that must not be one are
// refused.
func TestOwners(t *testing.T) {
	const leader, helper, relay, gateway = "https://leader.evil.example/", "https://help.example/", "https://relay.example/", "https://leader.evil.example/gw"
	if field := owned(t, leader, helper, relay, gateway); field != "" {
		t.Errorf("%s of honest owners is refused", field)
	}
	// of the leader
	same := []string{
		"https://Leader.Evil.Example/", "https://leader.evil.example./", "https://leader.evil.example:8443/",
		"https://leader.evil.example/h", "https://other.evil.example/", "https://evil.example/", "https://a.b.c.EVIL.example./x",
	}
	for _, s := range same {
		if field := owned(t, leader, s, relay, gateway); field != "path.helper" {
			t.Errorf("helper %s beside leader %s: %q", s, leader, field)
		}
		if field := owned(t, leader, helper, s, "https://gate.example/"); field != "relay.url" {
			t.Errorf("relay %s beside leader %s: %q", s, leader, field)
		}
		if field := owned(t, "https://first.example/", s, s, "https://gate.example/"); field != "relay.url" {
			t.Errorf("relay %s beside helper: %q", s, field)
		}
		if field := owned(t, "https://first.example/", helper, s, leader); field != "relay.url" {
			t.Errorf("relay %s beside gateway %s: %q", s, leader, field)
		}
	}
	for _, c := range []struct {
		a, b string
		one  bool
	}{
		{"https://a.co.uk/", "https://b.co.uk/", false},
		{"https://x.a.co.uk/", "https://y.a.co.uk/", true},
		{"https://ann.github.io/", "https://bob.github.io/", false},
		{"https://xn--bcher-kva.example/", "https://www.XN--BCHER-KVA.example/", true},
		{"https://leader/", "https://helper/", false},
		{"https://leader/", "https://LEADER./", true},
		{"https://192.0.2.7/", "https://192.0.2.7:444/", true},
		{"https://192.0.2.7/", "https://192.0.2.8/", false},
		{"https://192.0.2.7/", "https://[::ffff:192.0.2.7]/", true},
		{"https://[2001:db8::1]/", "https://[2001:db8:0::0:1]/", true},
		{"https://[2001:db8::1]/", "https://[2001:db8::2]/", false},
		{"http://127.0.0.1:81/", "http://127.0.0.1:82/", false},
		{"http://127.0.0.1:81/", "http://localhost:81/", true},
		{"http://127.0.0.1:81/", "http://[::1]:081/", true},
		{"http://127.0.0.1/", "http://127.0.0.2:80/", true},
		{"https://localhost/", "https://0.0.0.0:443/", true},
	} {
		want := ""
		if c.one {
			want = "path.helper"
		}
		if field := owned(t, c.a, c.b, relay, "https://gate.example/"); field != want {
			t.Errorf("%s and %s: %q, want %q", c.a, c.b, field, want)
		}
	}
}

// Hosts that resolvers and browsers read as another are refused, wherever they stand.
func TestHostsAreSpelledOut(t *testing.T) {
	for _, host := range []string{"127.1", "2130706433", "0x7f.0.0.1", "127.0.0.01", "b%C3%BCcher.example", "a..example", ".example",
		"a%2eexample", "a.example.0", strings.Repeat("a", 64) + ".example"} {
		r := needles()
		r.Relay.URL = "https://" + host + "/"
		if invalid := new(InvalidError); !errors.As(account.Validate(r), &invalid) || invalid.Field != "relay.url" {
			t.Errorf("%s: %v", host, account.Validate(r))
		}
	}
}
