package store

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"

	"github.com/starling-agg/starling/dap"
)

// ResourceID is the name of a [Resource] under a key of the store.
func ResourceID(key []byte, task dap.TaskID, kind Kind, generation uint64, digest [32]byte) string {
	m := hmac.New(sha256.New, key)
	m.Write(task[:])
	m.Write([]byte{byte(kind)})
	m.Write(binary.BigEndian.AppendUint64(nil, generation))
	m.Write(digest[:])
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// Identity is the digest by which a resource is found: that of its body, and of the id
// where the peer chose one, for the same body may then come under several.
func Identity(id string, body []byte) [32]byte {
	digest := sha256.Sum256(body)
	if id == "" {
		return digest
	}
	return sha256.Sum256(append([]byte(id), digest[:]...))
}

// Encode is what the columns "selection" hold: an interval or a batch id, by the task's
// mode.
func (s Selection) Encode(mode dap.BatchMode) []byte {
	if mode == dap.LeaderSelected {
		return bytes.Clone(s.ID[:])
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(s.Interval.Start))
	return binary.BigEndian.AppendUint64(b, uint64(s.Interval.Duration))
}

// DecodeSelection reads what Encode gave in a task of that mode.
func DecodeSelection(mode dap.BatchMode, b []byte) (s Selection, err error) {
	switch {
	case mode == dap.LeaderSelected && len(b) == len(s.ID):
		s.ID = dap.BatchID(b)
	case mode == dap.TimeInterval && len(b) == 16:
		s.Interval.Start = dap.Time(binary.BigEndian.Uint64(b))
		s.Interval.Duration = dap.Duration(binary.BigEndian.Uint64(b[8:]))
	default:
		err = errors.New("stored selection: wrong length")
	}
	return s, err
}
