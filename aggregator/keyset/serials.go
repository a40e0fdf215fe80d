package keyset

// Newest is the serial of the newest key ever made; 0 where all are the operator's.
func (s *Set) Newest() uint64 {
	_, newest, _ := s.Serials()
	return newest
}

// Serials are those of the oldest key that lives and of the newest that was ever made:
// what was sealed before the oldest was made, and to none of the operator's keys, opens
// to nobody any more. ends is false where the operator's keys are in use, whose end the
// set does not know.
func (s *Set) Serials() (oldest, newest uint64, ends bool) {
	if s.fixed {
		return 0, 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		newest = max(newest, k.serial)
		if k.pair != nil && oldest == 0 {
			oldest = k.serial
		}
	}
	if oldest == 0 {
		oldest = newest + 1
	}
	return oldest, newest, s.opt.Configured == nil
}
