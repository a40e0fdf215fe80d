// Package train trains a model over simulated devices, each with one image, in the rounds
// of a recipe: differentially private federated SGD that can be watched.
//
// [Options.Asked] and [Options.Terms] make the recipe and the session: a vector query of the
// model's parameters, whose noise the accountant calibrates so that all rounds together are
// within epsilon and delta when one of the two servers is honest. Each round every device
// tosses its coin; those that take part compute the gradient of their own image at the
// public model, and report what [session.Terms.Vector] makes of it. The sum that is
// released, over the planned cohort, is what the server's optimiser steps along
// ([session.Terms.Mean], package optimizer). The published model is the mean of the
// models of the last rounds (Polyak and Juditsky 1992): by post-processing that costs no
// privacy.
//
// Rounds are played in a [World]. [Run] plays them in the simulator; a lab is a world of real
// servers and a controller, and both come to the same models, to the last bit, where the same
// devices report and the same noise is drawn.
//
// With several images a device may take several local steps and report how far they took
// the model (federated averaging, McMahan et al. 2017): the clipping norm then bounds that
// difference. The unit of the guarantee is the device, with all its images. Images may be dealt
// by [Shards] of labels, so that devices are not alike.
//
// With noise that is correlated over rounds ([Options.Correlated]) there are no coins: devices
// take turns, which keeps the distance that the recipe asks of them.
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
// guarantee does not cover choosing them on the devices' own. Nor does it cover a forecast
// with a part of the noise ([Options.NoiseScale]), which is labelled as one.
package train
