//go:build !lean

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/lab"
)

func benchReport() *command {
	return &command{
		name: "report", args: "--vdaf pine32|pine40|pine64|pine128|l2fixed16|l2fixed32 --dimension N [--projection M] [--json]",
		short: "Measure one report of a vector: its size, and the time of client, leader and helper",
		long: `A vector of norm 1 is clipped, rounded, shared, proved and sealed as a device does, and opened, verified and added up as leader
and helper do, on one core and without a network. Times are processor time of one report, the median of several.`,
		examples: [][2]string{
			{"starling bench report --vdaf pine32 --dimension 262144 --json", "about the size of the plaintext"},
			{"starling bench report --vdaf pine32 --dimension 262144 --projection 16384", "a sixteenth of it, and what that loses"},
			{"starling bench report --vdaf l2fixed16 --dimension 10000", "the encoding of paper 003"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			vdaf := flags.String("vdaf", "", "how the norm is proved: `TYPE`")
			dimension := flags.Int("dimension", 0, "entries of the vector: `N`")
			frac := flags.Int("frac-bits", 0, "binary places; 0 takes what goes with the type: `N`")
			projection := flags.Int("projection", 0, "send `M` numbers of a random projection in place of the vector")
			reports := flags.Int("reports", 5, "measure `N` reports")
			return func(ctx context.Context, e *env, args []string) error {
				if err := noArgs("bench report", args); err != nil {
					return err
				}
				if *dimension == 0 {
					return usageOf("bench report", errors.New("--dimension is missing: how many entries the vector has"))
				}
				watch := newProgress(e)
				o := lab.BenchReportOptions{VDAF: *vdaf, Dimension: *dimension, FracBits: *frac, Reports: *reports, Projection: *projection, Progress: watch.show}
				if err := o.Validate(); err != nil {
					return usageOf("bench report", err)
				}
				r, err := lab.MeasureReport(ctx, o)
				watch.end()
				if err != nil {
					return err
				}
				if *asJSON {
					return e.json(r)
				}
				if r.Projection > 0 {
					fmt.Fprintf(e.stdout, "%s numbers of a projection are sent; it puts the mean %.3g times its length off\n",
						prose.Count(float64(r.Projection)), r.Lost)
				}
				_, err = fmt.Fprintf(e.stdout, "%s bytes for %s entries, %.2f times 4 bytes an entry\nclient %.1f ms, leader %.1f ms, helper %.1f ms\n",
					prose.Count(float64(r.UploadBytes)), prose.Count(float64(r.Dimension)), r.Ratio, r.ClientMS, r.LeaderMS, r.HelperMS)
				return err
			}
		},
	}
}
