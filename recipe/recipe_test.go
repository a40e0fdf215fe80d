package recipe_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/release"
)

func doctor() *Recipe {
	return &Recipe{
		Name:          "Doctor visits",
		Description:   "How often people saw a doctor in a year.",
		Query:         Histogram{Length: 21, Chunk: 7},
		Randomizer:    NoRandomizer{},
		Participation: Always{},
		Path:          TwoServer{Leader: "https://leader.example/", Helper: "https://helper.example/a", BatchMode: dap.TimeInterval},
		Noise:         DiscreteGaussian{Variance: Rational{Num: 50, Den: 1}, Share: DrawsAll},
		Claim: ApproxDP{
			Epsilon: Decimal{2, 0}, Delta: Decimal{1, 9}, Neighbours: release.ReplaceOne, HonestServers: 1, Rounds: 1,
		},
		MinBatch:      1000,
		TimePrecision: 3600,
		Window:        Between{Start: 480000, End: 480024},
		Population:    &Population{Statement: "Everyone in the survey.", Expected: 20190},
	}
}

// variants covers every choice and every shape of the bytes.
func variants() map[string]*Recipe {
	list := map[string]*Recipe{"doctor": doctor()}
	with := func(name string, change func(*Recipe)) {
		r := doctor()
		change(r)
		list[name] = r
	}
	with("labels", func(r *Recipe) {
		r.Query, r.Labels = Histogram{Length: 3, Chunk: 2}, []string{"walk", "bike", "bus, or tram"}
	})
	with("count", func(r *Recipe) { r.Query = Count{} })
	with("sum", func(r *Recipe) { r.Query = Sum{Max: 1} })
	with("mean", func(r *Recipe) { r.Query = Mean{Max: 1} })
	with("multihot", func(r *Recipe) { r.Query = Multihot{Length: 30, MaxWeight: 2, Chunk: 6} })
	with("sumvec", func(r *Recipe) { r.Query = SumVec{Length: 3, Max: 1, Chunk: 3} })
	with("quantiles", func(r *Recipe) {
		r.Query, r.Noise = Quantiles{Min: 3, Max: 20, Width: 2, Branching: 3, Chunk: 5}, DiscreteGaussian{Variance: Rational{Num: 120, Den: 1}, Share: DrawsAll}
	})
	with("group sums", func(r *Recipe) {
		r.Query, r.Noise = GroupSums{Min: -4, Max: 20, Groups: 3, Chunk: 5}, DiscreteLaplace{Scale: Rational{Num: 60, Den: 1}}
		r.Labels = []string{"walk", "bike", "bus, or tram"}
	})
	with("hierarchy", func(r *Recipe) {
		r.Query = Hierarchy{Places: []TreePlace{{1, "a", false}, {2, "b", false}, {2, "c", true}, {1, "d", false}, {2, "e", false}, {2, "f", false}}, Floor: 7, Chunk: 5}
		r.Noise = DiscreteGaussian{Variance: Rational{Num: 160, Den: 1}, Share: DrawsAll}
	})
	with("hitters", func(r *Recipe) {
		r.Query = HeavyHitters{"abc", 4, 2, 2, 30, 9, 5}
		r.Noise = DiscreteGaussian{Variance: Rational{Num: 240, Den: 1}, Share: DrawsAll}
	})
	with("distinct", func(r *Recipe) {
		r.Query, r.Noise = Distinct{Keyed{30, 9, 5}}, NoNoise{}
		r.Claim = NoClaim{}
	})
	with("norm", func(r *Recipe) { r.Query = Norm{Keyed{30, 9, 5}} })
	with("l1 bound", func(r *Recipe) {
		r.Query, r.Noise = L1BoundSum{Length: 12, Max: 10, Chunk: 7}, DiscreteGaussian{Variance: Rational{Num: 2500, Den: 1}, Share: DrawsAll}
	})
	with("l1 bound with laplace", func(r *Recipe) {
		r.Query, r.Noise = L1BoundSum{Length: 12, Max: 10, Chunk: 7}, DiscreteLaplace{Scale: Rational{Num: 15, Den: 1}}
	})
	with("half", func(r *Recipe) {
		r.Noise = DiscreteGaussian{Variance: Rational{Num: 201, Den: 2}, Share: DrawsHalf}
	})
	with("both honest", func(r *Recipe) {
		r.Noise = DiscreteGaussian{Variance: Rational{Num: 100, Den: 1}, Share: DrawsHalf}
		c := r.Claim.(ApproxDP)
		c.HonestServers = 2
		r.Claim = c
	})
	with("laplace", func(r *Recipe) { r.Noise = DiscreteLaplace{Scale: Rational{Num: 5, Den: 2}} })
	with("exact", func(r *Recipe) { r.Noise, r.Claim = NoNoise{}, NoClaim{} })
	with("no window", func(r *Recipe) { r.Window = NoWindow{} })
	with("no population", func(r *Recipe) { r.Population = nil })
	with("leader selected", func(r *Recipe) {
		p := r.Path.(TwoServer)
		p.BatchMode = dap.LeaderSelected
		r.Path = p
	})
	with("two rounds", func(r *Recipe) {
		c := r.Claim.(ApproxDP)
		c.Rounds, c.Epsilon = 2, Decimal{3, 0}
		r.Claim = c
	})
	for name, r := range sampledVariants() {
		list[name] = r
	}
	for name, r := range vectorVariants() {
		list[name] = r
	}
	with("correlated", func(r *Recipe) {
		s, err := correlated.SquareRoot(4, 8)
		if err != nil {
			panic(err)
		}
		r.Noise = CorrelatedGaussian{Variance: Rational{Num: 400, Den: 1}, Series: correlated.Series{Strategy: s, Separation: 5, Rounds: 24}}
	})
	list["training"] = training()
	with("bare description", func(r *Recipe) { r.Description = "" })
	with("two lines", func(r *Recipe) { r.Description = "One.\nTwo: \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645." })
	return list
}

func mustAppend(t testing.TB, r *Recipe) []byte {
	t.Helper()
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The bytes of a recipe are for ever. Each line is one field, in the order of
// [Recipe.Append].
var golden = []string{
	"01",                                // version
	"0d" + "446f63746f7220766973697473", // name
	"0028" + hexOf("How often people saw a doctor in a year."),
	"04" + "0008" + "00000015" + "00000007", // histogram of 21, chunk 7
	"01" + "0000",                           // no randomizer
	"01" + "0000",                           // always
	"01" + "0034" + "0017" + hexOf("https://leader.example/") + "0018" + hexOf("https://helper.example/a") + "01",
	"02" + "0011" + "0000000000000032" + "0000000000000001" + "01", // discrete Gaussian, 50/1, each all
	"02" + "0018" + "0000000000000002" + "00" + "0000000000000001" + "09" + "02" + "01" + "00000001",
	"00000000000003e8", // min batch
	"0000000000000e10", // time precision
	"02" + "0010" + "0000000000075300" + "0000000000075318",
	"0025" + "0001" + "0021" + "0017" + hexOf("Everyone in the survey.") + "0000000000004ede",
}

func hexOf(s string) string { return hex.EncodeToString([]byte(s)) }

func TestGoldenBytes(t *testing.T) {
	want := strings.Join(golden, "")
	if got := hex.EncodeToString(mustAppend(t, doctor())); got != want {
		t.Errorf("the bytes of a recipe changed:\n got %s\nwant %s", got, want)
	}
	id, err := doctor().ID()
	if err != nil {
		t.Fatal(err)
	}
	if want := goldenID; id.String() != want {
		t.Errorf("id is %s, want %s", id, want)
	}
	task, err := doctor().Task()
	if err != nil {
		t.Fatal(err)
	}
	if got := task.TaskID().Base64(); got != goldenTask {
		t.Errorf("task id is %s, want %s", got, goldenTask)
	}
}

func TestRoundTrip(t *testing.T) {
	ids := map[ID]string{}
	for name, r := range variants() {
		t.Run(name, func(t *testing.T) {
			if err := account.Validate(r); err != nil {
				t.Fatalf("a recipe that should hold is refused: %v", err)
			}
			b := mustAppend(t, r)
			got, err := Read(b)
			if err != nil {
				t.Fatal(err)
			}
			if again := mustAppend(t, got); !bytes.Equal(again, b) {
				t.Errorf("read and written again:\n got %x\nwant %x", again, b)
			}
			id, err := r.ID()
			if err != nil {
				t.Fatal(err)
			}
			if other, ok := ids[id]; ok {
				t.Errorf("%s and %s have one id", name, other)
			}
			ids[id] = name
			if back, err := ParseID(id.String()); err != nil || back != id {
				t.Errorf("ParseID(%s) = %v, %v", id, back, err)
			}
		})
	}
}

func TestAppendKeepsPrefix(t *testing.T) {
	b, err := doctor().Append([]byte("before"))
	if err != nil || string(b[:6]) != "before" || !bytes.Equal(b[6:], mustAppend(t, doctor())) {
		t.Errorf("Append to a prefix: %x, %v", b, err)
	}
}

func TestReadRefuses(t *testing.T) {
	whole := mustAppend(t, doctor())
	for n := range whole {
		if _, err := Read(whole[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("cut to %d bytes: %v, want ErrMalformed", n, err)
		}
	}
	replace := func(field int, with string) []byte {
		lines := append([]string(nil), golden...)
		lines[field] = with
		b, err := hex.DecodeString(strings.Join(lines, ""))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const claim = "02" + "0018"
	for _, c := range []struct {
		name  string
		bytes []byte
	}{
		{"trailing byte", append(bytes.Clone(whole), 0)},
		{"longer than MaxSize", append(bytes.Clone(whole), make([]byte, MaxSize)...)},
		{"config with trailing byte", replace(3, "040009"+"00000015"+"00000007"+"00")},
		{"config of a choice without one", replace(4, "010001"+"00")},
		{"variance not in lowest terms", replace(7, "020011"+"0000000000000064"+"0000000000000002"+"01")},
		{"variance of zero", replace(7, "020011"+"0000000000000000"+"0000000000000001"+"01")},
		{"variance over zero", replace(7, "020011"+"0000000000000001"+"0000000000000000"+"01")},
		{"epsilon not in its shortest form", replace(8, claim+"0000000000000014"+"01"+"0000000000000001"+"09"+"02"+"01"+"00000001")},
		{"delta with too many places", replace(8, claim+"0000000000000002"+"00"+"0000000000000001"+"29"+"02"+"01"+"00000001")},
		{"extension with trailing byte", replace(12, "000f"+"0001"+"000b"+"0000"+"0000000000004ede"+"00")},
		{"extension twice", replace(12, "001c"+strings.Repeat("0001"+"000a"+"0000"+"0000000000004ede", 2))},
		{"half an extension", replace(12, "0003"+"000100")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Read(c.bytes); !errors.Is(err, ErrMalformed) {
				t.Errorf("%v, want ErrMalformed", err)
			}
		})
	}
	for _, c := range []struct {
		bytes []byte
		want  UnknownError
		text  string
	}{
		{replace(0, "02"), UnknownError{"version", 2}, "does not know version 2"},
		{replace(3, "000000"), UnknownError{"query", 0}, "does not know query 0"},
		{replace(3, "0f0000"), UnknownError{"query", 15}, "does not know query 15"},
		{replace(4, "090000"), UnknownError{"randomizer", 9}, "does not know randomizer 9"},
		{replace(5, "090000"), UnknownError{"participation", 9}, "does not know participation 9"},
		{replace(6, "040000"), UnknownError{"path", 4}, "does not know path 4"},
		{replace(7, "ff0000"), UnknownError{"noise", 255}, "does not know noise 255"},
		{replace(7, "020011"+"0000000000000032"+"0000000000000001"+"03"), UnknownError{"noise-share", 3}, "noise-share 3"},
		{replace(8, "090000"), UnknownError{"claim", 9}, "claim 9"},
		{replace(8, claim+"0000000000000002"+"00"+"0000000000000001"+"09"+"04"+"01"+"00000001"),
			UnknownError{"neighbours", 4}, "neighbours 4"},
		{replace(11, "030000"), UnknownError{"window", 3}, "window 3"},
		{replace(12, "0004"+"0009"+"0000"), UnknownError{"extension", 9}, "extension 9 (attestation)"},
		{replace(12, "0006"+"0007"+"0002"+"0020"), UnknownError{"kem", 0x20}, "kem 32"},
		{replace(12, "0008"+"0002"+"0004"+"0002"+"8001"), UnknownError{"attribute", 0x8001}, "attribute 32769 (device-id)"},
	} {
		_, err := Read(c.bytes)
		var unknown *UnknownError
		if !errors.As(err, &unknown) || *unknown != c.want || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want %q", err, c.text)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	for name, change := range map[string]func(*Recipe){
		"missing query":      func(r *Recipe) { r.Query = nil },
		"missing window":     func(r *Recipe) { r.Window = nil },
		"long name":          func(r *Recipe) { r.Name = strings.Repeat("a", 256) },
		"long description":   func(r *Recipe) { r.Description = strings.Repeat("a", 1<<16) },
		"longer than any":    func(r *Recipe) { r.Description = strings.Repeat("a", 1<<16-1) },
		"unreduced variance": func(r *Recipe) { r.Noise = DiscreteGaussian{Variance: Rational{Num: 2, Den: 2}} },
		"loose decimal":      func(r *Recipe) { r.Claim = ApproxDP{Epsilon: Decimal{10, 1}} },
	} {
		r := doctor()
		change(r)
		if _, err := r.Append(nil); err == nil {
			t.Errorf("%s: written", name)
		}
		if _, err := r.ID(); err == nil {
			t.Errorf("%s: has an id", name)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, all := range []map[string]*Recipe{variants(), messageVariants()} {
		if len(all) == 0 {
			f.Fatal("no seeds")
		}
		for _, r := range all {
			f.Add(mustAppend(f, r))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Read(b)
		if err != nil {
			var unknown *UnknownError
			if !errors.Is(err, ErrMalformed) && !errors.As(err, &unknown) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := r.Append(nil)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("a second encoding (%v):\n read %x\nwrote %x", err, b, again)
		}
		// Validation takes whatever reads; the accountant may take long over odd but
		// valid settings.
		r.Apart()
	})
}

func TestTask(t *testing.T) {
	for name, r := range variants() {
		task, err := r.Task()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		id, _ := r.ID()
		p := r.Path.(TwoServer)
		if !bytes.Equal(task.TaskInfo, id[:]) || string(task.Leader) != p.Leader || string(task.Helper) != p.Helper ||
			task.TimePrecision != r.TimePrecision || task.MinBatchSize != r.Threshold() || task.BatchMode != p.BatchMode {
			t.Errorf("%s: task %+v does not say what the recipe says", name, task)
		}
		config, err := dap.ReadVDAFConfig(task.VDAFType, task.VDAFConfig)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := uint32(4)
		switch q := r.Query.(type) {
		case Vector:
			want = q.VDAFConfig().Type() // held by TestVectorTask
		case Count:
			want = 1
		case Sum, Mean:
			want = 2
		case SumVec:
			want = 3
		case Multihot, Quantiles, Hierarchy, HeavyHitters, Distinct, Norm:
			want = 5
		case L1BoundSum, GroupSums:
			want = 7
		}
		if config.Type() != want {
			t.Errorf("%s: VDAF type %d, want %d", name, config.Type(), want)
		}
		iv, bounded := task.Interval()
		if w, ok := r.Window.(Between); ok != bounded || ok && (iv.Start != w.Start || iv.Start+dap.Time(iv.Duration) != w.End) {
			t.Errorf("%s: task interval %v, %v", name, iv, bounded)
		}
	}
}

func TestDescribe(t *testing.T) {
	for name, r := range variants() {
		var b strings.Builder
		if err := describe(r, &b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range []string{
			r.Name, "leader: ", "helper: ", "collector: ", fmt.Sprintf("fewer than %d reports", r.Threshold()), "Otherwise - if",
			"the leader and the helper put their shares together: ",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in:\n%s", name, want, b.String())
			}
		}
		exact := strings.Contains(text, "none by differential privacy")
		if exact != r.Exact() {
			t.Errorf("%s: says that there is no privacy: %v", name, exact)
		}
		for _, line := range strings.Split(b.String(), "\n") {
			if len([]rune(line)) > 110 {
				t.Errorf("%s: line of %d characters", name, len([]rune(line)))
			}
		}
	}
	r := doctor()
	c := r.Claim.(ApproxDP)
	c.Epsilon = Decimal{1, 1}
	r.Claim = c
	var b strings.Builder
	if err := describe(r, &b); err != nil || !strings.Contains(b.String(), "REFUSE") {
		t.Errorf("a false claim is described without a warning (%v):\n%s", err, b.String())
	}
}

func TestJSON(t *testing.T) {
	for name, r := range variants() {
		b, err := marshal(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got struct {
			ID     string
			TaskID string `json:"task_id"`
			Query  struct {
				Type   string
				Params map[string]any
			}
			Guarantee struct {
				Epsilon   *float64
				Delta     float64
				Fallbacks []struct {
					When string
					Loss Loss
				}
			}
		}
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		id, _ := r.ID()
		if got.ID != id.String() || len(got.TaskID) != 43 || len(got.Guarantee.Fallbacks) == 0 {
			t.Errorf("%s: %s", name, b)
		}
		if exact := got.Guarantee.Epsilon == nil; exact != r.Exact() {
			t.Errorf("%s: epsilon is null: %v", name, exact)
		}
		last := got.Guarantee.Fallbacks[len(got.Guarantee.Fallbacks)-1]
		if blurred := r.Randomized(); (last.Loss != NoPrivacy) != blurred {
			t.Errorf("%s: collusion leaves %v", name, last.Loss)
		}
	}
}

// Computed by another program from the golden bytes and the formulas.
const (
	goldenID   = "e3196d745fdb4478421a66213aac653b9de8146f58cb507d2ed97300b52069e6"
	goldenTask = "i_dq0SyUWbuIN77iNzk_aCItgAM-jnPdGBlkPHFTXbI"
)
