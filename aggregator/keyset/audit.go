package keyset

import (
	"errors"
	"fmt"
	"path"
	"slices"
)

// Audit compares the directory with what the set knows and lists what differs, in words;
// none is good. After a failure that [Set.Step] has not put right yet, the disk may be a
// step behind, and only what must be there is looked at.
func (s *Set) Audit() (faults []string, err error) {
	if s.fixed {
		return nil, nil
	}
	s.step.Lock()
	defer s.step.Unlock()
	records := s.records()
	saved, found, err := s.readState()
	switch {
	case errors.Is(err, ErrDamaged):
		faults = append(faults, err.Error())
	case err != nil:
		return nil, err
	case !found:
		faults = append(faults, "the state of the HPKE keys is gone")
	case !s.unsure && !slices.Equal(saved, records):
		faults = append(faults, "the state of the HPKE keys on the disk is another than in memory")
	}
	living := make(map[string]bool)
	for i := range records {
		r := &records[i]
		if !r.lives() {
			continue
		}
		living[r.file(s.opt.Dir)] = true
		if _, err := s.readPair(r); errors.Is(err, ErrDamaged) {
			faults = append(faults, err.Error())
		} else if err != nil {
			return nil, err
		}
	}
	if s.dirty {
		return faults, nil
	}
	entries, err := s.opt.FS.ReadDir(s.opt.Dir)
	if err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	for _, e := range entries {
		if name := path.Join(s.opt.Dir, e.Name); isKeyFile(e.Name) && !living[name] {
			faults = append(faults, "the file of an HPKE key that has ended is there: "+name)
		}
	}
	return faults, nil
}
