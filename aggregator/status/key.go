package status

import (
	"fmt"
	"time"
)

// States of a key.
const (
	KeyWaiting    = "waiting"    // made, and not offered before every replica holds it
	KeyCurrent    = "current"    // offered to clients; Until: when the next one is made
	KeyAccepted   = "accepted"   // followed by a newer one, taken for clients that do not know that one; Until: no longer than then
	KeyRetiring   = "retiring"   // no longer taken, opens what was taken before; Until: kept at least until then
	KeyDestroyed  = "destroyed"  // gone; its id is not used again yet; Until: when it was destroyed
	KeyConfigured = "configured" // the operator's own, for as long as the configuration names it
)

// Key is an HPKE key that clients seal to, or did. It holds nothing of the key itself.
type Key struct {
	ID      uint8     `json:"id"`
	KEM     string    `json:"kem"`
	State   string    `json:"state"`
	Created time.Time `json:"created,omitzero"` // its age is that of Status.Now
	Until   time.Time `json:"until,omitzero"`   // see the states
	Why     string    `json:"why,omitempty"`    // what a retiring key was needed for when it was last asked
}

// keyPatience is how long after its end a key may be needed before that is a fault.
const keyPatience = 24 * time.Hour

// Overdue says why a key should have ended long ago, or has not been followed by another;
// nil is good.
func (k *Key) Overdue(now time.Time) error {
	late := now.Sub(k.Until)
	switch {
	case k.State == KeyRetiring && late > keyPatience && k.Why != "":
		return fmt.Errorf("key %d should have been destroyed %s ago: %s", k.ID, late.Round(time.Minute), k.Why)
	case k.State == KeyRetiring && late > keyPatience:
		return fmt.Errorf("key %d should have been destroyed %s ago", k.ID, late.Round(time.Minute))
	case k.State == KeyCurrent && late > time.Hour:
		return fmt.Errorf("key %d should have been followed by another %s ago", k.ID, late.Round(time.Minute))
	}
	return nil
}
