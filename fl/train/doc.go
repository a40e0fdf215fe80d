// Package train trains a model over simulated devices, each with one image, in the rounds
// of a recipe: differentially private federated SGD that can be watched.
//
// [Options.Recipe] makes the recipe: a vector query of the model's parameters, whose noise the
// accountant calibrates so that all rounds together are within epsilon and delta when one of
// the two servers is honest. Each round every device tosses its coin; those that take part
// compute the gradient of their own image at the public model, scale it so that the clipping
// norm becomes the recipe's bound, and report it. [simulator.Simulator] makes of the reports
// what the servers release. The estimate of the sum, over the number of devices, is what
// the server's optimiser steps along: plain SGD with momentum, or Adam. The published
// model is the mean of those of the last rounds (Polyak and Juditsky 1992): by
// post-processing that costs no privacy.
//
// With several images a device may take several local steps and report how far they took
// the model (federated averaging, McMahan et al. 2017): the clipping norm then bounds that
// difference. The unit of the guarantee is the device, with all its images.
//
// # Bad rounds
//
// A device whose vector has another shape or is not finite sends nothing; a report over the
// bound is rejected by the servers; a round below the recipe's least batch is released by
// nobody, leaves the model as it was, and is counted and paid for ([Report.Skipped]).
// Training ends with a [*simulator.BudgetError] when it wants more rounds than the guarantee
// covers, with the model and the report of what was covered.
//
// Hyperparameters are chosen by hand on other data, or as docs/bench/learning.md tells: the
// guarantee does not cover choosing them on the devices' own.
package train
