//go:build !lean

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/lab"
	"github.com/starling-agg/starling/recipe"
)

// vectorFlags are those of the lab that go with --recipe vector alone.
type vectorFlags struct {
	devices, dimension *int
	proof              *string
	half, device       *bool
	projection         *int
	correlated         *bool
	separation         *int
}

func newVectorFlags(flags *flag.FlagSet) *vectorFlags {
	return &vectorFlags{
		devices:   flags.Int("devices", 0, "vectors: average `N`, 2,000 if not given"),
		dimension: flags.Int("dimension", 0, "vectors: of `N` numbers, 10,000 if not given"),
		proof:     flags.String("proof", "", "vectors: prove the norm by pine32, pine40, pine64, pine128, l2fixed16 or l2fixed32: `TYPE`"),
		projection: flags.Int("projection", 0,
			"vectors: send `M` numbers of a public random projection, 64 or more, in place of each vector"),
		correlated: flags.Bool("correlated", false, "vectors: release sums round after round, with noise that cancels over --rounds"),
		separation: flags.Int("separation", 0, "vectors: with --correlated, a device stays away `S` rounds"),
		half:       flags.Bool("noise-half", false, "vectors: each server draws half of the noise"),
		device:     flags.Bool("noise-device", false, "vectors: each device adds its own noise, the servers none"),
	}
}

func (f *vectorFlags) given() bool {
	return *f.devices != 0 || *f.dimension != 0 || *f.proof != "" || *f.half || *f.device || *f.projection != 0 || *f.correlated || *f.separation != 0
}

// labVectors runs the lab of vectors with what base says beside them.
func labVectors(ctx context.Context, e *env, watch *progress, base *lab.Options, f *vectorFlags, asJSON bool) error {
	if *f.correlated {
		return labSeries(ctx, e, watch, base, f, asJSON)
	}
	if *f.separation != 0 {
		return usageOf("lab", errors.New("--separation goes with --correlated"))
	}
	if base.Rows != 0 || base.Population != 0 || base.Rounds != 0 || base.KnownSample || base.Sampling != (recipe.Rational{}) {
		return usageOf("lab", errors.New("--recipe vector goes with --devices, --dimension, --proof, --projection, --noise-half, --noise-device, "+
			"--malicious and --epsilon"))
	}
	o := lab.VectorOptions{
		Frame: base.Frame,
		Shape: lab.Shape{Devices: *f.devices, Dimension: *f.dimension}, Half: *f.half, Device: *f.device, Malicious: base.Malicious,
		Projection: *f.projection,
	}
	if *f.proof != "" {
		var err error
		if o.Proof, err = recipe.ParseVectorProof(*f.proof); err != nil {
			return usageOf("lab", fmt.Errorf("--proof: %w", err))
		}
	}
	if err := o.Validate(); err != nil {
		return usageOf("lab", err)
	}
	return labPlay(e, o.Frame, asJSON, watch, func() (*lab.VectorReport, error) { return lab.RunVectors(ctx, o) },
		func(r *lab.VectorReport) error { return r.WriteText(e.stdout, e.columns()) })
}

// labSeries runs the lab of correlated noise.
func labSeries(ctx context.Context, e *env, watch *progress, base *lab.Options, f *vectorFlags, asJSON bool) error {
	if base.Rows != 0 || base.Population != 0 || base.KnownSample || base.Sampling != (recipe.Rational{}) || base.Malicious != 0 || *f.proof != "" ||
		*f.half || *f.device || *f.projection != 0 {
		return usageOf("lab", errors.New("--correlated goes with --rounds, --separation, --devices, --dimension and --epsilon"))
	}
	o := lab.SeriesOptions{
		Frame:  base.Frame,
		Rounds: base.Rounds, Shape: lab.Shape{Devices: *f.devices, Dimension: *f.dimension}, Separation: *f.separation,
	}
	if err := o.Validate(); err != nil {
		return usageOf("lab", err)
	}
	return labPlay(e, o.Frame, asJSON, watch, func() (*lab.SeriesReport, error) { return lab.RunSeries(ctx, o) },
		func(r *lab.SeriesReport) error { return r.WriteText(e.stdout, e.columns()) })
}

// sayKept says where the deployment was left behind, if it was.
func sayKept(e *env, dir string) {
	if dir != "" {
		fmt.Fprintf(e.stdout, "Kept:    %s; cd there, and README.txt says what to try\n", dir)
	}
}

// labFailure is why a lab has no report, or no files of its results.
func labFailure(err error) error {
	switch {
	case errors.Is(err, lab.ErrOut):
		return &failure{exitInput, err, "--out DIR names a directory that can be written to and has room"}
	case errors.Is(err, deploy.ErrNotEmpty), errors.Is(err, deploy.ErrDirectory):
		return &failure{exitInput, err, "--keep DIR names a directory that does not exist yet"}
	}
	return err
}

// olderLab names the files of an earlier lab that a new one takes the place of.
func olderLab(dir string) (names []string) {
	for _, name := range []string{lab.PictureFile, lab.TableFile} {
		if path := filepath.Join(dir, name); exists(path) {
			names = append(names, path)
		}
	}
	return names
}

// labReport is what a lab ends in.
type labReport[T any] interface {
	*T
	Check() error
}

// labPlay runs a lab, prints its report, also one of a lab that could not write its files,
// checks it, and says which files of an older lab are gone.
func labPlay[T any, R labReport[T]](e *env, frame lab.Frame, asJSON bool, watch *progress, run func() (R, error), text func(R) error) error {
	older := olderLab(frame.Out)
	report, failed := run()
	watch.end()
	if report == nil {
		return labFailure(failed)
	}
	failed = labFailure(failed)
	if asJSON {
		if err := e.json(report); err != nil {
			return errors.Join(failed, err)
		}
	} else {
		if err := text(report); err != nil {
			return errors.Join(failed, err)
		}
		sayKept(e, frame.Keep)
	}
	if len(older) > 0 {
		fmt.Fprintf(e.stderr, "in the place of an earlier lab's: %s\n", strings.Join(older, ", "))
	}
	if err := report.Check(); err != nil {
		return errors.Join(failed, &failure{exitCheck, err, "run it again; noise that is as far off twice is a fault: docs/operating.md"})
	}
	return failed
}
