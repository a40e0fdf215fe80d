package dap

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"net/url"

	"github.com/starling-agg/starling/vdaf"
)

// BatchMode says how reports form batches (section 5). Unknown modes are refused wherever
// they are read.
type BatchMode uint8

const (
	TimeInterval   BatchMode = 1 // by time, as the collector asks
	LeaderSelected BatchMode = 2 // as the leader likes
)

func (m BatchMode) String() string {
	return name([]string{1: "time-interval", "leader-selected"}, int(m), "batch mode")
}

func (m *BatchMode) code(c *coder) {
	c.Uint8((*uint8)(m), "batch_mode")
	c.Check(*m == TimeInterval || *m == LeaderSelected, "unknown batch_mode")
}

// TaskConfiguration is what all parties of a task agree on (section 4.2). It is part of
// the additional data of every sealed share, so it travels as the bytes that were
// provisioned: make one with [ReadTaskConfiguration] or [NewTaskConfiguration] and bind
// its Bytes. The fields are for reading.
type TaskConfiguration struct {
	// Version is the draft that the task speaks. It stands beside the configuration and
	// not in it.
	Version Version

	TaskInfo      []byte // 0 or, in draft 18, 1 to 255 bytes; a recipe's id, or something of somebody else's
	Leader        []byte // URL in ASCII. Opaque: no slash or case of it may be mended; see BaseURL for routing
	Helper        []byte
	TimePrecision TimePrecision
	MinBatchSize  uint64
	BatchMode     BatchMode
	BatchConfig   []byte // empty in both modes
	VDAFType      uint32
	VDAFConfig    []byte // see ReadVDAFConfig
	Extensions    Extensions

	raw []byte
}

func (t *TaskConfiguration) code(c *coder) {
	c.Vec8(&t.TaskInfo, t.Version.leastInfo(), "task_info")
	c.Vec16(&t.Leader, 1, "leader_aggregator_endpoint")
	c.Vec16(&t.Helper, 1, "helper_aggregator_endpoint")
	c.Check(ascii(t.Leader) && ascii(t.Helper), "endpoint is not ASCII")
	c.Uint64((*uint64)(&t.TimePrecision), "time_precision")
	c.Uint64(&t.MinBatchSize, "min_batch_size")
	t.BatchMode.code(c)
	c.Vec16(&t.BatchConfig, 0, "batch_config")
	c.Uint32(&t.VDAFType, "vdaf_type")
	c.Vec16(&t.VDAFConfig, 0, "vdaf_configuration")
	t.Extensions.code(c)
}

// Append encodes the fields.
func (t *TaskConfiguration) Append(dst []byte) ([]byte, error) { return encode(dst, t) }

// ReadTaskConfiguration reads exactly one configuration, of a task that speaks v, and
// keeps a copy of its bytes. It checks the encoding only; see
// [TaskConfiguration.Validate].
func ReadTaskConfiguration(v Version, b []byte) (*TaskConfiguration, error) {
	b = bytes.Clone(b)
	t := &TaskConfiguration{Version: v}
	if err := decodeInto(reader(Dialect{}, b), t); err != nil {
		return nil, err
	}
	t.raw = b
	return t, nil
}

// NewTaskConfiguration encodes the fields of t, validates them and returns the
// configuration that holds those bytes.
func NewTaskConfiguration(t TaskConfiguration) (*TaskConfiguration, error) {
	b, err := t.Append(nil)
	if err != nil {
		return nil, err
	}
	read, err := ReadTaskConfiguration(t.Version, b)
	if err != nil {
		return nil, err
	}
	return read, read.Validate()
}

// Bytes are the provisioned bytes, to be bound and not to be changed.
func (t *TaskConfiguration) Bytes() []byte {
	if t.raw == nil {
		panic("dap: internal error: TaskConfiguration was neither read nor made by NewTaskConfiguration")
	}
	return t.raw
}

// TaskID is the task's id: [ConfigurationID] of its bytes.
func (t *TaskConfiguration) TaskID() TaskID { return ConfigurationID(t.Bytes()) }

// ConfigurationID is the id of the task that those bytes configure, which need not be
// valid, by the formula of draft-ietf-ppm-dap-taskprov:
// SHA-256(SHA-256("dap-taskprov task id") || config).
func ConfigurationID(config []byte) TaskID {
	h := sha256.New()
	label := sha256.Sum256([]byte("dap-taskprov task id"))
	h.Write(label[:])
	h.Write(config)
	return TaskID(h.Sum(nil))
}

// Validate says whether we can take part in the task: a time precision and a minimum
// batch size of 1 or more, https endpoints (or http: where that is safe is for the
// parties to say), an empty batch configuration, a known VDAF with sensible parameters,
// and extensions that are all known, in order and well-formed (one that is not refuses
// the whole task).
func (t *TaskConfiguration) Validate() error {
	bad := func(format string, a ...any) error { return fmt.Errorf("dap: task configuration: "+format, a...) }
	if t.TimePrecision < 1 || t.MinBatchSize < 1 {
		return bad("time precision %d and minimum batch size %d must be 1 or more", t.TimePrecision, t.MinBatchSize)
	}
	for _, endpoint := range [][]byte{t.Leader, t.Helper} {
		if _, err := BaseURL(endpoint); err != nil {
			return err
		}
	}
	if len(t.BatchConfig) > 0 {
		return bad("%v batches take no configuration", t.BatchMode)
	}
	if _, err := ReadVDAFConfig(t.VDAFType, t.VDAFConfig); err != nil {
		return err
	}
	if !t.Extensions.Increasing() {
		return bad("extensions are out of order")
	}
	if u := t.Extensions.Unknown(ExtTaskInterval); u != nil {
		return bad("unknown extensions %v", u)
	}
	if data, ok := t.Extensions.Get(ExtTaskInterval); ok {
		if iv, err := ReadInterval(data); err != nil || !iv.Valid() {
			return bad("malformed task interval")
		}
	}
	return nil
}

// Interval is the time in which reports may be made (the task_interval extension, section
// 4.2.3), and false where the task has no such bounds. A malformed one, which Validate
// refuses, is the empty interval: no report is in it.
func (t *TaskConfiguration) Interval() (Interval, bool) {
	data, ok := t.Extensions.Get(ExtTaskInterval)
	if !ok {
		return Interval{}, false
	}
	iv, err := ReadInterval(data)
	if err != nil || !iv.Valid() {
		return Interval{}, true
	}
	return iv, true
}

// WithTaskInterval is e with the task_interval extension at its end.
func (e Extensions) WithTaskInterval(iv Interval) (Extensions, error) {
	data, err := iv.Append(nil)
	if err != nil {
		return e, err
	}
	return e.With(ExtTaskInterval, data)
}

// VerifyKeySize is the length of a VDAF verification key in bytes.
const VerifyKeySize = vdaf.VerifyKeySize

// DeriveVerifyKey derives a task's VDAF verification key from a secret that leader and
// helper share, by the formula of draft-ietf-ppm-dap-taskprov: HKDF-SHA-256 with salt
// SHA-256("dap-taskprov") and info task id. As the seed is older than any report, so is
// the key. Clients must not know the seed. (DAP's own suggestion, section 8.6.2, is the
// same with another salt; both sides of a task need the same one, and ours goes with
// [TaskConfiguration.TaskID].)
func DeriveVerifyKey(seed []byte, task TaskID) (key [VerifyKeySize]byte, err error) {
	if len(seed) < VerifyKeySize {
		return key, fmt.Errorf("dap: the verification key seed has %d bytes, fewer than %d", len(seed), VerifyKeySize)
	}
	salt := sha256.Sum256([]byte("dap-taskprov"))
	b, err := hkdf.Key(sha256.New, seed, salt[:], string(task[:]), len(key))
	if err != nil {
		return key, fmt.Errorf("dap: derive verification key: %w", err)
	}
	copy(key[:], b)
	return key, nil
}

// BaseURL parses an endpoint for routing. The bytes that are bound stay as they are.
func BaseURL(endpoint []byte) (*url.URL, error) {
	u, err := url.Parse(string(endpoint))
	switch {
	case err != nil:
		return nil, fmt.Errorf("dap: endpoint: %w", err)
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", u.User != nil,
		u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return nil, fmt.Errorf("dap: endpoint %q is not an absolute http or https URL without user, query and fragment", endpoint)
	}
	return u, nil
}

func ascii(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}
