package field

import (
	"encoding/binary"

	"github.com/starling-agg/starling/vdaf/internal/kernel"
)

var _ = kernel.Register("field.Ternary", kernel.Go, true, nil)

// TernaryBlock is the number of entries that Ternary takes at a time; what it is given is
// padded to a multiple.
const TernaryBlock = 64

// Ternary adds to sums[t] the dot product of v with row t of a matrix of coefficients -1,
// 0 and 1, for every t below len(sums). Row t starts at byte t*stride of codes, four
// entries to a byte, lowest bits first: 00 is -1, 01 and 10 are 0, 11 is 1. len(v) is a
// multiple of TernaryBlock, and so many codes are read of each row. Sums must not
// overflow; what stands for padding is zero in v, with any code.
//
// As a coefficient is the sum of its two bits less one, a row is two sums of subsets less
// the sum of all. The subsets of eight entries are tabulated: 256 additions serve two
// look-ups in each row (the "four Russians"). The order of look-ups depends on codes,
// which are public, not on v.
func Ternary(sums, v []int64, codes []byte, stride int) {
	if len(sums) == 0 {
		return
	}
	var table [8][256]int64
	for at := 0; at+TernaryBlock <= len(v); at += TernaryBlock {
		block := (*[TernaryBlock]int64)(v[at:])
		var all int64
		for _, x := range block {
			all += x
		}
		// Table k has entries 4k to 4k+3 at the even bits of its index and those 32
		// further on at the odd ones.
		for k := range table {
			lo, hi := block[4*k:4*k+4], block[32+4*k:32+4*k+4]
			subsets(&table[k], &[8]int64{lo[0], hi[0], lo[1], hi[1], lo[2], hi[2], lo[3], hi[3]})
		}
		pos := at / 4
		for t := range sums {
			b := (*[16]byte)(codes[pos:])
			pos += stride
			x, y := binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])
			const even = 0x5555555555555555
			p, q := x&even|y&even<<1, x>>1&even|y&^even
			s0 := table[0][p&255] + table[0][q&255]
			s1 := table[1][p>>8&255] + table[1][q>>8&255]
			s2 := table[2][p>>16&255] + table[2][q>>16&255]
			s3 := table[3][p>>24&255] + table[3][q>>24&255]
			s0 += table[4][p>>32&255] + table[4][q>>32&255]
			s1 += table[5][p>>40&255] + table[5][q>>40&255]
			s2 += table[6][p>>48&255] + table[6][q>>48&255]
			s3 += table[7][p>>56] + table[7][q>>56]
			sums[t] += s0 + s1 + s2 + s3 - all
		}
	}
}

// subsets sets t[m] to the sum of the elements of e whose bit is set in m.
func subsets(t *[256]int64, e *[8]int64) {
	t[0] = 0
	for i := range 4 {
		for j := range 1 << i {
			t[1<<i+j] = t[j] + e[i]
		}
	}
	a0, a1, a2, a3, a4, a5, a6, a7 := t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7]
	up := t[8] // = e[3]
	var high [16]int64
	for i := range 4 {
		for j := range 1 << i {
			high[1<<i+j] = high[j] + e[4+i]
		}
	}
	for m := 1; m < 16; m++ {
		b := high[m]
		r := (*[16]int64)(t[16*m:])
		r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7] = a0+b, a1+b, a2+b, a3+b, a4+b, a5+b, a6+b, a7+b
		b += up
		r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15] = a0+b, a1+b, a2+b, a3+b, a4+b, a5+b, a6+b, a7+b
	}
}
