// Package hostile plays attackers against leader, helper, gateway, relay, device and
// collector as they are started in earnest, over sockets of this machine. Each attack is
// refused by the party that can see it, with a reason of a closed set, and changes
// nothing that is counted. docs/attacks.md lists them; a test holds the list to the
// tests.
package hostile
