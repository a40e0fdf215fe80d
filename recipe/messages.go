package recipe

import (
	"fmt"
)

// A Messenger makes messages of answers on a path without proofs, and of the messages of a
// batch what two servers would have released. It is safe for concurrent use.
type Messenger struct {
	given    Query
	least    uint64 // contributions of a batch
	messages int
	size     int
	sums     int  // that a tally has
	whole    bool // results rest on every contribution's being an answer
	// spoils says what one lost message or one device that lies does to the result.
	spoils string
	// encode makes the messages of an answer, or of none where it is nil.
	encode func(answer []uint64) ([][]byte, error)
	// tally adds up the messages of whole contributions.
	tally func(messages [][]byte) (Tally, error)
}

// A messenger is a Randomizer whose reports need no proofs to be added up.
type messenger interface {
	Randomizer
	messenger(r *Recipe) (*Messenger, error)
}

// A Tally is what the messages of a batch say, for [Recipe.Estimate].
type Tally struct {
	// Sums are as those that two servers release, and of a [GroupRandomizer] what is needed
	// of its answers.
	Sums []int64 `json:"sums"`
	// Reports is of how many contributions.
	Reports uint64 `json:"reports"`
	// Rejected is how many messages no device sends that follows the recipe. Where a
	// contribution is one message, it counts for nothing; else the message counts as 0,
	// which a device that lies may send as well.
	Rejected uint64 `json:"rejected"`
}

// A MessagesError: nothing can be said of the messages of a batch.
type MessagesError struct {
	Messages uint64 // of the batch
	Problem  string
}

func (e *MessagesError) Error() string {
	return fmt.Sprintf("recipe: %s %s", count(e.Messages, "message", "messages"), e.Problem)
}

// An AnswerError: numbers are no answer to the query. It does not say what they were.
type AnswerError struct{ Want string }

func (e *AnswerError) Error() string { return "recipe: no answer to the query: want " + e.Want }

// Messenger returns what makes messages of answers, and a result of messages. It fails with
// *[InvalidError] for a path on which devices send shares and proofs. The recipe is valid.
func (r *Recipe) Messenger() (*Messenger, error) {
	z, ok := r.Randomizer.(messenger)
	if !ok || r.on().Proofs() {
		return nil, &InvalidError{"path", "is one on which devices send shares and proofs, and no messages"}
	}
	return z.messenger(r)
}

// MessagesPerContribution is how many messages one device sends in a round.
func (m *Messenger) MessagesPerContribution() int { return m.messages }

// MessageSize is the length of each, in bytes.
func (m *Messenger) MessageSize() int { return m.size }

// Sums is how many numbers a tally has.
func (m *Messenger) Sums() int { return m.sums }

// Messages makes the messages of one contribution, which is made once: those of the answer
// with these numbers, or with none of a device that has no answer. They are drawn anew each
// time, from a cryptographic source. It fails with *[AnswerError], as it does of none where
// the query counts on each contribution to have an answer.
func (m *Messenger) Messages(answer []uint64) ([][]byte, error) {
	if answer != nil && !m.given.Holds(answer) || answer == nil && m.whole {
		return nil, &AnswerError{m.given.Wanted()}
	}
	return m.encode(answer)
}

// Tally adds up the messages of a batch, in any order. It fails with *[MessagesError] for a
// number of messages that no whole contributions have, for fewer than the least batch, more
// than there is room for, and where the sum shows that it is none of answers.
func (m *Messenger) Tally(messages [][]byte) (Tally, error) {
	n := uint64(len(messages))
	if n%uint64(m.messages) != 0 {
		return Tally{}, &MessagesError{n, fmt.Sprintf("are no whole contributions of %d: some are missing", m.messages)}
	}
	if n/uint64(m.messages) < m.least {
		return Tally{}, &MessagesError{n, fmt.Sprintf("are of %d contributions, and nothing is released about fewer than %d", n/uint64(m.messages), m.least)}
	}
	t, err := m.tally(messages)
	if err == nil && t.Reports < m.least {
		err = &MessagesError{n, fmt.Sprintf("hold %s, and nothing is released about fewer than %d", count(t.Reports, "report", "reports"), m.least)}
	}
	if err != nil {
		return Tally{}, err
	}
	return t, nil
}

// A reportCode is how a report of a local randomizer is one message.
type reportCode interface {
	// size is that of a message.
	size() int
	// put writes a report as [PlaceRandomizer.Blur] returns it.
	put(b []byte, report []uint64)
	// add adds a message to the sums, unless no report has it. It is as long as size.
	add(sums []int64, b []byte) bool
}

// localMessenger is that of reports of one message each, which blur makes.
func localMessenger(r *Recipe, z PlaceRandomizer, blur func(place int) ([]uint64, error)) (*Messenger, error) {
	code, err := z.code(r.Query)
	if err != nil {
		return nil, err
	}
	form := r.Query.Form()
	m := &Messenger{given: r.Given(), least: r.MinBatch, messages: 1, size: code.size(), sums: r.Query.Aggregates()}
	m.spoils = "one device that lies counts as one report of any kind: it may move a count by as much as a report weighs after the noise is undone"
	m.encode = func(answer []uint64) ([][]byte, error) {
		y, err := blur(Place(form, answer))
		if err != nil {
			return nil, fmt.Errorf("recipe: messages: %w", err)
		}
		b := make([]byte, m.size)
		code.put(b, y)
		return [][]byte{b}, nil
	}
	aggregates := r.Query.Aggregates()
	m.tally = func(messages [][]byte) (Tally, error) {
		t := Tally{Sums: make([]int64, aggregates)}
		for _, b := range messages {
			if len(b) == m.size && code.add(t.Sums, b) {
				t.Reports++
			} else {
				t.Rejected++
			}
		}
		return t, nil
	}
	return m, nil
}

// Place is what of an answer a [PlaceRandomizer] takes: yes or no, the bucket, or which of
// at most one number is set; [NoPlace] for no answer. It does not branch on the numbers.
func Place(form Form, answer []uint64) int {
	place := NoPlace
	if form == Numbers {
		for i, bit := range answer {
			place += int(bit) * (i + 1) // NoPlace is -1
		}
		return place
	}
	for _, n := range answer {
		place = int(n)
	}
	return place
}

// indexCode is one of some values, in as few bytes as hold each, the highest first.
type indexCode struct {
	values uint64
	ones   bool // the sum is how many are 1
}

// bytesFor is how many bytes hold the numbers below n, 1 or more.
func bytesFor(n uint64) int {
	size := 1
	for n = (n - 1) >> 8; n > 0; n >>= 8 {
		size++
	}
	return size
}

// putNumber and number write and read a number of as many bytes as there are.
func putNumber(b []byte, x uint64) {
	for i := range b {
		b[len(b)-1-i] = byte(x >> (8 * i))
	}
}

func number(b []byte) (x uint64) {
	for _, c := range b {
		x = x<<8 | uint64(c)
	}
	return x
}

func (c indexCode) size() int                     { return bytesFor(c.values) }
func (c indexCode) put(b []byte, report []uint64) { putNumber(b, report[0]) }

func (c indexCode) add(sums []int64, b []byte) bool {
	switch x := number(b); {
	case x >= c.values:
		return false
	case c.ones:
		sums[0] += int64(x)
	default:
		sums[x]++
	}
	return true
}

// bitsCode is a bit for each number of a report, the lowest of the first byte first, and
// zeros behind them.
type bitsCode struct {
	length int
	most   uint64 // ones
}

func (c bitsCode) size() int { return (c.length + 7) / 8 }

func (c bitsCode) put(b []byte, report []uint64) {
	for i, bit := range report {
		b[i/8] |= byte(bit) << (i % 8)
	}
}

func (c bitsCode) add(sums []int64, b []byte) bool {
	var ones uint64
	for i := range 8 * len(b) {
		bit := b[i/8] >> (i % 8) & 1
		if ones += uint64(bit); i >= c.length && bit == 1 {
			return false
		}
	}
	if ones > c.most {
		return false
	}
	for i := range c.length {
		sums[i] += int64(b[i/8] >> (i % 8) & 1)
	}
	return true
}
