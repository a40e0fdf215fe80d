package arc

import "testing"

// TestBases: the numbers below a limit, and no others, are sums of its bases, and taking
// the largest first finds one.
func TestBases(t *testing.T) {
	for limit := MinLimit; limit <= 70; limit++ {
		all := bases(limit)
		sums := map[int]bool{}
		for set := range 1 << len(all) {
			sum := 0
			for i, base := range all {
				sum += set >> i & 1 * base
			}
			sums[sum] = true
		}
		for n := range limit {
			rest := n
			for _, base := range all {
				if rest >= base {
					rest -= base
				}
			}
			if !sums[n] || rest != 0 {
				t.Errorf("%d below %d is no sum of %v", n, limit, all)
			}
		}
		if len(sums) != limit {
			t.Errorf("%v have %d sums, not %d", all, len(sums), limit)
		}
	}
}
