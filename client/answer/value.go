package answer

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/recipe"
)

// A ValueError names the first value that does not answer the recipe, by its place; what
// it says stays unsaid.
type ValueError struct {
	Place, Of int // from 1
	recipe    *recipe.Recipe
}

func (e *ValueError) Error() string {
	which := "the value"
	if e.Of > 1 {
		which = fmt.Sprintf("number %d of the %d values", e.Place, e.Of)
	}
	return fmt.Sprintf("%s does not answer the recipe: %s; want %s; nothing was sent", which, e.recipe.Given(), Wanted(e.recipe))
}

// Wanted says what is typed to answer a recipe.
func Wanted(r *recipe.Recipe) string {
	switch q := r.Given(); q.Form() {
	case recipe.YesOrNo:
		return q.Wanted()
	case recipe.Number:
		return "a whole number"
	case recipe.Bucket:
		return bucketWanted(r, q.Aggregates())
	case recipe.Grouped:
		return "a whole number, a comma and a group: " + bucketWanted(r, q.Aggregates()/2)
	}
	if q, ok := r.Given().(recipe.Tabled); ok {
		return q.Wanted()
	}
	return fmt.Sprintf("%d numbers with commas between them", r.Entries())
}

// bucketWanted says what is typed for one of the buckets, or groups.
func bucketWanted(r *recipe.Recipe, buckets int) string {
	numbers := fmt.Sprintf("a number from 0 to %d", buckets-1)
	if len(r.Labels) == 0 {
		return numbers
	}
	return strings.Join(r.Labels, ", ") + ", or " + numbers
}

// Typed reads one answer of each text. It fails with *[ValueError].
func Typed(r *recipe.Recipe, texts []string) ([]client.Value, error) {
	values := make([]client.Value, len(texts))
	for i, text := range texts {
		v, ok := Parse(r, text)
		if !ok {
			return nil, &ValueError{i + 1, len(texts), r}
		}
		values[i] = v
	}
	return values, nil
}

// Parse reads one answer.
func Parse(r *recipe.Recipe, text string) (client.Value, bool) {
	text = strings.TrimSpace(text)
	q := r.Given()
	switch q.Form() {
	case recipe.YesOrNo:
		switch strings.ToLower(text) {
		case "yes", "true", "1":
			return client.Bool(true), true
		case "no", "false", "0":
			return client.Bool(false), true
		}
		return client.Value{}, false
	case recipe.Number:
		n, err := strconv.ParseUint(text, 10, 64)
		return client.Number(n), err == nil
	case recipe.Bucket:
		n, ok := r.Bucket(text)
		return client.Bucket(n), ok
	case recipe.Grouped:
		number, name, _ := strings.Cut(text, ",")
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		group, ok := r.Bucket(strings.TrimSpace(name))
		return client.InGroup(n, group), ok && err == nil
	case recipe.Text:
		v, err := client.Text(q.(recipe.Tabled), text)
		return v, err == nil
	}
	parts := strings.Split(text, ",")
	if q.Form() == recipe.Reals {
		v := make([]float64, len(parts))
		for i, part := range parts {
			var err error
			if v[i], err = strconv.ParseFloat(strings.TrimSpace(part), 64); err != nil {
				return client.Value{}, false
			}
		}
		return client.Reals(v), len(v) == q.Aggregates()
	}
	v := make([]uint64, len(parts))
	for i, part := range parts {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 64)
		if err != nil {
			return client.Value{}, false
		}
		v[i] = n
	}
	return client.Vector(v), len(v) == q.Aggregates()
}

// MadeUp makes up an answer to a recipe: each value twice as likely as the next, up to the
// largest.
func MadeUp(r *recipe.Recipe) client.Value {
	q := r.Given()
	if q.Form() != recipe.Reals {
		return client.ValueOf(q.Form(), q.MadeUp(coins))
	}
	// Each entry has about the part of the norm that an entry of a long vector has, and
	// every second one is below zero.
	v := make([]float64, q.Aggregates())
	for i := range v {
		v[i] = q.Largest() * q.Unit() / math.Sqrt(float64(len(v))) * (1 - float64(coins()))
	}
	return client.Reals(v)
}

// coins counts the tails before the first head, at most 63.
func coins() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return uint64(bits.TrailingZeros64(binary.LittleEndian.Uint64(b[:])&math.MaxInt64 | 1<<63))
}
