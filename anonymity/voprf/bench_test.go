//go:build unix

package voprf_test

import (
	"testing"

	"github.com/starling-agg/starling/anonymity/internal/p256/p256test"
	"github.com/starling-agg/starling/anonymity/voprf"
)

func BenchmarkAdmission(b *testing.B) {
	key, round := voprf.GenerateKey(), voprf.Round{Number: 7}
	request := voprf.NewTokenRequest(round)
	r := request.Request().Append(nil)
	e := key.Evaluate(request.Request())
	token, err := request.Finalize(key.PublicKey(), e)
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func(){
		"request": func() { voprf.NewTokenRequest(round) },
		"issue": func() {
			r, err := voprf.ReadRequest(r)
			if err != nil {
				b.Fatal(err)
			}
			e, err := key.Issue(r)
			if err != nil {
				b.Fatal(err)
			}
			e.Append(nil)
		},
		"finalize": func() {
			if _, err := request.Finalize(key.PublicKey(), e); err != nil {
				b.Fatal(err)
			}
		},
		"admit": func() {
			if err := key.Admit(round, token); err != nil {
				b.Fatal(err)
			}
		},
	} {
		b.Run(name, func(b *testing.B) { p256test.InUnits(b, 1, f) })
	}
}
