package arc

import (
	"testing"

	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// TestShelf: multiples are made of what is used often, are that element's, and are forgotten
// of what was used least lately.
func TestShelf(t *testing.T) {
	var elements []p256.Element
	for i := range 3 {
		elements = append(elements, elementH(p256.ScalarOf(uint64(i+1))))
	}
	s := shelf{most: 2}
	for i := range 2 * oftenUses {
		for _, e := range elements[:2] {
			f := s.of(e)
			if (f != nil) != (i >= oftenUses) {
				t.Fatalf("use %d: multiples %v", i+1, f != nil)
			}
			if f == nil {
				continue
			}
			k := p256.ScalarOf(uint64(i))
			got, _ := f.Mul(k)
			if want, _ := p256.Mul(k, e.Point()).Element(); !got.Equal(&want) {
				t.Fatalf("use %d: multiples of another element", i+1)
			}
		}
	}
	s.of(elements[1])
	s.of(elements[2])
	if s.of(elements[1]) == nil || len(s.used) != 2 {
		t.Error("what was used last was forgotten")
	}
	if s.of(elements[0]) != nil {
		t.Error("what was used first was kept")
	}
}
