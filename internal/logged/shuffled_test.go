package logged

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/logged/loggedtest"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// mixers are the owners of two hops, an analyzer and a gateway.
type mixers struct {
	first, second, analyzer, gateway *signed.Signer
	judge                            Judge
}

func newMixers(t *testing.T) *mixers {
	t.Helper()
	x := &mixers{}
	var anchors []signed.Anchor
	for name, to := range map[string]**signed.Signer{"first": &x.first, "second": &x.second, "analyzer": &x.analyzer, "gateway": &x.gateway} {
		root := signed.Generate()
		*to = signedtest.Signer(t, root, now.AddDate(0, 0, -30), 90*24*time.Hour)
		anchors = append(anchors, signed.Anchor{Name: name, Domain: name + ".example", Key: root.Public(), Owner: name})
	}
	a, err := signed.ReadAnchors(signed.MarshalAnchors(anchors...))
	if err != nil {
		t.Fatal(err)
	}
	x.judge = Judge{a}
	return x
}

// keys is the entry of a key list, of rounds from 7 on.
func (x *mixers) keys(t *testing.T, by *signed.Signer, role onion.Role, keys ...byte) tlog.Entry {
	t.Helper()
	l := &onion.KeyList{Recipe: [32]byte{1}, Role: role, First: 7, Issued: now, Until: now.Add(time.Hour)}
	for _, k := range keys {
		l.Keys = append(l.Keys, [32]byte{k})
	}
	b, err := l.Sign(by)
	if err != nil {
		t.Fatal(err)
	}
	return tlog.Entry{Kind: tlog.KindShuffleKeys, Body: b}
}

// batch is the entry of what both hops sign, after a change of hop 2's.
func (x *mixers) batch(t *testing.T, first, second *signed.Signer, change func(*onion.Manifest)) tlog.Entry {
	t.Helper()
	m := &onion.Manifest{Recipe: [32]byte{1}, Round: 7, Role: onion.First, At: now, Contributions: 5, Messages: 15}
	before, err := m.Sign(first)
	if err != nil {
		t.Fatal(err)
	}
	m.Role, m.Before = onion.Second, before
	if change != nil {
		change(m)
	}
	b, err := m.Sign(second)
	if err != nil {
		t.Fatal(err)
	}
	return tlog.Entry{Kind: tlog.KindBatch, Body: b}
}

// front is the entry of a manifest that some sign.
func (x *mixers) front(t *testing.T, by map[signed.Role]*signed.Signer, revision uint16) tlog.Entry {
	t.Helper()
	e := loggedtest.New(t, "").Manifest(nil)
	m, err := ohttp.ReadManifest(e.Body)
	if err != nil {
		t.Fatal(err)
	}
	m.Signatures, m.Revision = nil, revision
	for role, s := range by {
		if err := m.Sign(role, s); err != nil {
			t.Fatal(err)
		}
	}
	if e.Body, err = m.Append(nil); err != nil {
		t.Fatal(err)
	}
	e.Kind = tlog.KindFrontManifest
	return e
}

// TestShuffledClaims: of each round of a party a log takes one key, of each batch one pair of
// manifests, and devices find the keys again by party, round and owner.
func TestShuffledClaims(t *testing.T) {
	x := newMixers(t)
	gateway := map[signed.Role]*signed.Signer{signed.Gateway: x.gateway}
	abouts := make(map[[32]byte]string)
	for name, c := range map[string]struct {
		e      tlog.Entry
		until  time.Time
		owners int
	}{
		"first's keys":     {x.keys(t, x.first, onion.First, 1), now.Add(time.Hour), 1},
		"second's keys":    {x.keys(t, x.second, onion.Second, 1), now.Add(time.Hour), 1},
		"as if second's":   {x.keys(t, x.first, onion.Second, 1), now.Add(time.Hour), 1},
		"analyzer's keys":  {x.keys(t, x.analyzer, onion.Analyzer, 1), now.Add(time.Hour), 1},
		"batch":            {x.batch(t, x.first, x.second, nil), now, 2},
		"of others":        {x.batch(t, x.second, x.first, nil), now, 2},
		"front":            {x.front(t, gateway, 0), now.Add(time.Hour), 1},
		"front, revised":   {x.front(t, gateway, 1), now.Add(time.Hour), 1},
		"front of another": {x.front(t, map[signed.Role]*signed.Signer{signed.Gateway: x.first}, 0), now.Add(time.Hour), 1},
	} {
		got, err := x.judge.Claim(c.e)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !got.Until.Equal(c.until) || len(got.Owners) != c.owners {
			t.Errorf("%s: %+v", name, got)
		}
		if other := abouts[got.About]; other != "" && name != "front" && name != "front, revised" && name != "front of another" {
			t.Errorf("%s and %s are about the same", name, other)
		}
		abouts[got.About] = name
	}
	for name, pair := range map[string][2]tlog.Entry{
		"another key":  {x.keys(t, x.first, onion.First, 1), x.keys(t, x.first, onion.First, 2)},
		"another root": {x.batch(t, x.first, x.second, nil), x.batch(t, x.first, x.second, func(m *onion.Manifest) { m.Root = [32]byte{9} })},
	} {
		a, err1 := x.judge.Claim(pair[0])
		b, err2 := x.judge.Claim(pair[1])
		if err1 != nil || err2 != nil || a.About != b.About || bytes.Equal(pair[0].Body, pair[1].Body) {
			t.Errorf("%s: %v, %v", name, err1, err2)
		}
	}
	content, err := x.judge.Read([]tlog.Placed{{Index: 1, Entry: x.keys(t, x.first, onion.First, 3)}, {Index: 2, Entry: x.front(t, gateway, 0)}, {Index: 3, Entry: x.batch(t, x.first, x.second, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	if b := content.ShuffleKeys([32]byte{1}, onion.First, 7, x.first.Root()); b == nil || len(content.Fronts) != 1 || len(content.Manifests) != 0 {
		t.Errorf("%x, %d, %d", b, len(content.Fronts), len(content.Manifests))
	}
	for name, b := range map[string][]byte{
		"another recipe": content.ShuffleKeys([32]byte{2}, onion.First, 7, x.first.Root()), "another party": content.ShuffleKeys([32]byte{1}, onion.Second, 7, x.first.Root()),
		"another round": content.ShuffleKeys([32]byte{1}, onion.First, 8, x.first.Root()), "another owner": content.ShuffleKeys([32]byte{1}, onion.First, 7, x.second.Root()),
	} {
		if b != nil {
			t.Errorf("keys of %s", name)
		}
	}
	twice := []tlog.Placed{{Index: 1, Entry: x.keys(t, x.first, onion.First, 3)}, {Index: 2, Entry: x.keys(t, x.first, onion.First, 4)}}
	if _, err := x.judge.Read(twice); !errors.Is(err, tlog.ErrDuplicate) {
		t.Errorf("two keys of a round in one bundle: %v", err)
	}
}

// TestShuffledForged: entries of hops that their owners have not signed, or that do not say
// what their kind has, are refused.
func TestShuffledForged(t *testing.T) {
	x, stranger := newMixers(t), newMixers(t)
	changed := func(e tlog.Entry, at int) tlog.Entry {
		e.Body = bytes.Clone(e.Body)
		e.Body[(at+len(e.Body))%len(e.Body)] ^= 1
		return e
	}
	oneOwner := newMixers(t)
	a, err := signed.ReadAnchors(signed.MarshalAnchors(
		signed.Anchor{Name: "first", Domain: "first.example", Key: oneOwner.first.Root(), Owner: "one"},
		signed.Anchor{Name: "second", Domain: "second.example", Key: oneOwner.second.Root(), Owner: "one"}))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		j    Judge
		e    tlog.Entry
		want error
	}{
		"keys of a stranger":       {x.judge, x.keys(t, stranger.first, onion.First, 1), ErrAuthor},
		"keys, changed":            {x.judge, changed(x.keys(t, x.first, onion.First, 1), 70), ErrAuthor},
		"keys of two rounds":       {x.judge, x.keys(t, x.first, onion.First, 1, 2), ErrContent},
		"keys of no role":          {x.judge, x.keys(t, x.first, 5, 1), ErrContent},
		"keys, cut":                {x.judge, tlog.Entry{Kind: tlog.KindShuffleKeys, Body: []byte{1}}, ErrContent},
		"batch of a stranger":      {x.judge, x.batch(t, x.first, stranger.second, nil), ErrAuthor},
		"batch of a stranger's":    {x.judge, x.batch(t, stranger.first, x.second, nil), ErrAuthor},
		"batch, changed":           {x.judge, changed(x.batch(t, x.first, x.second, nil), 0), ErrAuthor},
		"batch of other counts":    {x.judge, x.batch(t, x.first, x.second, func(m *onion.Manifest) { m.Messages++ }), ErrContent},
		"batch of another round":   {x.judge, x.batch(t, x.first, x.second, func(m *onion.Manifest) { m.Round++ }), ErrContent},
		"batch, hop 1's alone":     {x.judge, x.batch(t, x.first, x.second, func(m *onion.Manifest) { m.Role, m.Before = onion.First, nil }), ErrContent},
		"batch of one owner":       {Judge{a}, x.batch(t, oneOwner.first, oneOwner.second, nil), ErrAuthor},
		"manifest of a stranger":   {x.judge, x.front(t, map[signed.Role]*signed.Signer{signed.Gateway: stranger.gateway}, 0), ErrAuthor},
		"manifest of nobody":       {x.judge, x.front(t, nil, 0), ErrAuthor},
		"manifest of two":          {x.judge, x.front(t, map[signed.Role]*signed.Signer{signed.Gateway: x.gateway, signed.Leader: x.first}, 0), ErrAuthor},
		"manifest of another role": {x.judge, x.front(t, map[signed.Role]*signed.Signer{signed.Leader: x.gateway}, 0), ErrAuthor},
	} {
		if _, err := c.j.Claim(c.e); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
