package recipe_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/signed"
)

// keyed are options of a recipe whose servers sign, with the keys.
func keyed(t testing.TB) (account.Options, *ServerKeys) {
	t.Helper()
	k := &ServerKeys{Leader: signed.Generate().Public(), Helper: signed.Generate().Public(), Collector: Hash{1}, EpochLength: DefaultEpochLength}
	return account.Options{
		Name: "keyed", Query: Count{}, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 10, ServerKeys: k,
	}, k
}

func TestServerKeys(t *testing.T) {
	o, k := keyed(t)
	for _, relay := range []bool{false, true} {
		if relay {
			o.Relay = &Relay{URL: "https://relay.example/", Gateway: "https://gateway.leader.example/"}
			k.Gateway = signed.Generate().Public()
		}
		r, err := account.New(o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Read(b)
		if err != nil || !reflect.DeepEqual(again.ServerKeys, k) {
			t.Fatalf("%+v, %v", again, err)
		}
		var text strings.Builder
		if err := describe(r, &text); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{k.Leader.Fingerprint(), k.Helper.Fingerprint(), "holds if leader's and helper's are two owners' keys", hex.EncodeToString(k.Collector[:8])} {
			if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
				t.Errorf("not said: %s\n%s", want, text.String())
			}
		}
	}
	o.ServerKeys = nil
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := describe(r, &text); err != nil || !strings.Contains(text.String(), "read every answer") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if _, err := r.Deployment(); !errors.Is(err, ErrNoServerKeys) {
		t.Error(err)
	}
}

func TestServerKeysRefused(t *testing.T) {
	small, err := hex.DecodeString("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		field  string
		change func(*account.Options)
	}{
		"one key in two roles":   {"server_keys.helper", func(o *account.Options) { o.ServerKeys.Helper = o.ServerKeys.Leader }},
		"the leader's gateway":   {"server_keys.gateway", func(o *account.Options) { o.ServerKeys.Gateway = o.ServerKeys.Leader }},
		"no leader":              {"server_keys.leader", func(o *account.Options) { o.ServerKeys.Leader = signed.PublicKey{} }},
		"no gateway":             {"server_keys.gateway", func(o *account.Options) { o.ServerKeys.Gateway = signed.PublicKey{} }},
		"small order":            {"server_keys.helper", func(o *account.Options) { o.ServerKeys.Helper = signed.PublicKey(small) }},
		"a gateway and no relay": {"server_keys.gateway", func(o *account.Options) { o.Relay = nil }},
		"no collector":           {"server_keys.collector", func(o *account.Options) { o.ServerKeys.Collector = Hash{} }},
		"a short epoch":          {"server_keys.epoch_length", func(o *account.Options) { o.ServerKeys.EpochLength = MinEpochLength - 1 }},
		"a long epoch":           {"server_keys.epoch_length", func(o *account.Options) { o.ServerKeys.EpochLength = MaxEpochLength + 1 }},
	} {
		o, k := keyed(t)
		o.Relay = &Relay{URL: "https://relay.example/", Gateway: "https://gateway.leader.example/"}
		k.Gateway = signed.Generate().Public()
		c.change(&o)
		_, err := account.New(o)
		var bad *InvalidError
		if !errors.As(err, &bad) || bad.Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A gateway's key of zeros would have two encodings.
func TestServerKeysHaveOneEncoding(t *testing.T) {
	o, k := keyed(t)
	o.Relay = &Relay{URL: "https://relay.example/", Gateway: "https://gateway.leader.example/"}
	k.Gateway = signed.Generate().Public()
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(bytes.Replace(b, k.Gateway[:], make([]byte, 32), 1)); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

// TestDeployment: every address and key of the servers makes another one; the question
// asked does not.
func TestDeployment(t *testing.T) {
	o, k := keyed(t)
	o.Relay = &Relay{URL: "https://relay.example/", Gateway: "https://gateway.leader.example/"}
	k.Gateway = signed.Generate().Public()
	id := func(change func(*account.Options)) [32]byte {
		t.Helper()
		x := o
		keys, relay := *k, *o.Relay
		x.ServerKeys, x.Relay = &keys, &relay
		change(&x)
		r, err := account.New(x)
		if err != nil {
			t.Fatal(err)
		}
		d, err := r.Deployment()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	seen := map[[32]byte]string{id(func(*account.Options) {}): "as it was"}
	if _, same := seen[id(func(o *account.Options) { o.Query, o.MinBatch, o.ServerKeys.Collector = Sum{7}, 20, Hash{2} })]; !same {
		t.Error("another question is another deployment")
	}
	for name, change := range map[string]func(*account.Options){
		"leader":     func(o *account.Options) { o.Leader = "https://leader.example/v2" },
		"helper":     func(o *account.Options) { o.Helper = "https://helper.example/v2" },
		"relay":      func(o *account.Options) { o.Relay.URL = "https://relay.example/v2" },
		"no relay":   func(o *account.Options) { o.Relay, o.ServerKeys.Gateway = nil, signed.PublicKey{} },
		"leader key": func(o *account.Options) { o.ServerKeys.Leader = signed.Generate().Public() },
		"helper key": func(o *account.Options) { o.ServerKeys.Helper = signed.Generate().Public() },
		"gateway":    func(o *account.Options) { o.ServerKeys.Gateway = signed.Generate().Public() },
		"exchanged":  func(o *account.Options) { k := o.ServerKeys; k.Leader, k.Helper = k.Helper, k.Leader },
		"epoch":      func(o *account.Options) { o.ServerKeys.EpochLength++ },
	} {
		d := id(change)
		if other := seen[d]; other != "" {
			t.Errorf("%s is the deployment %s", name, other)
		}
		seen[d] = name
	}
}

func TestCheckAnchors(t *testing.T) {
	o, k := keyed(t)
	o.Relay = &Relay{URL: "https://relay.example/", Gateway: "https://gateway.leader.example/"}
	k.Gateway = signed.Generate().Public()
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	leader := signed.Anchor{Name: "leader", Domain: "leader.example", Key: k.Leader, Owner: "One"}
	helper := signed.Anchor{Name: "helper", Domain: "helper.example", Key: k.Helper, Owner: "Two"}
	gateway := signed.Anchor{Name: "gateway", Domain: "leader.example", Key: k.Gateway, Owner: "One"}
	elsewhere, twin, other := helper, helper, leader
	elsewhere.Domain, twin.Owner, other.Key = "leader.example", "ONE", signed.Generate().Public()
	for name, c := range map[string]struct {
		list   []signed.Anchor
		server string
	}{
		"all":                {[]signed.Anchor{leader, helper, gateway}, ""},
		"none":               {nil, "leader"},
		"no helper":          {[]signed.Anchor{leader, gateway}, "helper"},
		"no gateway":         {[]signed.Anchor{leader, helper}, "gateway"},
		"another key":        {[]signed.Anchor{other, helper, gateway}, "leader"},
		"another's domain":   {[]signed.Anchor{leader, elsewhere, gateway}, "helper"},
		"one owner for both": {[]signed.Anchor{leader, twin, gateway}, "helper"},
	} {
		a, err := signed.ReadAnchors(signed.MarshalAnchors(c.list...))
		if err != nil {
			t.Fatal(err)
		}
		err = r.CheckAnchors(a)
		var bad *AnchorError
		if c.server == "" && err != nil || c.server != "" && (!errors.As(err, &bad) || bad.Server != c.server) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.ServerKeys = nil
	if err := r.CheckAnchors(nil); !errors.Is(err, ErrNoServerKeys) {
		t.Error(err)
	}
}
