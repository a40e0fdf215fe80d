package showing_test

import (
	"context"
	"errors"
	"testing"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/internal/showing"
	"github.com/starling-agg/starling/shuffle/onion"
)

var (
	id    = [32]byte{1}
	roles = map[onion.Role]arc.Role{onion.First: arc.Hop1, onion.Second: arc.Hop2}
)

// issuers are one beside each hop.
func issuers() map[onion.Role]*arc.PrivateKey {
	return map[onion.Role]*arc.PrivateKey{onion.First: arc.GenerateKey(), onion.Second: arc.GenerateKey()}
}

func held(t *testing.T, keys map[onion.Role]*arc.PrivateKey) showing.Held {
	t.Helper()
	issue := func(role onion.Role) (*arc.Credential, arc.KeyID) {
		k := keys[role].PublicKey()
		p := arc.NewPending(arc.NewRequestContext(roles[role], [32]byte{2}, 1, k.ID()))
		answer, err := keys[role].Respond(p.Request())
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.Finalize(k, answer)
		if err != nil {
			t.Fatal(err)
		}
		return c, k.ID()
	}
	var h showing.Held
	h.First, h.FirstKey = issue(onion.First)
	h.Second, h.SecondKey = issue(onion.Second)
	return h
}

func verifier(role onion.Role, recipe [32]byte, messages int, keys map[onion.Role]*arc.PrivateKey) *showing.Verifier {
	k := keys[role].PublicKey().ID()
	v := keys[role].Verifier(arc.NewRequestContext(roles[role], [32]byte{2}, 1, k))
	return showing.NewVerifier(role, recipe, messages, func(context.Context, uint64) (*arc.Verifier, arc.KeyID, error) { return v, k, nil })
}

// TestDevice: a device shows hop 1 one presentation a round and hop 2 as many as it has
// messages, each of a tag of its own, that hold for what they were made for and nothing else;
// another device's tags are others, and so are those of the next round.
func TestDevice(t *testing.T) {
	keys := issuers()
	for _, messages := range []int{1, 2, 5} {
		h, other := held(t, keys), held(t, keys)
		aad, bound := []byte("aad"), []byte("bound")
		tags := make(map[[32]byte]bool)
		for _, role := range []onion.Role{onion.First, onion.Second} {
			n := 1
			if role == onion.Second {
				n = messages
			}
			v := verifier(role, id, messages, keys)
			for _, x := range []struct {
				d     *showing.Device
				round uint64
			}{{showing.NewDevice(id, 7, messages, h), 7}, {showing.NewDevice(id, 7, messages, other), 7}, {showing.NewDevice(id, 8, messages, h), 8}} {
				var shown []onion.Opened
				for range n {
					b, err := x.d.Present(role, aad, bound)
					if err != nil {
						t.Fatal(err)
					}
					shown = append(shown, onion.Opened{Token: b, Parts: bound})
				}
				if _, err := x.d.Present(role, aad, bound); !errors.Is(err, showing.ErrShown) {
					t.Errorf("%v: one more than %d: %v", role, n, err)
				}
				all, err := v.Verify(t.Context(), x.round, aad, shown)
				if err != nil || len(all) != n {
					t.Fatal(err)
				}
				for _, verdict := range all {
					if verdict.Err != nil || tags[verdict.Tag] {
						t.Errorf("%v of %d: %v, a tag twice %v", role, n, verdict.Err, tags[verdict.Tag])
					}
					tags[verdict.Tag] = true
				}
				for name, wrong := range map[string]func() ([]onion.Verdict, error){
					"another aad":   func() ([]onion.Verdict, error) { return v.Verify(t.Context(), x.round, []byte("another"), shown[:1]) },
					"another round": func() ([]onion.Verdict, error) { return v.Verify(t.Context(), x.round+1, aad, shown[:1]) },
					"another layer": func() ([]onion.Verdict, error) {
						return v.Verify(t.Context(), x.round, aad, []onion.Opened{{Token: shown[0].Token, Parts: aad}})
					},
					"another recipe": func() ([]onion.Verdict, error) {
						return verifier(role, [32]byte{9}, messages, keys).Verify(t.Context(), x.round, aad, shown[:1])
					},
					"another issuer": func() ([]onion.Verdict, error) {
						return verifier(role, id, messages, issuers()).Verify(t.Context(), x.round, aad, shown[:1])
					},
					"nothing": func() ([]onion.Verdict, error) {
						return v.Verify(t.Context(), x.round, aad, []onion.Opened{{Parts: bound}})
					},
				} {
					if all, err := wrong(); err != nil || !errors.Is(all[0].Err, onion.ErrToken) {
						t.Errorf("%v of %d, %s: %v, %v", role, n, name, all, err)
					}
				}
			}
		}
	}
}

// TestOtherHop: what is shown one hop does not hold at the other, nor under another number of
// messages, though both issuers had one key.
func TestOtherHop(t *testing.T) {
	one := arc.GenerateKey()
	keys := map[onion.Role]*arc.PrivateKey{onion.First: one, onion.Second: one}
	h := held(t, keys)
	b, err := showing.NewDevice(id, 7, 1, h).Present(onion.First, []byte("aad"), []byte("bound"))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]*showing.Verifier{"hop 2": verifier(onion.Second, id, 1, keys), "hop 2, of more": verifier(onion.Second, id, 3, keys)} {
		if all, err := v.Verify(t.Context(), 7, []byte("aad"), []onion.Opened{{Token: b, Parts: []byte("bound")}}); err != nil || !errors.Is(all[0].Err, onion.ErrToken) {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
	if _, err := showing.NewDevice(id, 7, 1, h).Present(onion.Analyzer, nil, nil); err == nil {
		t.Error("something is shown to the analyzer")
	}
}
