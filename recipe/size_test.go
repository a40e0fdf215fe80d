package recipe_test

import (
	"errors"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// A report that no aggregator takes is refused by account.New, with what would do
// instead; to be measured it is made all the same.
func TestTooLarge(t *testing.T) {
	for _, c := range []struct {
		q    Query
		hint string // "" fits
	}{
		{mustVector(t, 1<<18, 1, 15, L2Fixed16), "pine32 takes 1092272 bytes"},
		{mustVector(t, 1<<18, 1, 15, Pine32), ""},
		{mustVector(t, 1<<17-1<<11, 1, 15, L2Fixed16), ""},
		{mustVector(t, 1<<20, 1, 24, Pine128), "pine64 takes "},
		{mustVector(t, 1<<20, 1, 24, 0), ""},
		{mustVector(t, 1<<20, 1, 40, 0), "fewer entries"},
		{SumVec{Length: 1 << 15, Max: 1<<32 - 1}, "fewer elements"},
	} {
		o := vectorOptions(Vector{})
		o.Query, o.Epsilon = c.q, Decimal{}
		r, err := account.New(o)
		var large *TooLargeError
		if c.hint == "" {
			if err != nil {
				t.Errorf("%v: %v", c.q, err)
				continue
			}
			if n, err := r.UploadBytes(); err != nil || n == 0 {
				t.Errorf("%v: %d bytes, %v", c.q, n, err)
			}
			continue
		}
		if !errors.As(err, &large) || !strings.Contains(large.Hint, c.hint) || large.Bytes < 1<<24-1<<10 || large.Most != 1<<24 {
			t.Errorf("%v: %v, want a TooLargeError with %q", c.q, err, c.hint)
		}
		o.Oversized = true
		if r, err := account.New(o); err != nil {
			t.Errorf("%v: %v", c.q, err)
		} else if n, err := r.UploadBytes(); n < 1<<24 || !errors.As(err, &large) {
			t.Errorf("%v: %d bytes, %v", c.q, n, err)
		}
	}
}
