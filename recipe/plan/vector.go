package plan

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/projection"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
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
	// UploadBytes of one report without DAP's framing, about 200 bytes; and over 4 bytes
	// an entry.
	UploadBytes int     `json:"upload_bytes"`
	Ratio       float64 `json:"upload_over_plaintext"`
	// SoundnessBits is -log2 of the odds that one false report is accepted, the worst of
	// pine.Soundness's parts; 0 where it is not stated.
	SoundnessBits float64 `json:"soundness_bits,omitempty"`
	// TooLarge: no leader takes reports so large; see [recipe.TooLargeError].
	TooLarge bool `json:"too_large,omitempty"`
	// DeviceMS and ServerMS are milliseconds of one report, of a device and of the slower
	// server, by Goal.Speed; 0 without it and where it does not know the proof. Sealing
	// and sending are left out.
	DeviceMS float64 `json:"device_ms,omitempty"`
	ServerMS float64 `json:"server_ms,omitempty"`
}

// A Shorter is a projection that would be sent in place of vectors, and what it costs and
// loses.
type Shorter struct {
	Numbers uint32 `json:"numbers"` // that are sent
	// UploadBytes and Ratio, to 4 bytes an entry of the vector, are as in [Proof], by the
	// smallest proof that fits.
	UploadBytes int     `json:"upload_bytes"`
	Ratio       float64 `json:"upload_over_plaintext"`
	// Lost is the expected distance of the mean from the true one over its length, beside
	// the noise.
	Lost float64 `json:"lost_by_projection"`
}

// hasRoomForNoise says whether the query's proof leaves room for noise of the devices' own.
func (g *Goal) hasRoomForNoise() bool {
	q, ok := g.Query.(recipe.Vector)
	return ok && q.Proof != recipe.L2Fixed16 && q.Proof != recipe.L2Fixed32
}

// leastProjection is the shortest projection that is offered: errors of shorter ones
// stray far from what is expected.
const leastProjection = 64

// projections are ways to send less, by halves, quarters, sixteenths and 64ths; nil for
// what is no vector or has no proof that fits.
func (p *Plan) projections() []Shorter {
	q, ok := p.Goal.Query.(recipe.Vector)
	if !ok {
		return nil
	}
	for _, proof := range p.proofs() {
		if proof.Fits {
			q.Proof = proof.Proof
			break
		}
	}
	var list []Shorter
	for _, part := range []uint32{2, 4, 16, 64} {
		c := q
		c.Dimension = q.Dimension / part
		if q.Proof == 0 || c.Dimension < leastProjection {
			break
		}
		if p.Goal.Randomizer == Noisy {
			bound, err := pine.NoisyBound(q.Bound, int(c.Dimension), p.sigma(), recipe.TailBits)
			if err != nil {
				break
			}
			c.Bound = bound
		}
		size, _, err := upload(c)
		if err != nil {
			break
		}
		list = append(list, Shorter{
			Numbers: c.Dimension, UploadBytes: size, Ratio: float64(size) / (4 * float64(q.Dimension)),
			Lost: projection.Error(int(q.Dimension), int(c.Dimension)),
		})
	}
	return list
}

func (s Shorter) words() string {
	return fmt.Sprintf("to %d numbers: %d bytes a report; beside the noise the mean is %.3g times its length off", s.Numbers, s.UploadBytes, s.Lost)
}

// upload is the size of a report's shares in bytes, and the soundness of its proof where
// that is stated.
func upload(q recipe.Vector) (size int, soundness float64, err error) {
	switch config := q.VDAFConfig().(type) {
	case dap.PineConfig:
		cost, err := pine.Plan(config.PineParams())
		if err != nil {
			return 0, 0, err
		}
		s := cost.Soundness
		return cost.Upload, min(s.Tests, s.Main, s.Norm), nil
	case dap.L2VecConfig:
		v, err := prio3.NewL2Vec(2, int(config.Length), config.EntryBits())
		if err != nil {
			return 0, 0, err
		}
		s := v.Sizes()
		return s.Public + s.LeaderInput + s.HelperInput, 0, nil
	}
	panic("plan: internal error: a vector of another kind")
}

// proofs are the ways to prove the norm that the query leaves open, or the one that it
// names; nil for other queries. Proofs that do not hold for the bound are left out.
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
		if p.Goal.Randomizer == Noisy {
			if c.Bound = p.Proved.Bound; proof == recipe.L2Fixed16 || proof == recipe.L2Fixed32 {
				continue
			}
		}
		o := account.Options{Name: "plan", Query: c, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: recipe.MinBatchFloor,
			Oversized: true}
		r, err := account.New(o)
		if err != nil {
			continue
		}
		if p.Goal.Randomizer == Servers && p.Variance.Den != 0 {
			r.Noise = p.noise()
		}
		most, _ := r.MostReports()
		out := Proof{Proof: proof, Name: proof.String(), MostReports: most, Fits: p.Goal.People <= most}
		if out.UploadBytes, out.SoundnessBits, err = upload(c); err != nil {
			continue
		}
		out.Ratio = float64(out.UploadBytes) / (4 * float64(q.Dimension))
		if tooLarge := new(recipe.TooLargeError); errors.As(sizeError(r), &tooLarge) {
			out.TooLarge, out.Fits = true, false
		}
		if config, ok := c.VDAFConfig().(dap.PineConfig); ok && p.Goal.Speed != nil {
			cost, err := p.Goal.Speed.Plan(config.PineParams())
			if err != nil {
				continue
			}
			out.DeviceMS, out.ServerMS = 1000*cost.ClientSeconds, 1000*max(cost.LeaderSeconds, cost.HelperSeconds)
		}
		list = append(list, out)
	}
	return list
}

func sizeError(r *recipe.Recipe) error {
	_, err := r.UploadBytes()
	return err
}

func (p Proof) words() string {
	text := fmt.Sprintf("%s: %d bytes a report, %.2f times 4 bytes an entry; room for %d reports", p.Name, p.UploadBytes, p.Ratio, p.MostReports)
	switch {
	case p.TooLarge:
		text += "; no leader takes reports so large"
	case !p.Fits:
		text += ", which are too few"
	}
	if p.DeviceMS > 0 {
		text += fmt.Sprintf("; %s ms of a device and %s ms of each server, as measured", brief(p.DeviceMS), brief(p.ServerMS))
	}
	return text
}

// brief writes a positive number to two digits at least.
func brief(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2g", x)
}
