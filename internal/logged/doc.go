// Package logged says what the entries of a transparency log mean, and who may say it: the
// log itself takes what [Judge.Claim] lets in, whoever watches it judges again, and a
// device reads by the same rules what holds ([Judge.Read]).
//
// A manifest must be signed by leader, helper and gateway of the deployment that it names,
// of which its root keys are a part, so that no others can fill the place of one. A key
// list is signed by one of them. Recipes, withdrawals and releases bear the signature of
// an owner among the anchors. Each is about one thing, which stands in a log once.
package logged
