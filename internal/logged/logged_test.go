package logged

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/logged/loggedtest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

var now = loggedtest.Now

// judge knows the owners of some trios.
func judge(t *testing.T, trios ...*loggedtest.Trio) Judge {
	t.Helper()
	var all []signed.Anchor
	for _, x := range trios {
		all = append(all, x.Anchors...)
	}
	a, err := signed.ReadAnchors(signed.MarshalAnchors(all...))
	if err != nil {
		t.Fatal(err)
	}
	return Judge{a}
}

func release(t *testing.T, name string) []byte {
	t.Helper()
	b, err := (&tlog.Release{Name: name, Digest: [32]byte{1}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestClaims: what its owners have signed is taken, and says until when it holds, whose it
// is, and what it is about.
func TestClaims(t *testing.T) {
	x := loggedtest.New(t, "")
	j := judge(t, x)
	all := []signed.PublicKey{x.Anchors[0].Key, x.Anchors[1].Key, x.Anchors[2].Key}
	short := *x
	closing := *x.Recipe
	closing.Window = recipe.Between{Start: 100, End: 500_000}
	short.Recipe = &closing
	abouts := make(map[[32]byte]string)
	for name, c := range map[string]struct {
		e      tlog.Entry
		until  time.Time
		owners []signed.PublicKey
	}{
		"manifest":           {x.Manifest(nil), now.Add(time.Hour), all},
		"second":             {x.Manifest(func(m *ohttp.Manifest) { m.Revision = 1 }), now.Add(time.Hour), all},
		"leader's list":      {tlog.Entry{Kind: tlog.KindKeyList, Body: x.List(signed.Leader, 1)}, now.Add(time.Hour), all[:1]},
		"helper's list":      {tlog.Entry{Kind: tlog.KindKeyList, Body: x.List(signed.Helper, 1)}, now.Add(time.Hour), all[1:2]},
		"recipe":             {x.Say(tlog.KindRecipe, signed.Helper, x.RecipeFile()), time.Time{}, []signed.PublicKey{all[1], all[0], all[2]}},
		"recipe with an end": {short.Say(tlog.KindRecipe, signed.Leader, short.RecipeFile()), time.Unix(500_000*3600, 0), all},
		"release":            {x.Say(tlog.KindRelease, signed.Leader, release(t, "starling")), time.Time{}, all[:1]},
		"helper's":           {x.Say(tlog.KindRelease, signed.Helper, release(t, "starling")), time.Time{}, all[1:2]},
		"other release":      {x.Say(tlog.KindRelease, signed.Leader, release(t, "starling-2")), time.Time{}, all[:1]},
		"cohort":             {x.Say(tlog.KindCohort, signed.Leader, cohortOf(t, signed.Leader, 3, 6)), now.Add(ohttp.MaxEpoch), all[:1]},
		"the helper's":       {x.Say(tlog.KindCohort, signed.Helper, cohortOf(t, signed.Helper, 3, 6)), now.Add(ohttp.MaxEpoch), all[1:2]},
		"as if the helper's": {x.Say(tlog.KindCohort, signed.Leader, cohortOf(t, signed.Helper, 3, 6)), now.Add(ohttp.MaxEpoch), all[:1]},
		"next cohort":        {x.Say(tlog.KindCohort, signed.Leader, cohortOf(t, signed.Leader, 4, 6)), now.Add(ohttp.MaxEpoch), all[:1]},
		"withdrawal":         {x.Say(tlog.KindWithdrawal, signed.Leader, append(make([]byte, 31), 1)), now, all[:1]},
	} {
		got, err := j.Claim(c.e)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !got.Until.Equal(c.until) || !slices.Equal(got.Owners, c.owners) {
			t.Errorf("%s: %+v", name, got)
		}
		if other := abouts[got.About]; other != "" {
			t.Errorf("%s and %s are about the same", name, other)
		}
		abouts[got.About] = name
		if stated := name != "manifest" && name != "second" && name[len(name)-4:] != "list"; got.Stated.IsZero() == stated {
			t.Errorf("%s: stated at %v", name, got.Stated)
		}
	}
	// The same thing said again is about the same, whoever says it.
	for _, pair := range [][2]tlog.Entry{
		{x.Say(tlog.KindRecipe, signed.Helper, x.RecipeFile()), x.Say(tlog.KindRecipe, signed.Leader, x.RecipeFile())},
		{x.Manifest(nil), x.Manifest(nil)}, // with other keys
		{tlog.Entry{Kind: tlog.KindKeyList, Body: x.List(signed.Leader, 1)}, tlog.Entry{Kind: tlog.KindKeyList, Body: x.List(signed.Leader, 2)}},
		{x.Say(tlog.KindCohort, signed.Leader, cohortOf(t, signed.Leader, 3, 6)), x.Say(tlog.KindCohort, signed.Leader, cohortOf(t, signed.Leader, 3, 7))},
	} {
		a, err1 := j.Claim(pair[0])
		b, err2 := j.Claim(pair[1])
		if err1 != nil || err2 != nil || a.About != b.About || slices.Equal(pair[0].Body, pair[1].Body) {
			t.Errorf("%v: %v, %v", pair[0].Kind, err1, err2)
		}
	}
}

// TestForged: entries that their owners have not signed are refused, though others have who
// are owners too.
func TestForged(t *testing.T) {
	x, y := loggedtest.New(t, ""), loggedtest.New(t, "other.")
	j := judge(t, x, y)
	stranger := loggedtest.New(t, "")
	only := func(keep ...signed.Role) func(m *ohttp.Manifest) {
		return func(m *ohttp.Manifest) {
			for _, role := range keep {
				if err := m.Sign(role, x.Signers[role]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	oneOwner := loggedtest.New(t, "one.")
	oneOwner.Anchors[1].Owner = oneOwner.Anchors[0].Owner
	elsewhere := loggedtest.New(t, "else.")
	elsewhere.Anchors[0].Domain = "elsewhere.example"
	changed := func(e tlog.Entry, at int) tlog.Entry {
		e.Body = slices.Clone(e.Body)
		e.Body[(at+len(e.Body))%len(e.Body)] ^= 1
		return e
	}
	for name, c := range map[string]struct {
		j    Judge
		e    tlog.Entry
		want error
	}{
		"a manifest of strangers":              {j, stranger.Manifest(nil), ErrAuthor},
		"a manifest that two have signed":      {j, x.Manifest(only(signed.Leader, signed.Helper)), ErrAuthor},
		"a manifest of others' deployment":     {j, y.Manifest(func(m *ohttp.Manifest) { m.Deployment = x.Deployment() }), ErrAuthor},
		"a manifest with another relay":        {j, x.Manifest(func(m *ohttp.Manifest) { m.Relay = "https://evil.example/" }), ErrAuthor},
		"a manifest that one owner has signed": {judge(t, oneOwner), oneOwner.Manifest(nil), ErrAuthor},
		"a manifest without the helper's keys": {j, x.Manifest(func(m *ohttp.Manifest) { m.Pinned = m.Pinned[:1] }), ErrAuthor},
		"a manifest with a stranger's keys":    {j, x.Manifest(func(m *ohttp.Manifest) { m.Pinned[0].Body = stranger.List(signed.Leader, 3) }), ErrAuthor},
		"a manifest that was changed":          {j, changed(x.Manifest(nil), -10), ErrAuthor},
		"no manifest":                          {j, tlog.Entry{Kind: tlog.KindManifest, Body: []byte("x")}, ErrContent},
		"a stranger's list":                    {j, tlog.Entry{Kind: tlog.KindKeyList, Body: stranger.List(signed.Leader, 1)}, ErrAuthor},
		"a list of another address":            {judge(t, elsewhere), tlog.Entry{Kind: tlog.KindKeyList, Body: elsewhere.List(signed.Leader, 1)}, ErrAuthor},
		"a list that was changed":              {j, changed(tlog.Entry{Kind: tlog.KindKeyList, Body: x.List(signed.Leader, 1)}, 1), ErrAuthor},
		"no list":                              {j, tlog.Entry{Kind: tlog.KindKeyList, Body: make([]byte, 300)}, ErrContent},
		"a stranger's recipe":                  {j, stranger.Say(tlog.KindRecipe, signed.Leader, stranger.RecipeFile()), ErrAuthor},
		"a recipe with strangers' keys": {j, func() tlog.Entry {
			e, err := tlog.State(tlog.KindRecipe, stranger.Deployment(), stranger.RecipeFile(), x.Signers[signed.Leader], now)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}(), ErrAuthor},
		"a recipe of another deployment": {j, x.Say(tlog.KindRecipe, signed.Leader, y.RecipeFile()), ErrContent},
		"a recipe that was changed":      {j, changed(x.Say(tlog.KindRecipe, signed.Leader, x.RecipeFile()), 60), ErrAuthor},
		"no recipe":                      {j, x.Say(tlog.KindRecipe, signed.Leader, []byte("x")), ErrContent},
		"a release as a recipe":          {j, tlog.Entry{Kind: tlog.KindRecipe, Body: x.Say(tlog.KindRelease, signed.Leader, x.RecipeFile()).Body}, ErrAuthor},
		"a stranger's release":           {j, stranger.Say(tlog.KindRelease, signed.Leader, release(t, "x")), ErrAuthor},
		"no release":                     {j, x.Say(tlog.KindRelease, signed.Leader, []byte("x")), ErrContent},
		"a stranger's cohort":            {j, stranger.Say(tlog.KindCohort, signed.Leader, cohortOf(t, signed.Leader, 3, 6)), ErrAuthor},
		"no cohort":                      {j, x.Say(tlog.KindCohort, signed.Leader, []byte{2}), ErrContent},
		"the gateway's cohort":           {j, x.Say(tlog.KindCohort, signed.Gateway, append([]byte{4}, make([]byte, 12)...)), ErrContent},
		"a withdrawal of nothing":        {j, x.Say(tlog.KindWithdrawal, signed.Leader, make([]byte, 32)), ErrContent},
		"a withdrawal of half a hash":    {j, x.Say(tlog.KindWithdrawal, signed.Leader, make([]byte, 16)), ErrContent},
		"a statement cut off":            {j, tlog.Entry{Kind: tlog.KindRelease, Body: make([]byte, 20)}, ErrContent},
		"an active set":                  {j, tlog.Entry{Kind: tlog.KindActive, Body: []byte("x")}, ErrKind},
		"a kind that nobody knows":       {j, tlog.Entry{Kind: 99, Body: []byte("x")}, ErrKind},
	} {
		if _, err := c.j.Claim(c.e); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestRead: a device takes what holds, skips what it does not know, and nothing at all of a
// bundle with two records about the same, or a forged one.
func TestRead(t *testing.T) {
	x := loggedtest.New(t, "")
	j := judge(t, x)
	good := []tlog.Entry{x.Say(tlog.KindRecipe, signed.Helper, x.RecipeFile()), x.Manifest(nil), {Kind: tlog.KindKeyList, Body: x.List(signed.Leader, 1)},
		{Kind: 99, Body: []byte("x")}, x.Say(tlog.KindRelease, signed.Leader, release(t, "starling"))}
	placed := func(entries ...tlog.Entry) (all []tlog.Placed) {
		for i, e := range entries {
			all = append(all, tlog.Placed{Index: int64(i), Entry: e})
		}
		return all
	}
	got, err := j.Read(placed(good...))
	if err != nil {
		t.Fatal(err)
	}
	id, err := x.Recipe.ID()
	if err != nil || !slices.Equal(got.Recipes[id], x.RecipeFile()) || len(got.Manifests) != 1 || got.Manifests[0].Deployment != x.Deployment() ||
		got.KeyLists != 1 || got.Releases != 1 || got.Skipped != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		more tlog.Entry
		want error
	}{
		"a second key list":  {tlog.Entry{Kind: tlog.KindKeyList, Body: x.List(signed.Leader, 2)}, tlog.ErrDuplicate},
		"a second manifest":  {x.Manifest(nil), tlog.ErrDuplicate},
		"the recipe again":   {x.Say(tlog.KindRecipe, signed.Leader, x.RecipeFile()), tlog.ErrDuplicate},
		"a stranger's":       {loggedtest.New(t, "").Manifest(nil), ErrAuthor},
		"what is no release": {x.Say(tlog.KindRelease, signed.Leader, []byte("x")), ErrContent},
	} {
		if got, err := j.Read(placed(append(slices.Clone(good), c.more)...)); !errors.Is(err, c.want) || got != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// later are entries that a later version of this software could make.
func later(t *testing.T, x *loggedtest.Trio) map[string]tlog.Entry {
	t.Helper()
	next := x.RecipeFile()
	next[0]++
	alone, certificate, err := recipe.SplitFile(x.RecipeFile())
	if err != nil || len(certificate) > 0 {
		t.Fatal(err)
	}
	// The extensions are the last of a recipe, those here of ServerKeys and more: one of a type
	// that nobody has goes behind them.
	r, err := recipe.Read(alone)
	if err != nil {
		t.Fatal(err)
	}
	r.ServerKeys, r.Relay, r.Rounds = nil, nil, nil
	bare, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	extended := slices.Clone(alone)
	n := len(alone) - len(bare) + 5
	copy(extended[len(bare)-2:], []byte{byte(n >> 8), byte(n)})
	extended = append(extended, 0x7f, 0xff, 0, 1, 0)
	manifest := x.Manifest(nil)
	version := slices.Clone(manifest.Body)
	version[len("starling manifest v")]++
	// Extensions of a manifest stand before three signatures of 209 bytes.
	at := len(manifest.Body) - 3*209 - 2
	more := slices.Concat(manifest.Body[:at-2], []byte{0, 5, 0, 3, 0, 1, 0}, manifest.Body[at:])
	return map[string]tlog.Entry{
		"a kind":                  {Kind: 99, Body: []byte("x")},
		"an entry":                {}, // as a bundle gives it
		"a recipe":                x.Say(tlog.KindRecipe, signed.Leader, next),
		"an extended recipe":      x.Say(tlog.KindRecipe, signed.Leader, extended),
		"a manifest":              {Kind: tlog.KindManifest, Body: version},
		"a manifest's extension":  {Kind: tlog.KindManifest, Body: more},
		"what only looks like it": {Kind: tlog.KindManifest, Body: []byte("starling manifest v9")},
	}
}

// TestLater: what a later version knows is skipped, and stands in nobody's way: what is
// known beside it holds, a second one is refused as ever, and so is what nobody signed
// where that can be seen.
func TestLater(t *testing.T) {
	x := loggedtest.New(t, "")
	j := judge(t, x)
	stranger := loggedtest.New(t, "")
	known := []tlog.Entry{x.Say(tlog.KindRecipe, signed.Helper, x.RecipeFile()), x.Manifest(nil)}
	read := func(entries ...tlog.Entry) (*Content, error) {
		var placed []tlog.Placed
		for i, e := range entries {
			placed = append(placed, tlog.Placed{Index: int64(i), Entry: e})
		}
		return j.Read(placed)
	}
	all := []tlog.Entry{}
	for name, e := range later(t, x) {
		if _, err := j.Claim(e); !errors.Is(err, ErrKind) && !errors.Is(err, ErrLater) {
			t.Errorf("%s: %v", name, err) // so that no log takes it that cannot judge it
		}
		all = append(all, e, e) // and twice
		for _, order := range [][]tlog.Entry{slices.Concat([]tlog.Entry{e}, known), slices.Concat(known, []tlog.Entry{e})} {
			got, err := read(order...)
			if err != nil || len(got.Recipes) != 1 || len(got.Manifests) != 1 || got.Skipped != 1 {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	}
	for name, c := range map[string]struct {
		more tlog.Entry
		want error
	}{
		"a second manifest":                {x.Manifest(nil), tlog.ErrDuplicate},
		"a stranger's manifest":            {stranger.Manifest(nil), ErrAuthor},
		"a stranger's recipe":              {stranger.Say(tlog.KindRecipe, signed.Leader, stranger.RecipeFile()), ErrAuthor},
		"a stranger's, of a version":       {later(t, stranger)["a recipe"], ErrAuthor},
		"a stranger's, extended":           {later(t, stranger)["an extended recipe"], ErrAuthor},
		"text for a recipe":                {x.Say(tlog.KindRecipe, signed.Leader, []byte("~")), ErrContent},
		"half a recipe":                    {x.Say(tlog.KindRecipe, signed.Leader, x.RecipeFile()[:9]), ErrContent},
		"a manifest of an earlier version": {tlog.Entry{Kind: tlog.KindManifest, Body: []byte("starling manifest v2")}, ErrContent},
		"half a manifest":                  {tlog.Entry{Kind: tlog.KindManifest, Body: known[1].Body[:200]}, ErrContent},
		"a manifest of no version":         {tlog.Entry{Kind: tlog.KindManifest, Body: []byte("starling manifest vX")}, ErrContent},
	} {
		if got, err := read(slices.Concat(all, known, []tlog.Entry{c.more})...); !errors.Is(err, c.want) || got != nil {
			t.Errorf("%s beside what is skipped: %v", name, err)
		}
	}
	if got, err := read(slices.Concat(all, known)...); err != nil || got.Skipped != len(all) {
		t.Errorf("%+v, %v", got, err)
	}
}

func cohortOf(t *testing.T, role signed.Role, epoch uint32, devices uint64) []byte {
	t.Helper()
	b, err := (&tlog.Cohort{Role: role, Epoch: epoch, Devices: devices}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCohort: the numbers of an epoch are those that the owners say whom its manifest names,
// each for itself; an owner that speaks for another says nothing, and where one is silent
// nothing is known.
func TestCohort(t *testing.T) {
	x := loggedtest.New(t, "")
	attester := x.Anchors[2].Key // any owner of the trio may be one
	m, err := ohttp.ReadManifest(x.Manifest(func(m *ohttp.Manifest) {
		m.Issuers = &ohttp.Issuers{Leader: [ohttp.IssuerKeySize]byte{1}, Helper: [ohttp.IssuerKeySize]byte{2}, Attester: attester, Cap: 9}
	}).Body)
	if err != nil {
		t.Fatal(err)
	}
	said := []tlog.Entry{
		x.Say(tlog.KindCohort, signed.Leader, cohortOf(t, signed.Leader, m.Epoch, 5)),
		x.Say(tlog.KindCohort, signed.Helper, cohortOf(t, signed.Helper, m.Epoch, 6)),
		x.Say(tlog.KindCohort, signed.Gateway, cohortOf(t, signed.Attester, m.Epoch, 7)),
	}
	others := []tlog.Entry{
		x.Say(tlog.KindCohort, signed.Leader, cohortOf(t, signed.Helper, m.Epoch, 100)),
		x.Say(tlog.KindCohort, signed.Helper, cohortOf(t, signed.Leader, m.Epoch, 100)),
		x.Say(tlog.KindCohort, signed.Helper, cohortOf(t, signed.Attester, m.Epoch, 100)),
		x.Say(tlog.KindCohort, signed.Leader, cohortOf(t, signed.Leader, m.Epoch+1, 100)),
	}
	read := func(entries ...tlog.Entry) *Content {
		t.Helper()
		var placed []tlog.Placed
		for i, e := range entries {
			placed = append(placed, tlog.Placed{Index: int64(i), Entry: e})
		}
		c, err := judge(t, x).Read(placed)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c, ok := read(slices.Concat(others, said)...).Cohort(m); !ok || c != (arc.Cohort{Leader: 5, Helper: 6, Attested: 7}) {
		t.Errorf("%+v, %v", c, ok)
	}
	for i := range said {
		if c, ok := read(slices.Concat(others, said[:i], said[i+1:])...).Cohort(m); ok {
			t.Errorf("without %d: %+v", i, c)
		}
	}
	none := *m
	none.Issuers = nil
	if _, ok := read(said...).Cohort(&none); ok {
		t.Error("a manifest without issuers has a cohort")
	}
}
