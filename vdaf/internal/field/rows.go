package field

import "math/bits"

// tile is the number of columns that Rows sums at a time: their part of a row is
// contiguous, and their sums stay in the first-level cache.
const tile = 128

func (f *Small) Rows(dst, w, a []uint64, chunk int) {
	var lo, hi [tile]uint64
	for at := 0; at < chunk; at += tile {
		n := min(tile, chunk-at)
		clear(lo[:n])
		clear(hi[:n])
		for i, x := range w {
			row := span(a, i*chunk+at, n)
			l, h := lo[:len(row)], hi[:len(row)]
			for j, y := range row {
				u, v := bits.Mul64(x, y)
				var c uint64
				l[j], c = bits.Add64(l[j], v, 0)
				h[j] += u + c
			}
		}
		for j := range n {
			dst[at+j] = reduceSmall(hi[j], lo[j], f.p, f.m, f.k)
		}
	}
}

func (Field64) Rows(dst, w, a []uint64, chunk int) {
	var s0, s1, s2 [tile]uint64
	for at := 0; at < chunk; at += tile {
		n := min(tile, chunk-at)
		clear(s0[:n])
		clear(s1[:n])
		clear(s2[:n])
		for i, x := range w {
			row := span(a, i*chunk+at, n)
			t0, t1, t2 := s0[:len(row)], s1[:len(row)], s2[:len(row)]
			for j, y := range row {
				h, l := bits.Mul64(x, y)
				var c uint64
				t0[j], c = bits.Add64(t0[j], l, 0)
				t1[j], c = bits.Add64(t1[j], h, c)
				t2[j] += c
			}
		}
		for j := range n {
			dst[at+j] = fold64(s2[j], s1[j], s0[j])
		}
	}
}

func (f Field128) Rows(dst, w, a []uint64, chunk int) {
	n := len(a) / 2
	for j := range chunk {
		k := rows(n, j, chunk)
		f.Put(dst, j, f.Dot(w[:2*min(k, len(w)/2)], a[min(2*j, len(a)):], chunk))
	}
}

// span is a[at:at+n], or what there is of it.
func span(a []uint64, at, n int) []uint64 {
	at = min(at, len(a))
	return a[at:min(at+n, len(a))]
}

func (f *Small) AddProducts(dst, a, b []uint64, step int) {
	p, m, k := f.p, f.m, f.k
	b = b[:len(a)]
	for i, x := range a {
		h, l := bits.Mul64(x, b[i])
		l, c := bits.Add64(l, dst[i*step], 0)
		dst[i*step] = reduceSmall(h+c, l, p, m, k)
	}
}

func (Field64) AddProducts(dst, a, b []uint64, step int) {
	b = b[:len(a)]
	for i, x := range a {
		dst[i*step] = add64(dst[i*step], reduce64(bits.Mul64(x, b[i])))
	}
}

func (Field128) AddProducts(dst, a, b []uint64, step int) {
	b = b[:len(a)]
	for i := 0; i+1 < len(a); i += 2 {
		x, y := mul128(a[i], a[i+1], b[i], b[i+1])
		dst[i*step], dst[i*step+1] = add128(dst[i*step], dst[i*step+1], x, y)
	}
}
