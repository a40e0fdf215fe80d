// Package shuffle draws uniform orders and durations.
package shuffle

import (
	"crypto/rand"
	"math/big"
	"time"
)

// Uniform draws an order of n things, each of the n! with the same probability, by Fisher
// and Yates.
func Uniform(n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		j, err := rand.Int(rand.Reader, big.NewInt(int64(i+1)))
		if err != nil {
			panic("shuffle: internal error: no randomness: " + err.Error())
		}
		swap(i, int(j.Int64()))
	}
}

// UpTo is a duration of at most d, uniform to the nanosecond.
func UpTo(d time.Duration) time.Duration {
	n, err := rand.Int(rand.Reader, big.NewInt(int64(d)+1))
	if err != nil {
		panic("shuffle: internal error: no randomness: " + err.Error())
	}
	return time.Duration(n.Int64())
}
