package vdaf

// Codepoints of this project's VDAFs, all from the private range of the VDAF registry
// (VDAF-18 section 10: 0xFFFF0000 and up). docs/registry.md lists them. A change of one
// byte of what a VDAF sends takes a new number.
const (
	IDPine32  = 0xFFFFA032 // PINE over the field of 32 bits, and so on: package pine, docs/pine.md
	IDPine40  = 0xFFFFA040
	IDPine64  = 0xFFFFA064
	IDPine128 = 0xFFFFA128

	IDColumns = 0xFFFFA0C0 // Columns: package prio3

	IDL2Vec16 = 0xFFFFA216 // L2Vec of entries of 16 bits, and of 32: package prio3, docs/pine.md
	IDL2Vec32 = 0xFFFFA232
	IDL2Vec64 = 0xFFFFA264
)
