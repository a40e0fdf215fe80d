package figures_test

import (
	"context"
	"fmt"
	"os"

	"github.com/starling-agg/starling/figures"
)

func ExampleDraw() {
	dir, err := os.MkdirTemp("", "figures")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	done, err := figures.Draw(context.Background(), figures.Options{Dir: dir, Only: []string{"paper-000-examples"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, o := range done {
		fmt.Println(o.Title, o.Files)
	}
	// Output: Examples 3 to 6, recomputed [paper-000-examples.png paper-000-examples.svg paper-000-examples.csv]
}
