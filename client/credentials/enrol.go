package credentials

import (
	"bytes"
	"context"
	"crypto/rand"

	"github.com/starling-agg/starling/anonymity/visit"
)

// Enrol has the attester know the device from now on, by what proves that it is one: of codes,
// the code. The device's secret is kept before it is sent, and again with the same proof is
// harmless. It fails with *[RefusedError], [ErrState], and where the attester is away.
func (w *Wallet) Enrol(ctx context.Context, proof []byte) error {
	if err := w.turn(ctx); err != nil {
		return err
	}
	defer func() { <-w.asking }()
	e, send, err := w.toEnrol(proof)
	if err != nil || !send {
		return err
	}
	if err := w.o.attester(w.base).enrol(ctx, e); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.knows(e)
}

// toEnrol is the enrolment to send, which is on the disk; false where the attester knows the
// device by another proof.
func (w *Wallet) toEnrol(proof []byte) (e visit.Enrolment, send bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !bytes.Equal(w.kept.enrolment.Proof, proof) {
		if w.kept.known {
			return e, false, nil // it is known already, and a device enrols once
		}
		// The secret stays: the attester may know it by a proof whose answer was lost, and then
		// takes that proof with no other.
		e = visit.Enrolment{Proof: bytes.Clone(proof), Secret: w.kept.enrolment.Secret}
		if e.Secret == ([visit.SecretSize]byte{}) {
			rand.Read(e.Secret[:])
		}
		if err := w.save(func(k *kept) { k.enrolment = e }); err != nil {
			return e, false, err
		}
	}
	return w.kept.enrolment, true, nil
}

// Nonce is what a token of an identity provider has to have so that the device can enrol with
// it: it is the device's, and the same each time ([visit.Nonce]). It fails with [ErrState].
func (w *Wallet) Nonce() (string, error) {
	secret, err := w.draw()
	if err != nil {
		return "", err
	}
	return visit.Nonce(w.o.Deployment, secret), nil
}

// EnrolAs is [Wallet.Enrol] by a proof that is made anew each time, as tokens of an identity
// provider are, or that the connection shows: the device's secret is the same whatever it is,
// and the proof is not kept.
func (w *Wallet) EnrolAs(ctx context.Context, proof []byte) error {
	if err := w.turn(ctx); err != nil {
		return err
	}
	defer func() { <-w.asking }()
	secret, err := w.draw()
	if err != nil {
		return err
	}
	e := visit.Enrolment{Secret: secret, Proof: proof}
	if err := w.o.attester(w.base).enrol(ctx, e); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.knows(e)
}

// draw has the device have a secret of its own, and keep no proof.
func (w *Wallet) draw() (secret [visit.SecretSize]byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.kept.known && string(w.kept.enrolment.Proof) != asItself {
		e := visit.Enrolment{Proof: []byte(asItself)}
		rand.Read(e.Secret[:])
		if err := w.save(func(k *kept) { k.enrolment = e }); err != nil {
			return secret, err
		}
	}
	return w.kept.enrolment.Secret, nil
}

// knows takes down that the attester knows the device by an enrolment. w.mu must be held.
func (w *Wallet) knows(e visit.Enrolment) error {
	if w.kept.known || e.Secret != w.kept.enrolment.Secret {
		return nil
	}
	return w.save(func(k *kept) { k.known = true })
}
