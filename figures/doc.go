// Package figures draws what the papers behind Starling claim by formula, from Starling's
// own accountant: of paper 000 ("Samplable Anonymous Aggregation for Private Federated
// Data Analysis") figures 1 to 3 and 5 to 8 and the numbers of examples 3 to 6; of paper
// 001 ("Scalable and Differentially Private Distributed Aggregation in the Shuffled
// Model") figure 1, with numbers; of paper 002 ("Private Multi-Group Aggregation") figure
// 2; of paper 004 ("Privacy Amplification via Random Check-Ins") figure 2 and table 1. And
// it draws the communication table of paper 003 (dpsa4fl) with what Starling's own reports
// measure on the wire. Each is a PNG, an SVG and the CSV behind them. docs/figures.md shows
// them beside what the papers state and explains every difference.
//
// # What the curves are
//
// N people hold one of K values. T tasks each ask at most M people on average, and all
// tasks together cost (epsilon, delta). The error is the expected squared Euclidean
// distance of the estimated distribution from the true one. It is 1/M-like for the
// sample, to which private estimates add K (sigma/M)^2, and the models differ in sigma:
//
//   - AGG: the servers may know who reports, so each person is in ceil(T M/N) releases;
//     analytic Gaussian mechanism.
//   - SAMPAGG: who reports is secret, so each release is about a Poisson sample. Curves
//     calibrate sigma by Rényi accounting (the "moments accountant"), as the paper did;
//     rings by privacy loss distributions, which are tighter.
//
// Where only a fraction g of the people hold a value other than the default, SAMPAGG may
// keep those at the rate min(M/(2gN), 1) and the others at M/(2N). The error is then over
// the values other than the default.
//
// [Options].Measured adds what the running encoders and analyzers of papers 001 and 002 give,
// with fresh randomness at each call.
//
// Figure parameters that the text of the papers does not give are fields of [Options].
package figures
