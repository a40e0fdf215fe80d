package dap

import (
	"fmt"

	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/sealed"
)

// Role is a party, as it stands in HPKE info strings (section 4.1).
type Role uint8

const (
	RoleCollector Role = 0
	RoleClient    Role = 1
	RoleLeader    Role = 2
	RoleHelper    Role = 3
)

func (r Role) String() string {
	return name([]string{"collector", "client", "leader", "helper"}, int(r), "role")
}

// HpkeCiphertext is a sealed message and what opening it needs. Both byte strings are
// non-empty.
type HpkeCiphertext struct {
	ConfigID uint8
	Enc      []byte
	Payload  []byte
}

func (m *HpkeCiphertext) code(c *coder) {
	c.Uint8(&m.ConfigID, "config_id")
	c.Vec16(&m.Enc, 1, "enc")
	c.Vec32(&m.Payload, 1, "ciphertext")
}

// Append appends the encoding.
func (m HpkeCiphertext) Append(dst []byte) ([]byte, error) { return encode(dst, &m) }

// HpkeConfig is a public key that a party advertises (section 4.4.1).
type HpkeConfig struct {
	ID             uint8
	KEM, KDF, AEAD uint16
	Key            []byte // serialized public key
}

func (m *HpkeConfig) code(c *coder) {
	c.Uint8(&m.ID, "config id")
	c.Uint16(&m.KEM, "kem_id")
	c.Uint16(&m.KDF, "kdf_id")
	c.Uint16(&m.AEAD, "aead_id")
	c.Vec16(&m.Key, 1, "public_key")
}

// Append appends the encoding.
func (m HpkeConfig) Append(dst []byte) ([]byte, error) { return encode(dst, &m) }

// ReadHpkeConfig reads exactly one; it aliases b.
func ReadHpkeConfig(b []byte) (HpkeConfig, error) { return decode[HpkeConfig](b) }

// NewHpkeConfig advertises a key pair.
func NewHpkeConfig(k *sealed.KeyPair) HpkeConfig {
	s := k.Public().Suite()
	return HpkeConfig{k.ID(), s.KEM, s.KDF, s.AEAD, k.Public().Bytes()}
}

// PublicKey parses the key; it fails with [sealed.ErrSuite] or [sealed.ErrKey]. A caller
// that seals often keeps the result.
func (m HpkeConfig) PublicKey() (*sealed.PublicKey, error) {
	return sealed.NewPublicKey(sealed.Suite{KEM: m.KEM, KDF: m.KDF, AEAD: m.AEAD}, m.Key)
}

// Seal seals one message to the config: [HpkeConfig.PublicKey] and
// [sealed.PublicKey.Seal] in one.
func Seal(cfg HpkeConfig, info, aad, plaintext []byte) (HpkeCiphertext, error) {
	key, err := cfg.PublicKey()
	if err != nil {
		return HpkeCiphertext{}, err
	}
	enc, payload, err := key.Seal(info, aad, plaintext)
	return HpkeCiphertext{cfg.ID, enc, payload}, err
}

// HpkeConfigList is what an aggregator answers at hpke_config: 1 or more configs of
// distinct ids, best first.
type HpkeConfigList []HpkeConfig

func (l *HpkeConfigList) code(c *coder) {
	c.Nested16("HpkeConfigList", func() {
		var ids [256]bool
		wire.Items(&c.Coder, (*[]HpkeConfig)(l), func(_ int, m *HpkeConfig) {
			m.code(c)
			c.Check(!ids[m.ID], "two configs have one id")
			ids[m.ID] = true
		})
		c.Check(len(*l) > 0, "HpkeConfigList is empty")
	})
}

// Append appends the encoding.
func (l HpkeConfigList) Append(dst []byte) ([]byte, error) { return encode(dst, &l) }

// ReadHpkeConfigList reads exactly one list; it aliases b. Configs of unknown suites are
// kept, see [HpkeConfigList.Choose].
func ReadHpkeConfigList(b []byte) (HpkeConfigList, error) { return decode[HpkeConfigList](b) }

// Choose is the first config that we can seal to; a client aborts if there is none
// ([sealed.ErrSuite]).
func (l HpkeConfigList) Choose() (HpkeConfig, error) {
	for _, m := range l {
		if _, err := m.PublicKey(); err == nil {
			return m, nil
		}
	}
	return HpkeConfig{}, fmt.Errorf("dap: none of %d HPKE configs can be used: %w", len(l), sealed.ErrSuite)
}

// OnePerKEM says whether no two configs are of one KEM.
func (l HpkeConfigList) OnePerKEM() bool {
	seen := make(map[uint16]bool)
	for _, m := range l {
		if seen[m.KEM] {
			return false
		}
		seen[m.KEM] = true
	}
	return true
}

// InputShareAAD is the additional data of both input shares of a report: task id,
// configuration, metadata and public share. config is the provisioned encoding, see
// [TaskConfiguration.Bytes].
func InputShareAAD(task TaskID, config []byte, m *ReportMetadata, publicShare []byte) []byte {
	return AppendInputShareAAD(nil, task, config, m, publicShare)
}

// AppendInputShareAAD is [InputShareAAD] into the caller's memory.
func AppendInputShareAAD(dst []byte, task TaskID, config []byte, m *ReportMetadata, publicShare []byte) []byte {
	c := writer(Dialect{}, append(append(dst, task[:]...), config...))
	m.code(&c)
	c.Vec32(&publicShare, 0, "public_share")
	if err := c.Err(); err != nil {
		panic("dap: internal error: " + err.Error()) // only a public share of 4 GiB
	}
	return c.Bytes()
}

// AggregateShareAAD is the additional data of an aggregate share: task id, configuration
// and the collection job request as the collector sent it, see [CollectionJobReq.Bytes].
// Drafts before 18 had a batch selector in it; this one does not.
func AggregateShareAAD(task TaskID, config, collectionJobReq []byte) []byte {
	b := make([]byte, 0, len(task)+len(config)+len(collectionJobReq))
	return append(append(append(b, task[:]...), config...), collectionJobReq...)
}

// name is names[i], or what and the number.
func name(names []string, i int, what string) string {
	if i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s %d", what, i)
}
