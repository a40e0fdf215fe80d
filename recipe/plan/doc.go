// Package plan works backwards from a wish to a recipe: from an accuracy ("each of 21
// buckets within 1 % of 20,000 people, 95 %"), a privacy loss, or both, to the noise of
// the servers, the sampling rate q and the least batch B; or to the randomizer of the
// devices, where nobody is to be trusted.
//
// Given an accuracy, the noise is as wide as the accuracy allows, so that the loss is the
// least. Given a loss alone, the noise is the least that gives it. Given both, the plan
// says whether they go together and, where they do not, how many people, which loss or
// which accuracy would do.
//
// # Errors
//
// An error is the half-width of an interval that holds the difference between a result
// and the truth with the wanted confidence, for each number of the result by itself; All
// is for all of them at once, by the union bound. Both servers draw the noise, whoever is
// honest, so its variance counts twice in the error and once in the guarantee. Noise is
// taken as normal, which is close from a standard deviation of about one on; what a
// sample of the people adds is bounded by its worst case.
//
// # Guarantees
//
// The loss is computed as package recipe computes it on every device, and is the
// guarantee of the recipe that [Plan.Recipe] makes. It holds if one of the two servers is
// honest. A sample whose count is public has no recipe: it is accounted as one without
// replacement at the upper quantile of its size, for replace-one neighbours. Where dummy
// reports hide the count, it is a sample by coins together with the binomial count, for
// one person's answer against none. Where devices randomize, the loss wanted is that of
// reports by themselves, [Plan.Local], on any path; the recipe's guarantee says what is left
// of it while the servers do not put their shares together. The loss of a [Cloak] is that
// of what a shuffler shows; [Plan.Mixed] has the messages of each kind.
package plan
