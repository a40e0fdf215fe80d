// Package payloadtest is the conformance suite that every engine of [payload.Store] is
// run through, with the faults that such a store may have, and a store in memory.
package payloadtest
