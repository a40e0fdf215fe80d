package starling

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// choiceFiles is in how many files of product code the type of a choice is named at most.
// A choice has a file of its own with its bytes, words, bounds, estimates and releases,
// and a list that knows it; what else names it should ask it instead. Numbers, above the
// aim of 3 for randomizers, 4 for noise and 6 for queries or below, only ever fall.
var choiceFiles = map[string]int{
	"KRR": 3, "RAPPOR": 3, "PGR": 1, "QA": 3, "RandomizedGroup": 3, "NoRandomizer": 2, "Gaussian": 3,
	"DiscreteGaussian": 2, "DiscreteLaplace": 2, "CorrelatedGaussian": 3, "NoNoise": 3,
	"Count": 3, "Sum": 2, "Mean": 3, "Histogram": 6, "Multihot": 6, "SumVec": 2, "L1BoundSum": 3, "Quantiles": 2, "GroupSums": 3, "Hierarchy": 2, "HeavyHitters": 2, "Distinct": 2, "Norm": 2, "Vector": 6,
	"Always": 3, "Bernoulli": 3, "Importance": 2, "CheckIn": 1, "DonationTime": 1,
}

// TestFilesThatNameAChoice counts them, by what the compiler takes each name for.
func TestFilesThatNameAChoice(t *testing.T) {
	named := filesThatName(t, "recipe", choiceFiles)
	for choice, most := range choiceFiles {
		switch files := named[choice]; {
		case len(files) == 0:
			t.Errorf("no file names recipe.%s", choice)
		case len(files) > most:
			t.Errorf("recipe.%s is named in %d files, want %d:\n%s", choice, len(files), most, strings.Join(files, "\n"))
		case len(files) < most:
			t.Logf("recipe.%s is named in %d files, and choiceFiles still allows %d", choice, len(files), most)
		}
	}
}

// filesThatName returns the files of product code that name each of the types of a package,
// in their own package or another.
func filesThatName[T any](t *testing.T, owner string, wanted map[string]T) map[string][]string {
	t.Helper()
	h := typed(t)
	scope := h.checked[module+"/"+owner].Scope()
	named := make(map[string][]string)
	for name := range wanted {
		for file := range h.files[scope.Lookup(name)] {
			if !testOnly(filepath.ToSlash(filepath.Dir(file))) {
				named[name] = append(named[name], file)
			}
		}
		slices.Sort(named[name])
	}
	return named
}
