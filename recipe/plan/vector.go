package plan

import (
	"fmt"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/vdaf/pine"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// A Proof is one way to prove the norm of a vector, and what it costs.
type Proof struct {
	Proof recipe.VectorProof `json:"-"`
	Name  string             `json:"proof"`
	// Fits: sums of all people and the noise have room in its field.
	Fits bool `json:"fits"`
	// MostReports is how many reports a sum has room for.
	MostReports uint64 `json:"most_reports"`
	// UploadBytes of one report without DAP's framing, about 200 bytes; and over 4 bytes an entry.
	UploadBytes int     `json:"upload_bytes"`
	Ratio       float64 `json:"upload_over_plaintext"`
	// SoundnessBits is -log2 of the odds that one false report is accepted, the worst of pine.Soundness's parts; 0 where it is not
	// stated.
	SoundnessBits float64 `json:"soundness_bits,omitempty"`
}

// proofs are the ways to prove the norm that the query leaves open, or the one that it names; nil for other queries. Proofs that
// do not hold for the bound are left out.
func (p *Plan) proofs() []Proof {
	q, ok := p.Goal.Query.(recipe.Vector)
	if !ok {
		return nil
	}
	var list []Proof
	for proof := recipe.Pine32; proof <= recipe.L2Fixed32; proof++ {
		if q.Proof != 0 && q.Proof != proof {
			continue
		}
		c := q
		c.Proof, c.Rounding = proof, 0
		o := recipe.Options{Name: "plan", Query: c, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: recipe.MinBatchFloor}
		r, err := recipe.New(o)
		if err != nil {
			continue
		}
		if p.Variance.Den != 0 {
			r.Noise = recipe.DiscreteGaussian{Variance: p.Variance, Share: recipe.DrawsAll}
		}
		most, _ := r.MostReports()
		out := Proof{Proof: proof, Name: proof.String(), MostReports: most, Fits: p.Goal.People <= most}
		switch config := c.VDAFConfig().(type) {
		case dap.PineConfig:
			cost, err := pine.Plan(config.PineParams())
			if err != nil {
				continue
			}
			s := cost.Soundness
			out.UploadBytes, out.SoundnessBits = cost.Upload, min(s.Tests, s.Main, s.Norm)
		case dap.L2VecConfig:
			v, err := prio3.NewL2Vec(2, int(config.Length), config.EntryBits())
			if err != nil {
				continue
			}
			s := v.Sizes()
			out.UploadBytes = s.Public + s.LeaderInput + s.HelperInput
		}
		out.Ratio = float64(out.UploadBytes) / (4 * float64(q.Dimension))
		list = append(list, out)
	}
	return list
}

func (p Proof) words() string {
	text := fmt.Sprintf("%s: %d bytes a report, %.2f times 4 bytes an entry; room for %d reports", p.Name, p.UploadBytes, p.Ratio, p.MostReports)
	if !p.Fits {
		text += ", which are too few"
	}
	return text
}
