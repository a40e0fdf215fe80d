package admission

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/anonymity/voprf"
)

// Field is the name of the header field, in the request that is sealed and nowhere else.
const Field = "starling-admission"

// fieldSize is the length of its value, in bytes.
const fieldSize = (8 + voprf.TokenSize) * 4 / 3

// ErrField: a value of the field that no device writes.
var ErrField = errors.New("admission: malformed field")

// encoding has one text for each token: 72 bytes leave no bits over.
var encoding = base64.RawURLEncoding.Strict()

// Value is the field's value for a token of a round: base64url of the round's number in 64
// bits and the token, always 96 bytes.
func Value(round uint64, t voprf.Token) string {
	return encoding.EncodeToString(t.Append(binary.BigEndian.AppendUint64(nil, round)))
}

// ReadValue reads what [Value] wrote. Whether the token is of the round's key is for
// [voprf.Key.Admit] to say. The error wraps [ErrField].
func ReadValue(s string) (round uint64, t voprf.Token, err error) {
	if len(s) != fieldSize {
		return 0, t, fmt.Errorf("%w: %d bytes, not %d", ErrField, len(s), fieldSize)
	}
	b, err := encoding.AppendDecode(nil, []byte(s))
	if err != nil || len(b) != 8+voprf.TokenSize { // base64 skips line ends
		return 0, t, fmt.Errorf("%w: not base64url", ErrField)
	}
	t, err = voprf.ReadToken(b[8:])
	return binary.BigEndian.Uint64(b), t, err
}
