package recipe

import (
	"fmt"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf/pine"
)

// TooLargeError: a report of the recipe is larger than any that an aggregator or a client
// of DAP takes here ([dap.DefaultLimits]), so that the recipe could only ever collect
// refusals.
type TooLargeError struct {
	Bytes int    // of the leader's share
	Most  int    // of a sealed share
	Hint  string // what would do; may be empty
}

func (e *TooLargeError) Error() string {
	s := fmt.Sprintf("recipe: a report has a share of %d bytes for the leader, and none above %d is taken", e.Bytes, e.Most)
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

// sealing is more than DAP and HPKE add to a share that is sealed, in bytes, and showing
// is what a presentation of a credential adds, with the head of its extension.
const (
	sealing = 256
	showing = 4 + 328
)

// UploadBytes is the length of a report's shares, without the framing of DAP and HPKE, of
// 150 to 2,500 bytes, or of the messages of a contribution without what seals them. It
// fails with *[TooLargeError] beside the length where no aggregator would take such a
// report.
func (r *Recipe) UploadBytes() (int, error) {
	if !r.on().Proofs() {
		m, err := r.Messenger()
		if err != nil {
			return 0, err
		}
		return m.messages * m.size, nil
	}
	config, err := r.VDAFConfig()
	if err != nil {
		return 0, err
	}
	data, err := config.Append(nil)
	if err != nil {
		return 0, err
	}
	v, err := dap.NewVDAF(config.Type(), data)
	if err != nil {
		return 0, err
	}
	size := v.Sizes()
	bytes := size.Public + size.LeaderInput + size.HelperInput
	most := dap.DefaultLimits().MaxCiphertext
	if r.Tokens != nil {
		bytes, most = bytes+2*showing, most-showing
	}
	if size.LeaderInput > most-sealing {
		return bytes, &TooLargeError{size.LeaderInput, most, r.smaller(most)}
	}
	return bytes, nil
}

// smaller says how the query could be asked in reports of no more than most bytes.
func (r *Recipe) smaller(most int) string {
	q, ok := r.Vector()
	if !ok {
		return "ask for fewer elements"
	}
	for q.Proof = Pine32; q.Proof <= Pine128; q.Proof++ {
		c := q.VDAFConfig().(dap.PineConfig)
		if cost, err := pine.Plan(c.PineParams()); err == nil && cost.Sizes.LeaderInput <= most-sealing {
			return fmt.Sprintf("%v takes %d bytes for the same vectors; fewer entries, or a projection to fewer, take less", q.Proof, cost.Upload)
		}
	}
	return "ask for fewer entries, for fewer binary places, or for a projection to fewer entries"
}
