package lab

import (
	"fmt"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// Health asks everybody for their visits under the health that they rate theirs: vectors
// that add up to a bound, which each device proves (Prio3L1BoundSum). Neither the number
// nor the place where it stands shows.
const Health = "health"

// mostVisits is what the visits of one person are cut to, and the bound; 205 of the
// 20,190 rows have more.
const mostVisits = 20

// An answer of a device is coded as place*(mostVisits+1) + visits.
func healthAnswer(place, visits int) int { return place*(mostVisits+1) + min(visits, mostVisits) }

// healthVector is the vector of an answer.
func healthVector(answer int) []uint64 {
	v := make([]uint64, len(randhie.HealthLabels))
	v[answer/(mostVisits+1)] = uint64(answer % (mostVisits + 1))
	return v
}

// askHealth takes down what each of the first rows would answer.
func (r *run) askHealth(rows int) error {
	visits, health, err := randhie.Health()
	if err != nil {
		return err
	}
	r.report.Labels = randhie.HealthLabels
	r.report.Truth = make([]int64, len(r.report.Labels))
	for i := range rows {
		a := healthAnswer(health[i], visits[i])
		r.values = append(r.values, a)
		for place, n := range healthVector(a) {
			r.report.Truth[place] += int64(n)
		}
	}
	r.value = func(a int) client.Value { return client.Vector(healthVector(a)) }
	r.report.words = chartWords{
		title:  "Visits to a doctor in a year, by how people rate their health",
		x:      "health, as people rate theirs",
		y:      "visits",
		answer: fmt.Sprintf("at most %d visits, each", mostVisits),
	}
	return nil
}

// newHealthRecipe makes the recipe.
func (r *run) newHealthRecipe(a *deploy.Addresses) (*recipe.Recipe, error) {
	o, err := r.plainOptions(a)
	if err != nil {
		return nil, err
	}
	o.Name = "Visits to a doctor by health"
	o.Description = fmt.Sprintf("How many times did you see a doctor in the past year, %d at most, and do you rate your health excellent, good, fair or poor?",
		mostVisits)
	o.Query = recipe.L1BoundSum{Length: uint32(len(randhie.HealthLabels)), Max: mostVisits}
	return account.New(o)
}

// healthForger shards what a forger asks for as an answer of the lab that asks for health.
type healthForger struct{ *prio3.L1BoundSum }

func newHealthForger(c dap.L1BoundSumConfig) (vdaf.Client[int], error) {
	v, err := prio3.NewL1BoundSum(2, int(c.Length), c.MaxValue, int(c.ChunkLength))
	return healthForger{v}, err
}

// Shard implements [vdaf.Client].
func (f healthForger) Shard(ctx []byte, n int, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	return f.L1BoundSum.Shard(ctx, healthVector(healthAnswer(n%len(randhie.HealthLabels), n)), nonce)
}
