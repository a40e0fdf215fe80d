package scan

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

const (
	// keySize is how many bytes of a pattern are looked for first: no pattern is shorter.
	keySize = 6
	// pieceSize is how much of a needle is enough: a log line may cut it off, and a page of a
	// database may end within it.
	pieceSize = 8
	// sieveBits is the size of the table that most positions end at.
	sieveBits = 20
)

// A pattern is one spelling of a needle, or of a piece of it.
type pattern struct {
	bytes []byte
	kind  string // of the needle
	form  string // of the spelling
	alone bool   // no letter or digit stands beside it: it is short
}

// A finder looks for many patterns at one time. A table of bits lets nearly all positions
// pass by in a few instructions each. Safe for concurrent use: addresses come while
// connections are made.
type finder struct {
	mu       sync.Mutex
	sieve    [1 << sieveBits / 64]uint64
	patterns map[uint64][]pattern // by their first keySize bytes
	seen     map[string]bool      // kind and bytes of each
}

func newFinder() *finder {
	return &finder{patterns: make(map[uint64][]pattern), seen: make(map[string]bool)}
}

func sieveOf(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> (64 - sieveBits) }

func (f *finder) add(p pattern) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id := p.kind + "\x00" + string(p.bytes); len(p.bytes) < keySize || f.seen[id] {
		return
	} else {
		f.seen[id] = true
	}
	var key uint64
	for _, b := range p.bytes[:keySize] {
		key = key<<8 | uint64(b)
	}
	at := sieveOf(key)
	f.sieve[at/64] |= 1 << (at % 64)
	f.patterns[key] = append(f.patterns[key], p)
}

// find calls hit with each pattern in b, and where it begins.
func (f *finder) find(b []byte, hit func(p *pattern, at int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var key uint64
	for i, c := range b {
		key = (key<<8 | uint64(c)) & (1<<(8*keySize) - 1)
		at := sieveOf(key)
		if f.sieve[at/64]>>(at%64)&1 == 0 || i+1 < keySize {
			continue
		}
		begin := i + 1 - keySize
		for j := range f.patterns[key] {
			p := &f.patterns[key][j]
			if bytes.HasPrefix(b[begin:], p.bytes) && (!p.alone || alone(b, begin, begin+len(p.bytes))) {
				hit(p, begin)
			}
		}
	}
}

func alone(b []byte, from, to int) bool {
	word := func(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' }
	return (from == 0 || !word(b[from-1])) && (to == len(b) || !word(b[to]))
}

// needle has the finder look for a secret of random bytes in all its spellings. Any
// pieceSize bytes of it that begin at a multiple of that, and its last ones, are enough.
func (f *finder) needle(kind string, b []byte) {
	f.spell(kind, b)
	for i := 0; i+pieceSize <= len(b); i += pieceSize {
		f.spell(kind, b[i:i+pieceSize])
	}
	if len(b) > pieceSize {
		f.spell(kind, b[len(b)-pieceSize:])
	}
}

// text does so for one that is text, as it is and in the other case.
func (f *finder) text(kind, s string) {
	for _, s := range []string{s, strings.ToLower(s), strings.ToUpper(s)} {
		f.spell(kind, []byte(s))
	}
}

// address does so for a device's.
func (f *finder) address(at netip.AddrPort) {
	const kind = "address"
	four := at.Addr().Unmap().As4()
	f.text(kind, at.Addr().String())
	sixteen := at.Addr().As16()
	f.spell(kind, sixteen[:])
	number := binary.BigEndian.Uint32(four[:])
	for form, s := range map[string]string{"hex": fmt.Sprintf("%08x", number), "HEX": fmt.Sprintf("%08X", number), "decimal": fmt.Sprint(number)} {
		f.add(pattern{[]byte(s), kind, form, true})
	}
	port := at.Port()
	for form, s := range map[string][]byte{
		"address and port": binary.BigEndian.AppendUint16(four[:], port), "address and port, as netip": binary.LittleEndian.AppendUint16(four[:], port),
		"sockaddr": append(binary.BigEndian.AppendUint16(nil, port), four[:]...),
	} {
		f.add(pattern{bytes: s, kind: kind, form: form})
	}
}

// spell adds the spellings of some bytes, all of them or a piece.
func (f *finder) spell(kind string, b []byte) {
	if len(b) >= pieceSize && distinct(b) < 4 {
		return // as a run of zeros, which everything has
	}
	for form, text := range spellings(b) {
		f.add(pattern{bytes: text, kind: kind, form: form})
	}
}

func distinct(b []byte) int {
	list := slices.Clone(b)
	slices.Sort(list)
	return len(slices.Compact(list))
}

// spellings are how some bytes are written, by the name of each.
func spellings(b []byte) map[string][]byte {
	x := hex.EncodeToString(b)
	out := map[string][]byte{"raw": b, "hex": []byte(x), "HEX": []byte(strings.ToUpper(x))}
	joined := func(format, by string) string {
		parts := make([]string, len(b))
		for i, c := range b {
			parts[i] = fmt.Sprintf(format, c)
		}
		return strings.Join(parts, by)
	}
	for _, by := range []string{" ", ",", ", "} {
		out[fmt.Sprintf("decimal by %q", by)] = []byte(joined("%d", by))
	}
	for _, by := range []string{" ", ":", "-", `\x`} {
		out[fmt.Sprintf("hex by %q", by)] = []byte(joined("%02x", by))
	}
	if len(b) == 16 {
		out["uuid"] = []byte(x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:])
	}
	little := slices.Clone(b)
	slices.Reverse(little)
	for form, b := range map[string][]byte{"number": b, "number, little end first": little} {
		if s := new(big.Int).SetBytes(b).String(); len(s) >= 12 {
			out[form] = []byte(s)
		}
	}
	// What stands before a piece shifts its bits: only the letters that are the piece's own
	// are looked for, whatever is beside it.
	for name, e := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
		for shift := range 3 {
			text := e.EncodeToString(append(make([]byte, shift), b...))
			out[fmt.Sprint(name, " after ", shift)] = []byte(text[(8*shift+5)/6 : 8*(shift+len(b))/6])
		}
	}
	for shift := range 5 {
		text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(append(make([]byte, shift), b...))
		out[fmt.Sprint("base32 after ", shift)] = []byte(text[(8*shift+4)/5 : 8*(shift+len(b))/5])
	}
	return out
}
