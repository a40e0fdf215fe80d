package chart_test

import (
	"fmt"
	"os"

	"github.com/starling-agg/starling/lab/chart"
)

func ExampleHistogram_WriteText() {
	h := &chart.Histogram{
		XLabel: "birds", Labels: []string{"0", "1", "2+"},
		Estimate: []float64{812, 391, -4}, Interval: [][2]float64{{796, 828}, {375, 407}, {-20, 12}}, Truth: []float64{805, 395, 0},
	}
	if err := h.WriteText(os.Stdout, 60, true); err != nil {
		fmt.Println(err)
	}
	// Output:
	//   birds  estimate  95 % interval  truth
	//       0       812     796 to 828    805  ##################
	//       1       391     375 to 407    395  ########
	//      2+        -4      -20 to 12      0
}
