package lab

import (
	"fmt"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
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

// askHealth takes down what each row would answer.
func (h *histogram) askHealth() error {
	visits, ratings, err := randhie.Health()
	if err != nil {
		return err
	}
	h.found.Labels = randhie.HealthLabels
	h.found.Truth = make([]int64, len(h.found.Labels))
	for i := range h.o.Rows {
		a := healthAnswer(ratings[i], visits[i])
		h.values = append(h.values, a)
		for place, n := range healthVector(a) {
			h.found.Truth[place] += int64(n)
		}
	}
	h.value = func(a int) client.Value { return client.Vector(healthVector(a)) }
	h.query = healthRecipe
	h.found.words = chartWords{
		title:  "Visits to a doctor in a year, by how people rate their health",
		x:      "health, as people rate theirs",
		y:      "visits",
		answer: fmt.Sprintf("at most %d visits, each", mostVisits),
	}
	return nil
}

// healthRecipe asks for visits under a rating.
func healthRecipe(o *account.Options) {
	o.Name = "Visits to a doctor by health"
	o.Description = fmt.Sprintf("How many times did you see a doctor in the past year, %d at most, and do you rate your health excellent, good, fair or poor?",
		mostVisits)
	o.Query = recipe.L1BoundSum{Length: uint32(len(randhie.HealthLabels)), Max: mostVisits}
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
