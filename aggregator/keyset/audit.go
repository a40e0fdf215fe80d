package keyset

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Audit compares the vault with what the set knows and lists what differs, in words; none
// is good. After a failure that [Set.Step] has not put right yet, and where another replica
// has changed it since, the vault may be a step aside, and only what must be there is
// looked at.
func (s *Set) Audit(ctx context.Context) (faults []string, err error) {
	if s.fixed {
		return nil, nil
	}
	s.step.Lock()
	defer s.step.Unlock()
	records := s.records()
	saved, version, err := s.readState(ctx)
	switch {
	case errors.Is(err, ErrDamaged):
		faults = append(faults, err.Error())
	case err != nil:
		return nil, err
	case version < s.version:
		faults = append(faults, "the state of the HPKE keys is gone, or an older one is there")
	case version > s.version:
		return nil, nil
	case !s.unsure && !slices.Equal(saved, records):
		faults = append(faults, "the state of the HPKE keys on the disk is another than in memory")
	}
	for i := range records {
		r := &records[i]
		if !r.lives() {
			continue
		}
		if _, err := s.readPair(ctx, r); errors.Is(err, ErrDamaged) {
			faults = append(faults, err.Error())
		} else if err != nil {
			return nil, err
		}
	}
	if s.dirty {
		return faults, nil
	}
	names, err := s.vault.Names(ctx)
	if err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	for _, name := range names {
		if !slices.Contains(living(records), name) {
			faults = append(faults, "an HPKE key that has ended is there: "+name)
		}
	}
	return faults, nil
}
