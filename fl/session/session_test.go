package session_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

func terms() session.Terms {
	return session.Terms{
		Layout:    []session.Tensor{{Name: "weights", Shape: []uint32{2, 3}}, {Name: "bias", Shape: []uint32{2}}, {Name: "scale"}},
		Algorithm: session.FedSGD, LocalSteps: 1, Clipping: session.Clipping{Norm: 0.5}, Rounds: 10, FirstRound: 100,
	}
}

func adaptive() session.Terms {
	t := terms()
	t.Algorithm, t.LocalSteps, t.LocalRate, t.FirstRound = session.FedAvg, 5, 0.1, 0
	t.Clipping.Adaptive = &session.Adaptive{Quantile: 0.5, Rate: 0.2, Weight: 0.1}
	return t
}

// world is a session with its key and the recipe that names both.
func world(t testing.TB, terms session.Terms) (*session.Session, *signed.PrivateKey, *recipe.Recipe) {
	t.Helper()
	key := signed.Generate()
	hash, err := terms.Hash()
	if err != nil {
		t.Fatal(err)
	}
	q, err := recipe.NewVector(uint32(terms.Entries()), 1, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := account.New(account.Options{Name: "Training", Query: q, Leader: "https://leader.example/", Helper: "https://helper.example/",
		MinBatch: 10, Rounds: 10, Epsilon: recipe.Decimal{Coefficient: 4}, Training: &recipe.Training{Controller: key.Public(), Terms: hash}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.Of(r, terms)
	if err != nil {
		t.Fatal(err)
	}
	return s, key, r
}

func hashOf(t testing.TB, s *session.Session) session.Hash {
	t.Helper()
	h, err := s.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// chain is n announcements, for rounds from 100 on, each of a model of its own.
func chain(t testing.TB, s *session.Session, key *signed.PrivateKey, n int) (list []session.Announcement, blobs [][]byte) {
	t.Helper()
	var previous session.Hash
	for i := range n {
		m := session.Model{Session: hashOf(t, s), Round: 100 + uint64(i), Clip: s.Terms.Clipping.Norm, Parameters: make([]float32, s.Terms.Dimension())}
		m.Parameters[0] = float32(i)
		blob, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		a := session.Announcement{Session: m.Session, Index: uint32(i), Round: m.Round, Model: session.BlobHash(blob), Previous: previous}
		a.Sign(key)
		previous = a.Hash()
		list, blobs = append(list, a), append(blobs, blob)
	}
	return list, blobs
}

func TestRecipeBindsSession(t *testing.T) {
	for name, c := range map[string]struct {
		terms  session.Terms
		change func(*session.Session, *recipe.Recipe)
		want   error
	}{
		"another recipe":  {terms(), func(s *session.Session, _ *recipe.Recipe) { s.Recipe[0] ^= 1 }, session.ErrSession},
		"another key":     {terms(), func(s *session.Session, _ *recipe.Recipe) { s.Controller = signed.Generate().Public() }, session.ErrSession},
		"other terms":     {terms(), func(s *session.Session, _ *recipe.Recipe) { s.Terms.Rounds++ }, session.ErrSession},
		"no training":     {terms(), func(_ *session.Session, r *recipe.Recipe) { r.Training = nil }, session.ErrNoTraining},
		"shorter vectors": {adaptive(), func(s *session.Session, r *recipe.Recipe) { short(r, s) }, session.ErrSession},
		"bad terms":       {adaptive(), func(s *session.Session, _ *recipe.Recipe) { s.Terms.Clipping.Norm = math.NaN() }, session.ErrTerms},
	} {
		s, _, r := world(t, c.terms)
		if err := s.Check(r); err != nil {
			t.Errorf("%s, before: %v", name, err)
		}
		c.change(s, r)
		if err := s.Check(r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// short takes the last entry off a recipe's vectors, and has the session name it.
func short(r *recipe.Recipe, s *session.Session) {
	q, _ := r.Vector()
	q.Dimension--
	r.Query = q
	s.Recipe, _ = r.ID()
}

func TestTermsRefused(t *testing.T) {
	for name, change := range map[string]func(*session.Terms){
		"no tensors":       func(t *session.Terms) { t.Layout = nil },
		"no name":          func(t *session.Terms) { t.Layout[0].Name = "" },
		"a hidden name":    func(t *session.Terms) { t.Layout[0].Name = "a\u202eb" },
		"one name twice":   func(t *session.Terms) { t.Layout[1].Name = t.Layout[0].Name },
		"an empty tensor":  func(t *session.Terms) { t.Layout[0].Shape[1] = 0 },
		"a deep tensor":    func(t *session.Terms) { t.Layout[2].Shape = []uint32{1, 1, 1, 1, 1, 1, 1, 1, 1} },
		"a large tensor":   func(t *session.Terms) { t.Layout[0].Shape = []uint32{1 << 31, 1 << 31, 1 << 31, 4} },
		"a large model":    func(t *session.Terms) { t.Layout[0].Shape, t.Layout[1].Shape = []uint32{1 << 19}, []uint32{1 << 19} },
		"no algorithm":     func(t *session.Terms) { t.Algorithm = 0 },
		"another":          func(t *session.Terms) { t.Algorithm = 3 },
		"steps of fedsgd":  func(t *session.Terms) { t.LocalSteps = 2 },
		"rate of fedsgd":   func(t *session.Terms) { t.LocalRate = math.Copysign(0, -1) },
		"fedavg, no steps": func(t *session.Terms) { t.Algorithm, t.LocalRate, t.LocalSteps = session.FedAvg, 1, 0 },
		"fedavg, no rate":  func(t *session.Terms) { t.Algorithm = session.FedAvg },
		"no norm":          func(t *session.Terms) { t.Clipping.Norm = 0 },
		"endless norm":     func(t *session.Terms) { t.Clipping.Norm = math.Inf(1) },
		"quantile 1":       func(t *session.Terms) { t.Clipping.Adaptive = &session.Adaptive{Quantile: 1, Rate: 0.2, Weight: 0.1} },
		"weight NaN": func(t *session.Terms) {
			t.Clipping.Adaptive = &session.Adaptive{Quantile: 0.5, Rate: 0.2, Weight: math.NaN()}
		},
		"rate 2":          func(t *session.Terms) { t.Clipping.Adaptive = &session.Adaptive{Quantile: 0.5, Rate: 2, Weight: 0.1} },
		"no rounds":       func(t *session.Terms) { t.Rounds = 0 },
		"too many rounds": func(t *session.Terms) { t.Rounds = session.MaxRounds + 1 },
	} {
		x := terms()
		change(&x)
		if err := x.Validate(); !errors.Is(err, session.ErrTerms) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := x.Append(nil); !errors.Is(err, session.ErrTerms) {
			t.Errorf("%s: written: %v", name, err)
		}
	}
}

// TestFollow: a device takes each later announcement, and finds out what cannot be of the
// chain that it saw.
func TestFollow(t *testing.T) {
	s, key, _ := world(t, terms())
	list, blobs := chain(t, s, key, 4)
	sign := func(a session.Announcement, change func(*session.Announcement)) *session.Announcement {
		change(&a)
		a.Sign(key)
		return &a
	}
	for i := range list {
		if err := s.Follow(nil, &list[i]); err != nil {
			t.Errorf("%d alone: %v", i, err)
		}
		for j := i; j < len(list); j++ {
			if err := s.Follow(&list[i], &list[j]); err != nil {
				t.Errorf("%d after %d: %v", j, i, err)
			}
		}
	}
	var old *session.OldError
	if err := s.Follow(&list[2], &list[0]); !errors.As(err, &old) || old.Seen != 102 || old.Got != 100 {
		t.Errorf("an older one: %v", err)
	}
	lies := map[string][2]*session.Announcement{
		"two models for one round": {&list[1], sign(list[1], func(a *session.Announcement) { a.Model[0] ^= 1 })},
		"two in one place":         {&list[1], sign(list[1], func(a *session.Announcement) { a.Round = 105 })},
		"two after one":            {&list[1], sign(list[1], func(a *session.Announcement) { a.Index, a.Round = 2, 105 })},
		"another past":             {&list[1], sign(list[2], func(a *session.Announcement) { a.Previous[0] ^= 1 })},
		"a round that was before":  {&list[2], sign(list[3], func(a *session.Announcement) { a.Round = 101 })},
		"one round, later":         {&list[2], sign(list[3], func(a *session.Announcement) { a.Round = 102 })},
		"no room between":          {&list[0], sign(list[3], func(a *session.Announcement) { a.Round = 102 })},
	}
	for name, pair := range lies {
		for range 2 {
			var lie *session.ContradictionError
			if err := s.Follow(pair[0], pair[1]); !errors.As(err, &lie) {
				t.Errorf("%s: %v", name, err)
			} else if err := lie.Evidence.Verify(s); err != nil {
				t.Errorf("%s: evidence: %v", name, err)
			}
			pair[0], pair[1] = pair[1], pair[0]
		}
	}
	if err := (&session.Evidence{First: list[0], Second: list[1]}).Verify(s); !errors.Is(err, session.ErrAnnouncement) {
		t.Errorf("no evidence: %v", err)
	}
	other := signed.Generate()
	for name, a := range map[string]*session.Announcement{
		"another's key":     func() *session.Announcement { a := list[1]; a.Sign(other); return &a }(),
		"another session":   sign(list[1], func(a *session.Announcement) { a.Session[0] ^= 1 }),
		"after the last":    sign(list[1], func(a *session.Announcement) { a.Index = 10 }),
		"before the first":  sign(list[0], func(a *session.Announcement) { a.Round = 99 }),
		"a model exchanged": func() *session.Announcement { a := list[1]; a.Model = list[2].Model; return &a }(),
	} {
		if err := s.Follow(&list[0], a); !errors.Is(err, session.ErrAnnouncement) {
			t.Errorf("%s: %v", name, err)
		}
		e := session.Evidence{First: list[1], Second: *a}
		if err := e.Verify(s); !errors.Is(err, session.ErrAnnouncement) {
			t.Errorf("%s as evidence: %v", name, err)
		}
	}
	if _, err := s.ReadModel(&list[1], blobs[1]); err != nil {
		t.Error(err)
	}
	var wrong *session.BlobError
	if _, err := s.ReadModel(&list[1], blobs[2]); !errors.As(err, &wrong) || wrong.Want != list[1].Model || wrong.Got != list[2].Model {
		t.Errorf("another model: %v", err)
	}
}

// TestModelsRefused: blobs under their own hash that are no model of the round.
func TestModelsRefused(t *testing.T) {
	s, key, _ := world(t, terms())
	_, blobs := chain(t, s, key, 1)
	good := func() session.Model {
		return session.Model{Session: hashOf(t, s), Round: 100, Clip: 0.5, Parameters: make([]float32, 9)}
	}
	blob := func(change func(*session.Model)) []byte {
		m := good()
		change(&m)
		b, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, b := range map[string][]byte{
		"another session": blob(func(m *session.Model) { m.Session[0] ^= 1 }),
		"another round":   blob(func(m *session.Model) { m.Round++ }),
		"another norm":    blob(func(m *session.Model) { m.Clip = 1 }),
		"another length":  blob(func(m *session.Model) { m.Parameters = m.Parameters[1:] }),
		"cut off":         blobs[0][:len(blobs[0])-1],
		"trailing":        append(bytes.Clone(blobs[0]), 0, 0, 0, 0),
		"NaN":             append(bytes.Clone(blobs[0][:len(blobs[0])-4]), 0, 0, 0xc0, 0x7f),
		"Inf":             append(bytes.Clone(blobs[0][:len(blobs[0])-4]), 0, 0, 0x80, 0xff),
		"empty":           nil,
	} {
		a := session.Announcement{Session: hashOf(t, s), Round: 100, Model: session.BlobHash(b)}
		a.Sign(key)
		if _, err := s.ReadModel(&a, b); !errors.Is(err, session.ErrModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*session.Model){
		"NaN":      func(m *session.Model) { m.Parameters[3] = float32(math.NaN()) },
		"Inf":      func(m *session.Model) { m.Parameters[3] = float32(math.Inf(-1)) },
		"no norm":  func(m *session.Model) { m.Clip = 0 },
		"nothing":  func(m *session.Model) { m.Parameters = nil },
		"too long": func(m *session.Model) { m.Parameters = make([]float32, session.MaxDimension+1) },
	} {
		m := good()
		change(&m)
		if _, err := m.Append(nil); !errors.Is(err, session.ErrModel) {
			t.Errorf("%s: written: %v", name, err)
		}
	}
}

// TestVector: what a device reports is of the recipe's norm at most, and the server reads
// the mean and the share of short updates back out of the sum.
func TestVector(t *testing.T) {
	const norm = 1.5
	for name, x := range map[string]session.Terms{"fixed": terms(), "adaptive": adaptive()} {
		clip, sum := 0.5, make([]float64, x.Entries())
		for i, length := range []float32{0.1, 0.5, 2, 0, 1e30} {
			update, v := make([]float32, x.Dimension()), make([]float64, x.Entries())
			update[i] = -length
			if err := x.Vector(v, update, clip, norm); err != nil {
				t.Fatal(err)
			}
			squares := 0.0
			for j := range v {
				squares += v[j] * v[j]
				sum[j] += v[j]
			}
			if math.Sqrt(squares) > norm*(1+1e-12) {
				t.Errorf("%s: an update of length %v makes a vector of length %v", name, length, math.Sqrt(squares))
			}
		}
		mean := make([]float64, x.Dimension())
		below, err := x.Mean(mean, sum, clip, norm, 5)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []float64{-0.1, -0.5, -0.5, 0, -0.5} {
			if math.Abs(5*mean[i]-want) > 1e-6 {
				t.Errorf("%s: entry %d of the mean is %v, want %v", name, i, mean[i], want/5)
			}
		}
		next, want := x.Clipping.NextClip(clip, below), clip
		if x.Clipping.Adaptive != nil {
			if math.Abs(below-0.6) > 1e-9 {
				t.Errorf("%v of the updates were short, want 0.6", below)
			}
			want = clip * math.Exp(-0.2*(0.6-0.5))
		}
		if math.Abs(next-want) > 1e-12 {
			t.Errorf("%s: next norm %v, want %v", name, next, want)
		}
		var shape *session.ShapeError
		if err := x.Vector(make([]float64, x.Entries()), make([]float32, 8), clip, norm); !errors.As(err, &shape) || shape.Got != 8 || shape.Want != 9 {
			t.Errorf("%s: a short update: %v", name, err)
		}
		if _, err := x.Mean(mean, sum[1:], clip, norm, 5); !errors.As(err, &shape) {
			t.Errorf("%s: a short sum: %v", name, err)
		}
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			update := make([]float32, 9)
			update[4] = float32(bad)
			var no *session.NotFiniteError
			if err := x.Vector(make([]float64, x.Entries()), update, clip, norm); !errors.As(err, &no) || no.Entry != 4 {
				t.Errorf("%s: %v: %v", name, bad, err)
			}
		}
	}
}

// FuzzMessages: what is read is written as the same bytes.
func FuzzMessages(f *testing.F) {
	for _, x := range []session.Terms{terms(), adaptive()} {
		s, key, _ := world(f, x)
		b, err := s.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		list, blobs := chain(f, s, key, 2)
		f.Add(b)
		f.Add(list[0].Append(nil))
		f.Add(list[1].Append(nil))
		f.Add(blobs[1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		same := func(what string, again []byte, err error) {
			if err != nil || !bytes.Equal(again, b) {
				t.Errorf("%s: %x became %x, %v", what, b, again, err)
			}
		}
		if x, err := session.Read(b); err == nil {
			again, err := x.Append(nil)
			same("session", again, err)
		}
		if x, err := session.ReadModel(b); err == nil {
			again, err := x.Append(nil)
			same("model", again, err)
		}
		if x, err := session.ReadAnnouncement(b); err == nil {
			same("announcement", x.Append(nil), nil)
		}
	})
}

// TestBytes: hashes are for ever.
func TestBytes(t *testing.T) {
	x := adaptive()
	hash, err := x.Hash()
	if err != nil {
		t.Fatal(err)
	}
	s := session.Session{Recipe: recipe.ID{1}, Controller: key(t), Terms: x}
	m := session.Model{Session: session.Hash{2}, Round: 7, Clip: 0.25, Parameters: []float32{1, -2}}
	blob, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := session.Announcement{Session: session.Hash{2}, Index: 1, Round: 7, Model: session.BlobHash(blob), Previous: session.Hash{3}}
	for what, c := range map[string][2]string{
		"terms":        {session.Hash(hash).String(), "5cc6aeccd6448bdeed31c4b5de34b4d28111be38530c8ecbdd43155172af2326"},
		"session":      {hashOf(t, &s).String(), "c4c82b75e993aaf567105aa8d2b9318c50056738304c55ed481929c1537ad901"},
		"model":        {a.Model.String(), "aa65c7a586006c9aceb2739fa5b43e6f689f4220a0de95aae6d55dc976e64c90"},
		"announcement": {a.Hash().String(), "6293c5971eeb3234262ed8a2aa836c266eda6333c1245d5010f6ab810379e272"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %s, want %s", what, c[0], c[1])
		}
	}
	if n := len(a.Append(nil)); n != session.AnnouncementBytes {
		t.Errorf("an announcement of %d bytes, want %d", n, session.AnnouncementBytes)
	}
	if n := x.ModelBytes(); n != len(blob)+4*(9-2) {
		t.Errorf("a model of %d bytes", n)
	}
}

func key(t *testing.T) signed.PublicKey {
	t.Helper()
	k, err := signed.ParsePublicKey("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a") // RFC 8032, test 1
	if err != nil {
		t.Fatal(err)
	}
	return k
}
