package dap

import "errors"

// A Dialect is how the parties of one task talk: the draft, and whose framing. Messages
// that differ from one dialect to another are read and written by its methods; all others
// have a method or a function of their own.
type Dialect struct {
	Version
	Framing
}

// Validate says whether there is such a dialect.
func (d Dialect) Validate() error {
	if !d.Version.Known() || int(d.Framing) >= len(framings) {
		return errors.New("dap: unknown draft or framing")
	}
	if d.Framing == Janus && d.Version != Draft18 {
		return errors.New("dap: Janus's framing is of draft 18")
	}
	return nil
}

// Said is how e is said in the dialect: as itself where that has a number for it, or as
// what stands for it.
func (d Dialect) Said(e ReportError) ReportError {
	if d.Framing == Janus && e == OutdatedConfig {
		return HpkeUnknownConfigID
	}
	if other, ok := drafts[d.Version].instead[e]; ok {
		return other
	}
	return e
}

// Code is the number of e in the dialect, and false where nothing stands for it.
func (d Dialect) Code(e ReportError) (n uint8, ok bool) {
	e = d.Said(e)
	for i, x := range drafts[d.Version].errors {
		if x == e && e != 0 {
			return uint8(i), true
		}
	}
	// A number read without being understood goes back as it came.
	n = uint8(e)
	return n, n != 255 && e > unknownReportError && d.ReportError(n) == e
}

// ReportError is what a number means in the dialect.
func (d Dialect) ReportError(n uint8) ReportError {
	if known := drafts[d.Version].errors; int(n) < len(known) {
		if e := known[n]; d.Said(e) == e {
			return e
		}
	}
	return unknownReportError | ReportError(n)
}
