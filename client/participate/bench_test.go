package participate

import (
	"testing"
)

// One device that decides about a recipe of coins, without the upload: two seals,
// whatever the coins say.
func BenchmarkDecide(b *testing.B) {
	p := newServers(b).plan(options())
	v := one(1)
	for b.Loop() {
		d := Device{Ledger: memory(b)}
		if _, err := d.Decide(b.Context(), p, v, now); err != nil {
			b.Fatal(err)
		}
	}
}
