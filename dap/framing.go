package dap

import (
	"crypto/sha256"
	"fmt"
)

// A Framing says how the aggregators and the collector of a task wrap their messages to
// one another. The bytes that are sealed, bound or hashed are the same in every framing.
// It is each operator's to configure; it stands in no recipe.
type Framing uint8

const (
	// Standard is the draft's own.
	Standard Framing = iota
	// Janus is that of Janus (github.com/divviup/janus, main at 4ab28a36), which speaks
	// draft 18 with an earlier draft's framing:
	//
	//	                     Standard                            Janus
	//	creation             POST to the collection              PUT to a 16-byte id of the peer's choice
	//	init request         extensions, reports up to the end   {batch_mode, config<16>}, reports behind 32 bits of length
	//	answer, continuation reports up to the end               reports behind 32 bits of length
	//	report error 11      outdated_config                     none: 4
	Janus
)

var framings = []string{Standard: "standard", Janus: "janus"}

// String is the name that operators configure.
func (f Framing) String() string { return name(framings, int(f), "framing") }

// MarshalText is [Framing.String].
func (f Framing) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the name.
func (f *Framing) UnmarshalText(b []byte) error {
	for i, s := range framings {
		if s == string(b) {
			*f = Framing(i)
			return nil
		}
	}
	return fmt.Errorf("dap: no framing is called %.20q; there are %q", b, framings)
}

// CreationMethod is the HTTP method that creates a resource: at the path of its
// collection, or, where it is PUT, at its own.
func (f Framing) CreationMethod() string {
	if f == Janus {
		return "PUT"
	}
	return "POST"
}

// ChosenIDDomain opens the hash that names a resource whose id the peer chooses.
const ChosenIDDomain = "starling chosen id"

// chosenIDSize is the length in bytes of the ids that peers choose.
const chosenIDSize = 16

// ChooseID is the id of a resource to be created, where the peer that creates it chooses:
// the same for the same bytes, so that a repetition finds what was created. Empty where
// the server chooses. salt tells apart what must not be the same although its bytes are.
func (f Framing) ChooseID(task TaskID, c Collection, body, salt []byte) string {
	if f != Janus {
		return ""
	}
	digest := sha256.Sum256(body)
	h := sha256.New()
	h.Write([]byte(ChosenIDDomain))
	h.Write(task[:])
	h.Write([]byte(c))
	h.Write(digest[:])
	h.Write(salt)
	return text.EncodeToString(h.Sum(nil)[:chosenIDSize])
}

// CheckChosenID says whether a peer may choose s: 16 bytes, in their one spelling.
func CheckChosenID(s string) error {
	var id [chosenIDSize]byte
	return parseID(id[:], s, "resource id of 16 bytes")
}

// CreationPathOf is where a resource is created: [CreationPath], or its own path where
// the peer that creates it chose id.
func CreationPathOf(task TaskID, c Collection, id string) string {
	if id == "" {
		return CreationPath(task, c)
	}
	return ResourcePath(task, c, id)
}

// jobBatch is what an init request says of the job's batch, between parameter and
// reports.
func (f Framing) jobBatch(c *coder, e *Extensions) {
	if f != Janus {
		e.code(c)
		return
	}
	mode, id := TimeInterval, BatchID{}
	if c.Writing() && e.Len() > 0 {
		mode = LeaderSelected
		data, ok := e.Get(ExtLeaderSelectedBatchID)
		if !ok || e.Len() > 1 || len(data) != len(id) {
			c.Fail("extensions that this framing has no place for")
			return
		}
		id = BatchID(data)
	}
	mode.code(c)
	c.Nested16("batch config", func() {
		if mode == LeaderSelected {
			c.Fixed(id[:], "batch id")
		}
	})
	if !c.Writing() && c.Err() == nil && mode == LeaderSelected {
		var err error
		*e, err = e.WithLeaderSelectedBatch(id)
		c.Abort(err)
	}
}

// jobBatchSize is how many bytes that takes.
func (f Framing) jobBatchSize(e Extensions) int {
	if f == Janus && e.Len() > 0 {
		return 1 + 2 + len(BatchID{})
	} else if f == Janus {
		return 1 + 2
	}
	return 2 + len(e.b)
}

// rest is what remains of a message: the run of its items.
func (f Framing) rest(c *coder, items *[]byte) {
	if f == Janus {
		c.Vec32(items, 0, "items")
	} else {
		c.Rest(items)
	}
}

// restSize is how many bytes stand before the items.
func (f Framing) restSize() int {
	if f == Janus {
		return 4
	}
	return 0
}

// appendRestSize appends what stands before n bytes of items.
func (f Framing) appendRestSize(dst []byte, n int) ([]byte, error) {
	c := writer(Dialect{}, dst)
	if f == Janus {
		c.Length(uint64(n), f.restSize(), "items")
	}
	return c.Bytes(), c.Err()
}
