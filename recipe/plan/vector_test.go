package plan

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/vdaf/pine"
)

func vectors(people uint64, proof recipe.VectorProof) Goal {
	q, err := recipe.NewVector(10000, 1, 15, proof)
	if err != nil {
		panic(err)
	}
	return Goal{Query: q, People: people, Epsilon: 2, Delta: 1e-6}
}

// A plan for vectors has its error in units of the entries, and shows what each proof
// costs.
func TestVectors(t *testing.T) {
	p := mustMake(t, vectors(2000, 0))
	sigma := math.Sqrt(2*p.Variance.Float()) / (1 << 15)
	if want := 1.959964 * sigma; !p.Fits || math.Abs(p.Error.Each-want) > 1e-5*want || p.Error.All < 2*p.Error.Each {
		t.Errorf("fits %v, error %+v, want %v", p.Fits, p.Error, want)
	}
	if want := p.Error.Each / 2000; math.Abs(p.Error.Part-want) > 1e-9*want {
		t.Errorf("the error is %v of all there could be, want %v", p.Error.Part, want)
	}
	list := p.proofs()
	names := ""
	for _, x := range list {
		names += x.Name + " "
		if !x.Fits || x.MostReports == 0 || math.Abs(x.Ratio-float64(x.UploadBytes)/40000) > 1e-9 {
			t.Errorf("%+v", x)
		}
	}
	if names != "pine32 pine40 pine64 pine128 l2fixed16 " { // l2fixed32 has 31 fractional bits
		t.Errorf("proofs %q", names)
	}
	if list[0].UploadBytes != 58676 || list[4].UploadBytes != 1320984 { // of docs/pine.md
		t.Errorf("%+v", list)
	}
	shorter := p.projections()
	if len(shorter) != 4 || shorter[0].Numbers != 5000 || shorter[3].Numbers != 156 {
		t.Fatalf("%+v", shorter)
	}
	for i, s := range shorter {
		// Fewer bytes than before, and more lost: about the root of the part that is left
		// out.
		if i > 0 && (s.UploadBytes >= shorter[i-1].UploadBytes || s.Lost <= shorter[i-1].Lost) || s.UploadBytes >= list[0].UploadBytes ||
			math.Abs(s.Lost/math.Sqrt(1e4/float64(s.Numbers)-1e4/16384)-1) > 1e-3 {
			t.Errorf("%+v", s)
		}
	}
	if list[0].SoundnessBits < 90 {
		t.Errorf("%+v", list[0])
	}
	b, err := json.Marshal(p)
	if err != nil || !strings.Contains(string(b), `"proof":"pine40"`) {
		t.Errorf("%s, %v", b, err)
	}
	var text strings.Builder
	if err := p.WriteText(&text, 0); err != nil || !strings.Contains(text.String(), "pine32: 58676 bytes a report") ||
		!strings.Contains(text.String(), "to 5000 numbers: ") || !strings.Contains(string(b), `"lost_by_projection":`) {
		t.Errorf("%v\n%s", err, &text)
	}
}

// A proof whose reports nobody takes is shown as such; with a machine's speed the time of
// a report is shown.
func TestVectorsTooLarge(t *testing.T) {
	q, err := recipe.NewVector(1<<18, 1, 15, 0)
	if err != nil {
		t.Fatal(err)
	}
	goal := Goal{Query: q, People: 2000, Epsilon: 2, Delta: 1e-6}
	list := mustMake(t, goal).proofs()
	if last := list[len(list)-1]; last.Proof != recipe.L2Fixed16 || !last.TooLarge || last.Fits ||
		!strings.Contains(last.words(), "no leader takes reports so large") {
		t.Errorf("%+v", last)
	}
	q.Proof = recipe.L2Fixed16
	goal.Query = q
	if _, err := Make(goal); !errors.Is(err, ErrGoal) || !strings.Contains(err.Error(), "pine32 takes 1092272 bytes") {
		t.Errorf("%v", err)
	}
	g := vectors(2000, recipe.Pine40)
	if list = mustMake(t, g).proofs(); list[0].DeviceMS != 0 || list[0].TooLarge {
		t.Errorf("%+v", list)
	}
	now := time.Duration(0)
	if g.Speed, err = pine.Calibrate(func() time.Duration { now += time.Millisecond; return now }); err != nil {
		t.Fatal(err)
	}
	if list = mustMake(t, g).proofs(); math.Abs(list[0].DeviceMS-1) > 1e-9 || math.Abs(list[0].ServerMS-1) > 1e-9 ||
		!strings.HasSuffix(list[0].words(), "; 1 ms of a device and 1 ms of each server, as measured") {
		t.Errorf("%+v: %s", list, list[0].words())
	}
}

// 2^16 people have no room in Field32 with 15 bits; the recipe that is written has the
// smallest field that does.
func TestVectorsWithoutRoom(t *testing.T) {
	p := mustMake(t, vectors(1<<16, 0))
	if list := p.proofs(); list[0].Fits || !list[1].Fits {
		t.Errorf("%+v", list)
	}
	r, err := p.Recipe(account.Options{Name: "n", Leader: "https://leader.example/", Helper: "https://helper.example/"})
	if err != nil {
		t.Fatal(err)
	}
	if q := r.Query.(recipe.Vector); q.Proof != recipe.Pine40 {
		t.Errorf("the recipe has %v", q.Proof)
	}
	if list := mustMake(t, vectors(1000, recipe.Pine64)).proofs(); len(list) != 1 || list[0].Proof != recipe.Pine64 {
		t.Errorf("%+v", list)
	}
	if mustMake(t, Goal{Query: recipe.Count{}, People: 1000, Epsilon: 1}).proofs() != nil {
		t.Error("a count has proofs to choose from")
	}
}
