// Package taskprov reads and writes the advertisement of a task: the configuration of the
// task in a header of each request about it, so that an aggregator which does not have the
// task yet can take part in it (draft-ietf-ppm-dap-taskprov-04; section numbers in comments
// are that draft's). It is pure, as package dap is.
//
// An advertisement says what a task is, and proves nothing: whoever makes tasks may be
// anybody. Whether an aggregator takes part is for it to decide (section 3.5), by who sends
// the request and by what the task is. The task's id is the hash of the very bytes that the
// header carries ([dap.TaskConfiguration.TaskID]), and its verification key follows from
// the id and a secret that leader and helper have beforehand ([dap.DeriveVerifyKey]), so
// that nobody can have one task taken for another.
package taskprov

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/starling-agg/starling/dap"
)

// Header is the field that advertises a task.
const Header = "DAP-Taskprov"

// MaxConfiguration is the length in bytes of the longest configuration that is advertised
// or read. The draft has no bound; those of the draft's VDAFs take some 200 bytes beside
// the two URLs.
const MaxConfiguration = 6 << 10

// maxValue bounds what is parsed: base64 of the longest configuration, and room for
// parameters, which are ignored.
const maxValue = MaxConfiguration/3*4 + 512

// SeedSize is the length in bytes of the secret from which verification keys follow (the
// draft's verify_key_init).
const SeedSize = 32

var (
	// ErrNone: the request advertises no task. A field that is no byte sequence is as good
	// as none: the draft has it ignored.
	ErrNone = errors.New("taskprov: no task is advertised")
	// ErrLong: the configuration is longer than [MaxConfiguration].
	ErrLong = fmt.Errorf("taskprov: the configuration is longer than %d bytes", MaxConfiguration)
)

// An Advertisement is what a request says of its task.
type Advertisement struct {
	// Config has the bytes of the TaskConfiguration, as they were advertised.
	Config []byte
	// Framing is how they came: as Janus writes them, or as the draft does.
	Framing dap.Framing
}

// Value is the value of [Header] for a configuration: a byte sequence, or the same bytes in
// base64url where the framing is Janus's.
func Value(f dap.Framing, config []byte) (string, error) {
	if len(config) > MaxConfiguration {
		return "", ErrLong
	}
	if f == dap.Janus {
		return base64.RawURLEncoding.EncodeToString(config), nil
	}
	return httpsfv.Marshal(httpsfv.NewItem(config))
}

// Parse reads the values of [Header] of one request. It fails with [ErrNone] where they are
// not one value of either framing, and with [ErrLong]; it does not look into the bytes.
// Parameters are ignored, as long as they are well-formed.
func Parse(values []string) (*Advertisement, error) {
	size := 0
	for _, v := range values {
		size += len(v)
	}
	if size == 0 {
		return nil, ErrNone
	}
	if size > maxValue {
		return nil, ErrLong
	}
	a := new(Advertisement)
	if len(values) == 1 && isJanus(values[0]) {
		config, err := base64.RawURLEncoding.Strict().DecodeString(values[0])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNone, err)
		}
		a.Config, a.Framing = config, dap.Janus
	} else {
		item, err := httpsfv.UnmarshalItem(values)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNone, err)
		}
		config, ok := item.Value.([]byte)
		if !ok {
			return nil, fmt.Errorf("%w: the field is no byte sequence", ErrNone)
		}
		a.Config = config
	}
	if len(a.Config) > MaxConfiguration {
		return nil, ErrLong
	}
	return a, nil
}

// isJanus says whether a value has nothing but base64url. Some such values are items of the
// draft's framing as well, numbers and tokens, which it ignores.
func isJanus(v string) bool {
	return strings.IndexFunc(v, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_')
	}) < 0
}

// TaskID is the id of the task (section 3.3).
func (a *Advertisement) TaskID() dap.TaskID { return dap.ConfigurationID(a.Config) }
