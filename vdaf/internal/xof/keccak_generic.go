package xof

// permute is the permutation in use. A faster one for some processor goes in a file of its own, built without the
// purego tag, and takes this one's place; permuteGo stays the reference it is tested against.
func permute(s *[25]uint64) { permuteGo(s) }
