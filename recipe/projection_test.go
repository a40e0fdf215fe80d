package recipe_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dp/projection"
)

func projected() *Recipe {
	r := vectorVariants()["vector pine32"]
	r.Projection = &Projection{Entries: 5000, Seed: [32]byte{1, 31: 9}}
	return r
}

// The bytes of the extension are for ever; a recipe without one is as it was.
func TestProjectionBytes(t *testing.T) {
	r := projected()
	b := mustAppend(t, r)
	const want = "000d" + "0024" + "00001388" + "01" + "000000000000000000000000000000000000000000000000000000000000" + "09"
	if !strings.HasSuffix(hex.EncodeToString(b), want) {
		t.Errorf("%x does not end in %s", b, want)
	}
	back, err := Read(b)
	if err != nil || *back.Projection != *r.Projection || !bytes.Equal(mustAppend(t, back), b) {
		t.Errorf("%+v, %v", back, err)
	}
	short := bytes.Replace(b, []byte{0, 13, 0, 36}, []byte{0, 13, 0, 35}, 1)
	if _, err := Read(short[:len(short)-1]); !errors.Is(err, ErrMalformed) {
		t.Errorf("a seed of 31 bytes: %v", err)
	}
	p, err := r.Projection.Map(r.Query.(Vector))
	if err != nil || p.From() != 5000 || p.To() != 1000 || r.Entries() != 5000 || r.Given().(Vector).Dimension != 5000 || r.Query.Aggregates() != 1000 {
		t.Errorf("%v, %v", p, err)
	}
	if plain := vectorVariants()["vector pine32"]; plain.Entries() != 1000 || plain.Given() != plain.Query {
		t.Error("a vector that is sent whole changed")
	}
}

func TestProjectionRefused(t *testing.T) {
	if err := projected().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(r *Recipe)
		field  string
	}{
		"of a count":   {func(r *Recipe) { r.Query = Count{} }, "projection"},
		"of nothing":   {func(r *Recipe) { r.Projection.Entries = 0 }, "projection.entries"},
		"of too many":  {func(r *Recipe) { r.Projection.Entries = MaxElements + 1 }, "projection.entries"},
		"to as many":   {func(r *Recipe) { r.Projection.Entries = 1000 }, "query.dimension"},
		"without seed": {func(r *Recipe) { r.Projection.Seed = [32]byte{} }, "projection.seed"},
	} {
		r := projected()
		c.change(r)
		var invalid *InvalidError
		if err := account.Validate(r); !errors.As(err, &invalid) || invalid.Field != c.field {
			t.Errorf("%s: %v, want one about %s", name, err, c.field)
		}
	}
}

// A projection changes what is sent and how far off the mean is, not the noise, and no
// guarantee.
func TestProjectionForecast(t *testing.T) {
	o := vectorOptions(mustVector(t, 1000, 1, 10, 0))
	whole, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Projection = &Projection{Entries: 5000, Seed: [32]byte{7}}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g1, _ := account.Guarantee(whole)
	g2, _ := account.Guarantee(r)
	if whole.Noise != r.Noise || g1.Loss != g2.Loss {
		t.Errorf("noise %v and %v, loss %v and %v", whole.Noise, r.Noise, g1.Loss, g2.Loss)
	}
	f, ok := r.Forecast(2000)
	sigma := math.Sqrt(2*r.Noise.(DiscreteGaussian).Variance.Float()) / 1024
	if !ok || math.Abs(f.Noise-sigma*math.Sqrt(5000)/2000) > 1e-12 || f.Lost != projection.Error(5000, 1000) {
		t.Errorf("%+v", f)
	}
	if got, want := f.Of(3), math.Sqrt(f.Noise*f.Noise+9*f.Lost*f.Lost); math.Abs(got-want) > 1e-12 {
		t.Errorf("the error of a mean of length 3 is %v, want %v", got, want)
	}
	if f, ok := whole.Forecast(2000); !ok || f.Lost != 0 || math.Abs(f.Noise-sigma*math.Sqrt(1000)/2000) > 1e-12 {
		t.Errorf("%+v", f)
	}
	noisy := vectorVariants()["vector with noise"]
	noisy.Projection = &Projection{Entries: 4000, Seed: [32]byte{7}}
	if err := account.Validate(noisy); err != nil {
		t.Error(err)
	}
	// Devices' own noise, 35001/2 in each of 1,500 vectors.
	if f, ok := noisy.Forecast(1500); !ok || math.Abs(f.Noise*1024-math.Sqrt(4000*35001./2/1500)) > 1e-9 {
		t.Errorf("%+v", f)
	}
	if _, ok := doctor().Forecast(10); ok {
		t.Error("a histogram has the forecast of a vector")
	}
	var text strings.Builder
	if err := describe(r, &text); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"a vector of 5000 numbers", "estimated from the 1000 numbers", "times its own length for the projection", "a report has about"} {
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), s) {
			t.Errorf("%q is not in\n%s", s, &text)
		}
	}
	b, err := marshal(r)
	var back struct {
		Projection struct {
			Entries uint32
			Seed    string
		}
		Forecast struct {
			Reports uint64
			Noise   float64
			Lost    float64 `json:"lost_by_projection"`
		}
	}
	if err != nil || json.Unmarshal(b, &back) != nil || back.Projection.Entries != 5000 || len(back.Projection.Seed) != 64 ||
		back.Forecast.Reports != 1000 || back.Forecast.Lost != f.Lost || math.Abs(back.Forecast.Noise-2*f.Noise) > 1e-12 {
		t.Errorf("%s, %v", b, err)
	}
}
