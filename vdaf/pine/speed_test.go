package pine

import (
	"errors"
	"math"
	"testing"
	"time"
)

// By a clock that moves a second at each look every role takes a second whatever the
// length; by one that stands still, nothing.
func TestCalibrate(t *testing.T) {
	now := time.Duration(0)
	s, err := Calibrate(func() time.Duration { now += time.Second; return now })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range allFields {
		p := Params{Field: f, Dimension: 100_000, FracBits: 15, Norm: 1}
		c, err := s.Plan(p)
		if err != nil || c.ClientSeconds != 1 || c.LeaderSeconds != 1 || c.HelperSeconds != 1 {
			t.Errorf("field %d: %+v, %v", f, c, err)
		}
		plain := must(Plan(p))
		if c.Upload != plain.Upload || c.Soundness != plain.Soundness || c.MaxClients != plain.MaxClients {
			t.Errorf("field %d: %+v, want %+v but for the seconds", f, c, plain)
		}
	}
	if _, err := s.Plan(Params{}); !errors.Is(err, ErrParameter) {
		t.Errorf("%v, want ErrParameter", err)
	}
}

// By a clock of its own each report takes 2 seconds and a millisecond an entry: the lines
// through what is measured say so for other lengths.
func TestCalibrateLine(t *testing.T) {
	looks, now := 0, time.Duration(0)
	s, err := Calibrate(func() time.Duration {
		// A report is four looks; five of a length follow another, then as many of the
		// next.
		dim := speedDims[looks/(4*repeats)%2]
		if looks%4 != 0 {
			now += 2*time.Second + time.Duration(dim)*time.Millisecond
		}
		looks++
		return now
	})
	if err != nil || looks != 4*repeats*2*len(fields) {
		t.Fatalf("%d looks at the clock, %v", looks, err)
	}
	for _, f := range allFields {
		c, err := s.Plan(Params{Field: f, Dimension: 1 << 18, FracBits: 15, Norm: 1})
		if want := 2 + 262.144; err != nil || math.Abs(c.ClientSeconds-want) > 1e-6 || math.Abs(c.LeaderSeconds-want) > 1e-6 ||
			math.Abs(c.HelperSeconds-want) > 1e-6 {
			t.Errorf("field %d: %v, %v, %v seconds, %v; want %v", f, c.ClientSeconds, c.LeaderSeconds, c.HelperSeconds, err, want)
		}
	}
}
