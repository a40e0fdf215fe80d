package session_test

import (
	"fmt"

	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/signed"
)

// A controller announces a model; a device finds it by its hash and makes its vector.
func Example() {
	key := signed.Generate()
	s := &session.Session{Controller: key.Public(), Terms: session.Terms{
		Layout:    []session.Tensor{{Name: "weights", Shape: []uint32{1, 2}}},
		Algorithm: session.FedSGD, LocalSteps: 1,
		Clipping: session.Clipping{Norm: 0.5}, Rounds: 20,
	}}
	name, _ := s.Hash()

	m := session.Model{Session: name, Round: 41, Clip: 0.5, Parameters: []float32{0, 0}}
	blob, _ := m.Append(nil)
	a := session.Announcement{Session: name, Round: 41, Model: session.BlobHash(blob)}
	a.Sign(key)

	// What a device has fetched:
	if err := s.Follow(nil, &a); err != nil {
		fmt.Println(err)
	}
	taken, err := s.ReadModel(&a, blob)
	if err != nil {
		fmt.Println(err)
	}
	gradient, vector := []float32{3, 4}, make([]float64, s.Terms.Entries())
	if err := s.Terms.Vector(vector, gradient, taken.Clip, 1); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%.2f\n", vector)
	// Output: [0.60 0.80]
}
