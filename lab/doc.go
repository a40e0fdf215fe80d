// Package lab plays every party on loopback in one process: clients, leader, helper and
// collector, over real HTTP, with real encryption, real proofs, real noise and real
// stores. [Run] takes one private histogram of real data from the devices to the picture,
// and measures each step. It is the demonstration, the tutorial and a test of the whole.
//
// A lab is a scenario over one frame. The scenario says what is asked, makes the devices'
// values and sends them, says what the recipe has one expect, and compares: a histogram
// ([Run]), a population that decides in secret (Run too), a mean of vectors
// ([RunVectors]), sums round after round ([RunSeries]), a model that is trained
// ([RunTraining]). The frame does what all of them need ([Frame]): it starts and stops the
// servers, takes the steps and their times, tells how far it is, and writes files. [Bench] and [MeasureReport] measure and show nothing,
// the one with servers in processes of their own, the other without any; they stand
// beside the frame.
//
// Two things differ from a real deployment: one person holds all the keys, so the lab can
// show the truth beside the estimate, and one process holds all the parties, so it
// protects nobody's data. The data is public.
package lab
