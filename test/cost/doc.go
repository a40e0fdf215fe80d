// Package cost measures what a report costs the servers. Its benchmark sends uploads
// through a gateway, a leader and a helper, on disks of the machine, and holds the
// processor time of the three together to that of what cannot be left out: opening three
// HPKE ciphertexts, reading and checking the report, and verifying its proof on both
// sides. The goal is 1.5 times as much; docs/bench/report-cost.md has the figures.
//
//	go test ./test/cost -run '^$' -bench . -benchtime 3x
package cost
