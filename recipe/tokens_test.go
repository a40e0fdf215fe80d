package recipe_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/signed"
)

// counted are options of a recipe whose devices show credentials.
func counted(t testing.TB) account.Options {
	t.Helper()
	o, k := keyed(t)
	o.Relay = &Relay{URL: "https://relay.example/", Gateway: "https://gateway.leader.example/"}
	k.Gateway = signed.Generate().Public()
	o.Tokens = &Tokens{Attester: "https://attester.example/", Key: signed.Generate().Public(), Attestation: Codes, MinCohort: DefaultCohort, Admission: true}
	o.Log = &Log{Origin: "log.example/starling"}
	return o
}

// TestTokens: a recipe says whether devices are counted, by whom, and in which log it stands.
func TestTokens(t *testing.T) {
	o := counted(t)
	for _, admission := range []bool{false, true} {
		o.Tokens.Admission = admission
		r, err := account.New(o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Read(b)
		if err != nil || !reflect.DeepEqual(again.Tokens, o.Tokens) || !reflect.DeepEqual(again.Log, o.Log) {
			t.Fatalf("%+v, %+v, %v", again.Tokens, again.Log, err)
		}
		var text strings.Builder
		if err := describe(r, &text); err != nil {
			t.Fatal(err)
		}
		words := strings.Join(strings.Fields(text.String()), " ")
		for _, want := range []string{"forging takes leader and helper together, or the attester: 10 counts devices that the attester vouches for",
			"attester: fingerprint " + o.Tokens.Key.Fingerprint(), "stand in the log log.example/starling", "before 1000 devices have those"} {
			if !strings.Contains(words, want) {
				t.Errorf("not said: %s", want)
			}
		}
		if strings.Contains(words, "token too") != admission {
			t.Errorf("admission %v: %s", admission, words)
		}
	}
}

// TestAttestation: a recipe says how its attester tells devices apart, what that proves, and
// what nobody proves by it.
func TestAttestation(t *testing.T) {
	for kind, words := range map[Attestation]string{
		Codes: "(codes): whoever has a one-time code of its is one, and that no person has two codes is its operator's word",
		OIDC:  "(oidc): whoever logs in at its identity provider is one, on however many devices, and that no person has two accounts is the provider's word",
		MTLS:  "(mtls): whoever holds the key of a certificate of its authority is one, and that no person has two devices or certificates is the authority's word",
	} {
		o := counted(t)
		o.Tokens.Attestation = kind
		r, err := account.New(o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Read(b); err != nil || again.Tokens.Attestation != kind {
			t.Errorf("%v: read as %v, %v", kind, again.Tokens.Attestation, err)
		}
		var text strings.Builder
		if err := describe(r, &text); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(text.String()), " "); !strings.Contains(got, words) {
			t.Errorf("%v is not said: %s", kind, got)
		}
	}
}

// TestTokensRefused: what does not go together is said by its field, and bytes that no
// version wrote are refused.
func TestTokensRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*account.Options)
		field  string
	}{
		"no relay":        {func(o *account.Options) { o.Relay, o.ServerKeys.Gateway = nil, signed.PublicKey{} }, "tokens"},
		"log, no relay":   {func(o *account.Options) { o.Tokens, o.Relay, o.ServerKeys.Gateway = nil, nil, signed.PublicKey{} }, "log"},
		"no server keys":  {func(o *account.Options) { o.ServerKeys = nil }, "tokens"},
		"no cohort":       {func(o *account.Options) { o.Tokens.MinCohort = 0 }, "tokens.min_cohort"},
		"vast cohort":     {func(o *account.Options) { o.Tokens.MinCohort = MaxCohort + 1 }, "tokens.min_cohort"},
		"no attestation":  {func(o *account.Options) { o.Tokens.Attestation = 4 }, "tokens.attestation"},
		"attester's URL":  {func(o *account.Options) { o.Tokens.Attester = "http://attester.example/" }, "tokens.attester"},
		"no key":          {func(o *account.Options) { o.Tokens.Key = signed.PublicKey{} }, "tokens.key"},
		"the leader's":    {func(o *account.Options) { o.Tokens.Key = o.ServerKeys.Leader }, "tokens.key"},
		"the gateway's":   {func(o *account.Options) { o.Tokens.Key = o.ServerKeys.Gateway }, "tokens.key"},
		"long rounds":     {func(o *account.Options) { o.TimePrecision = DefaultEpochLength + 1 }, "tokens"},
		"no origin":       {func(o *account.Options) { o.Log.Origin = "" }, "log.origin"},
		"origin in words": {func(o *account.Options) { o.Log.Origin = "my log" }, "log.origin"},
	} {
		o := counted(t)
		c.change(&o)
		_, err := account.New(o)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.field+" ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, err := account.New(counted(t))
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, r.Tokens.Key[:]) + len(r.Tokens.Key)
	for name, change := range map[string]func([]byte){
		"attestation": func(b []byte) { b[at] = 9 },
		"admission":   func(b []byte) { b[at+9] = 2 },
	} {
		x := bytes.Clone(b)
		change(x)
		if _, err := Read(x); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestTokensAnchor: the attester's key is one of the anchors, for its address.
func TestTokensAnchor(t *testing.T) {
	r, err := account.New(counted(t))
	if err != nil {
		t.Fatal(err)
	}
	file := func(attester string) *signed.Anchors {
		list := []signed.Anchor{
			{Name: "leader", Owner: "One", Domain: "leader.example", Key: r.ServerKeys.Leader},
			{Name: "helper", Owner: "Two", Domain: "helper.example", Key: r.ServerKeys.Helper},
			{Name: "gateway", Owner: "One", Domain: "leader.example", Key: r.ServerKeys.Gateway},
		}
		if attester != "" {
			list = append(list, signed.Anchor{Name: "attester", Owner: "Three", Domain: attester, Key: r.Tokens.Key})
		}
		a, err := signed.ReadAnchors(signed.MarshalAnchors(list...))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if err := r.CheckAnchors(file("attester.example")); err != nil {
		t.Error(err)
	}
	for _, domain := range []string{"", "elsewhere.example"} {
		var refused *AnchorError
		if err := r.CheckAnchors(file(domain)); !errors.As(err, &refused) || refused.Server != "attester" {
			t.Errorf("%q: %v", domain, err)
		}
	}
}
