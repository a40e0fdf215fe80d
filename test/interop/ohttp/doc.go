// Package interop holds our Oblivious HTTP against another implementation,
// github.com/openpcc/ohttp, in both directions. It is a module of its own, so that
// nothing of that one gets into a Starling program.
package interop
