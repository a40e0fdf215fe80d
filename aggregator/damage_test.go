package aggregator_test

import (
	"encoding/binary"
)

// sumPage puts the checksum of a database's page at its end, as who writes it knowingly does.
func sumPage(page []byte) {
	var s0, s1 uint32
	b := page[:len(page)-8]
	for ; len(b) > 0; b = b[8:] {
		s0 += binary.LittleEndian.Uint32(b) + s1
		s1 += binary.LittleEndian.Uint32(b[4:]) + s0
	}
	binary.LittleEndian.PutUint32(page[len(page)-8:], s0)
	binary.LittleEndian.PutUint32(page[len(page)-4:], s1)
}
