// Package p256test measures in units of the group, so that figures of a busy machine can
// be compared. Nothing but tests may import it.
package p256test
