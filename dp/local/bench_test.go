package local

import "testing"

func BenchmarkResponse(b *testing.B) {
	r := must(NewResponse(1000, 1))(b)
	for b.Loop() {
		if _, err := r.Randomize(7); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRAPPOR(b *testing.B) {
	r := must(NewRAPPOR(1000, 4, Deletion, Symmetric))(b).Bounded()
	dst := make([]bool, 1000)
	for b.Loop() {
		if err := r.Randomize(dst, 7); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProjective(b *testing.B) {
	p := must(NewProjective(10_000, 4))(b)
	b.Run("randomize", func(b *testing.B) {
		for b.Loop() {
			if _, err := p.Randomize(7); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("estimate", func(b *testing.B) {
		counts := make([]uint64, p.Answers())
		for b.Loop() {
			if _, err := p.Estimate(counts); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// For ten groups and eight values: the device looks up one row, the server ten.
func BenchmarkQuestion(b *testing.B) {
	q := must(NewQuestion(10, 4, 1))(b)
	b.Run("randomize", func(b *testing.B) {
		for b.Loop() {
			if _, err := q.Randomize(Query{}, 3, 2); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("add", func(b *testing.B) {
		sum := q.NewSum()
		for b.Loop() {
			if err := q.Add(sum, Query{}, 5); err != nil {
				b.Fatal(err)
			}
		}
	})
}
