package noise

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
)

// KeySize is the length of a [Key], in bytes.
const KeySize = 32

// A Key makes noise that is a function of what it covers: the same sum meets the same
// draws whenever it is asked for, and another sum meets others. An attacker who puts a
// server's files back and asks again learns nothing by it, so nothing is averaged away.
// Without the key the draws cannot be told from [Sampler.Sample]'s; the proof, and what
// the key's thief can do, stand in docs/proofs/noise-keys.md.
//
// A Key is 32 uniform bytes of crypto/rand, used for nothing else.
type Key [KeySize]byte

// keyDomain opens what is hashed into the seed of one vector of draws.
const keyDomain = "starling noise v1"

// Sample fills dst with the draws of s that the key and the parts determine: by the
// distribution of s, independent for each other list of parts, as far as anybody can tell
// who has not the key. The parts are encoded so that no two lists are taken for one.
//
// The draws are exact, as [Sampler.Sample]'s are: the same comparisons are made with
// another source of bits, AES-256 in counter mode under the key
//
//	HMAC-SHA256(key, "starling noise v1" || 0 || parts),   a part: its length (8 bytes), its bytes
//
// What the time that it takes tells is told by the draws, and by the lengths of parts
// and dst; nothing branches on a part's bytes.
func (k *Key) Sample(s Sampler, dst []int64, parts ...[]byte) {
	stream := k.stream(parts)
	switch s := s.(type) {
	case *DiscreteGaussian:
		if s.src == rand.Reader { // else a twin of package noisetest, which stays one
			c := *s
			c.src = stream
			s = &c
		}
		s.Sample(dst)
	case *DiscreteLaplace:
		if s.src == rand.Reader {
			c := *s
			c.src = stream
			s = &c
		}
		s.Sample(dst)
	case *DiscreteLaplaceShare:
		if s.whole.src == rand.Reader {
			c := *s
			c.whole.src = stream
			s = &c
		}
		s.Sample(dst)
	case Zero:
		s.Sample(dst)
	default:
		panic(fmt.Sprintf("noise: internal error: no keyed draws of %T", s))
	}
}

// stream is the endless source of bits of a list of parts.
func (k *Key) stream(parts [][]byte) io.Reader {
	mac := hmac.New(sha256.New, k[:])
	mac.Write([]byte(keyDomain))
	mac.Write([]byte{0})
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		mac.Write(n[:])
		mac.Write(p)
	}
	var seed [sha256.Size]byte
	mac.Sum(seed[:0])
	defer clear(seed[:])
	block, err := aes.NewCipher(seed[:])
	if err != nil {
		panic("noise: internal error: " + err.Error()) // 32 bytes are a key
	}
	return keyStream{cipher.NewCTR(block, make([]byte, aes.BlockSize))}
}

// A keyStream reads a key stream, which never ends: no draw comes near the 2^68 bytes
// after which the counter would come round.
type keyStream struct{ cipher.Stream }

func (s keyStream) Read(p []byte) (int, error) {
	clear(p)
	s.XORKeyStream(p, p)
	return len(p), nil
}
