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

func BenchmarkQuestion(b *testing.B) {
	q := must(NewQuestion(10, 4, .3))(b)
	for b.Loop() {
		if _, err := q.Randomize([32]byte{}, 3, 2); err != nil {
			b.Fatal(err)
		}
	}
}
