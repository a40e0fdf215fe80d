package recipe_test

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/signed"
)

// training is a recipe of vectors whose rounds are steps of a training.
func training() *Recipe {
	r := vectorVariants()["vector pine32"]
	key, err := signed.ParsePublicKey("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
	if err != nil {
		panic(err)
	}
	r.Training = &Training{Controller: key, Terms: [32]byte{1, 2, 3}}
	return r
}

func TestTraining(t *testing.T) {
	r := training()
	b := mustAppend(t, r)
	if want := append(append([]byte("\x00\x13\x00\x40"), r.Training.Controller[:]...), r.Training.Terms[:]...); !bytes.HasSuffix(b, want) {
		t.Errorf("%x does not end in %x", b, want)
	}
	again, err := Read(b)
	if err != nil || *again.Training != *r.Training {
		t.Fatalf("%v, %v", again, err)
	}
	if _, err := Read(b[:len(b)-1]); err == nil {
		t.Error("a training cut off is read")
	}
	var said strings.Builder
	if err := describe(r, &said); err != nil || !strings.Contains(said.String(), "fingerprint 21fe 31df a154 a261") {
		t.Errorf("%s, %v", said.String(), err)
	}
	js, err := marshal(r)
	if err != nil || !bytes.Contains(js, []byte(`"training":{"controller":"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a","terms":"0102030000`)) {
		t.Errorf("%s, %v", js, err)
	}
}

func TestTrainingRefused(t *testing.T) {
	for field, changes := range map[string][]func(*Recipe){
		"training": {
			func(r *Recipe) { r.Query = Count{} },
			func(r *Recipe) {
				p := r.Path.(TwoServer)
				p.BatchMode = dap.LeaderSelected
				r.Path = p
			},
		},
		"training.controller": {
			func(r *Recipe) { r.Training.Controller = signed.PublicKey{} },
			func(r *Recipe) { r.Training.Controller = signed.PublicKey{1} },
			func(r *Recipe) {
				r.ServerKeys = &ServerKeys{Leader: r.Training.Controller, Helper: signed.Generate().Public(), EpochLength: 86400, Collector: [32]byte{1}}
			},
		},
		"training.terms": {func(r *Recipe) { r.Training.Terms = [32]byte{} }},
	} {
		for i, change := range changes {
			r := training()
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			change(r)
			if err := r.Validate(); !invalidAt(err, field) {
				t.Errorf("%s, change %d: %v", field, i, err)
			}
		}
	}
}
