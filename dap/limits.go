package dap

import "fmt"

// Limits bound what one message may make us do. The draft bounds none of it, and length
// prefixes come from strangers, so each party sets its own, after it has bounded the size
// of the body. A nil *Limits means [DefaultLimits].
type Limits struct {
	MaxReports     int // items in one message; default 100,000
	MaxPublicShare int // bytes of one public share; default 64 KiB
	MaxEnc         int // bytes of one HPKE encapsulated key; default 2,048 (X-Wing has 1,120)
	MaxCiphertext  int // bytes of one sealed input share; default 16 MiB
	MaxPayload     int // bytes of one ping-pong message; default 16 MiB
	MaxExtensions  int // extensions of one list of a report; default 16
}

// DefaultLimits suit vectors of up to about a million field elements.
func DefaultLimits() *Limits {
	return &Limits{
		MaxReports:     100_000,
		MaxPublicShare: 64 << 10,
		MaxEnc:         2 << 10,
		MaxCiphertext:  16 << 20,
		MaxPayload:     16 << 20,
		MaxExtensions:  16,
	}
}

// Validate says whether messages can be read under l: every field is positive but
// MaxExtensions, which may be zero, as may MaxPublicShare where the VDAF has no public
// share.
func (l *Limits) Validate() error {
	if l.MaxReports < 1 || l.MaxEnc < 1 || l.MaxCiphertext < 1 || l.MaxPayload < 1 ||
		l.MaxPublicShare < 0 || l.MaxExtensions < 0 {
		return fmt.Errorf("dap: limits must be positive: %+v", *l)
	}
	return nil
}

func (l *Limits) or() *Limits {
	if l == nil {
		return DefaultLimits()
	}
	return l
}

func atMost(n, limit int, what string) error {
	if n > limit {
		return fmt.Errorf("%w: %s of %d, more than %d", ErrLimit, what, n, limit)
	}
	return nil
}

func (l *Limits) head(m *ReportMetadata, publicShare []byte) error {
	if err := atMost(m.PublicExtensions.Len(), l.MaxExtensions, "extensions"); err != nil {
		return err
	}
	return atMost(len(publicShare), l.MaxPublicShare, "public share")
}

func (l *Limits) ciphertext(m *HpkeCiphertext) error {
	if err := atMost(len(m.Enc), l.MaxEnc, "encapsulated key"); err != nil {
		return err
	}
	return atMost(len(m.Payload), l.MaxCiphertext, "ciphertext")
}

func (l *Limits) payload(b []byte) error { return atMost(len(b), l.MaxPayload, "payload") }

func (l *Limits) report(r *Report) error {
	if err := l.head(&r.Metadata, r.PublicShare); err != nil {
		return err
	}
	if err := l.ciphertext(&r.Leader); err != nil {
		return err
	}
	return l.ciphertext(&r.Helper)
}

func (l *Limits) verifyInit(v *VerifyInit) error {
	if err := l.head(&v.Metadata, v.PublicShare); err != nil {
		return err
	}
	if err := l.ciphertext(&v.Ciphertext); err != nil {
		return err
	}
	return l.payload(v.Payload)
}
