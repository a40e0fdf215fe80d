package tlog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// A Policy says which checkpoints count: the logs that may have signed one, the witnesses,
// and which of them must have cosigned. It is immutable; [ReadPolicy] makes one.
type Policy struct {
	logs      []Party
	witnesses []Party
	quorum    *group // nil: none is needed
}

// A Party is a log or a witness of a policy.
type Party struct {
	// Name is what the policy calls a witness; empty for a log.
	Name string
	Key  *Key
	// URL is where it is reached; empty if the policy does not say.
	URL string
}

// A group is met when at least a number of its members are.
type group struct {
	need    int
	members []*group
	witness int // the one witness that it is, in Policy.witnesses; -1 with members
}

// Bounds of a policy file, and of the times of cosignatures.
const (
	MaxPolicy  = 256 << 10 // bytes
	maxParties = 64        // logs, witnesses, and groups, each

	// MaxAge is how old what a log says may be before a device takes no more part: what
	// is newer may have been kept from it.
	MaxAge = 24 * time.Hour
	// Skew is by how much clocks may differ.
	Skew = 5 * time.Minute
)

// ErrPolicy is what every *PolicyError matches.
var ErrPolicy = errors.New("tlog: bad policy")

// A PolicyError: a line of a policy file is not what it must be.
type PolicyError struct {
	Line int // from 1; 0: the file as a whole
	Err  error
}

func (e *PolicyError) Error() string { return fmt.Sprintf("tlog: policy: line %d: %v", e.Line, e.Err) }
func (e *PolicyError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrPolicy].
func (e *PolicyError) Is(target error) bool { return target == ErrPolicy }

// noneName is the quorum that asks for no witness.
const noneName = "none"

// ReadPolicy reads a policy file as tlog-policy has it: lines "log VKEY [URL]",
// "witness NAME VKEY [URL]", "group NAME all|any|K NAME..." and one "quorum NAME", each of
// what stands before it. It fails with *[PolicyError].
func ReadPolicy(file []byte) (*Policy, error) {
	if len(file) > MaxPolicy {
		return nil, &PolicyError{0, fmt.Errorf("more than %d bytes", MaxPolicy)}
	}
	r := policyReader{named: make(map[string]*group), used: make(map[string]bool)}
	n := 0
	for line := range strings.Lines(string(file)) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if i := strings.IndexFunc(line, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }); i >= 0 {
			return nil, &PolicyError{n, errors.New("a control character")}
		}
		words := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' })
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if err := r.line(words); err != nil {
			return nil, &PolicyError{n, err}
		}
	}
	if !r.decided {
		return nil, &PolicyError{0, errors.New("no line says the quorum")}
	}
	return &r.p, nil
}

// A policyReader is in the middle of a policy file.
type policyReader struct {
	p       Policy
	named   map[string]*group // witnesses and groups
	used    map[string]bool   // those that are in a group
	groups  int
	decided bool // the quorum was named
}

func (r *policyReader) line(words []string) error {
	switch word := words[0]; word {
	case "log":
		if len(words) < 2 || len(words) > 3 {
			return errors.New("want: log VKEY [URL]")
		}
		return r.party(&r.p.logs, "", words[1:])
	case "witness":
		if len(words) < 3 || len(words) > 4 {
			return errors.New("want: witness NAME VKEY [URL]")
		}
		if err := r.free(words[1]); err != nil {
			return err
		}
		if err := r.party(&r.p.witnesses, words[1], words[2:]); err != nil {
			return err
		}
		r.named[words[1]] = &group{witness: len(r.p.witnesses) - 1}
	case "group":
		return r.group(words[1:])
	case "quorum":
		if len(words) != 2 || r.decided {
			return errors.New("want one line: quorum NAME")
		}
		r.decided = true
		if words[1] == noneName {
			return nil
		}
		if r.p.quorum = r.named[words[1]]; r.p.quorum == nil {
			return fmt.Errorf("no witness and no group %q before", words[1])
		}
	default:
		return fmt.Errorf("%.30q: want log, witness, group or quorum", word)
	}
	return nil
}

func (r *policyReader) free(name string) error {
	if name == noneName || r.named[name] != nil {
		return fmt.Errorf("the name %q is taken", name)
	}
	return nil
}

// party reads a key, and an address.
func (r *policyReader) party(to *[]Party, name string, words []string) error {
	k, err := ParseKey(words[0])
	if err != nil {
		return err
	}
	if name != "" && k.scheme == Ed25519 {
		return fmt.Errorf("%w: a log's, not a witness's: its signatures hold no time", ErrKey)
	}
	if len(*to) == maxParties {
		return fmt.Errorf("more than %d", maxParties)
	}
	for _, o := range slices.Concat(r.p.logs, r.p.witnesses) {
		if o.Key.same(k) {
			return fmt.Errorf("%w: the key of %s stands twice", ErrKey, k.name)
		}
	}
	p := Party{Name: name, Key: k}
	if len(words) > 1 {
		p.URL = words[1]
	}
	*to = append(*to, p)
	return nil
}

func (r *policyReader) group(words []string) error {
	if len(words) < 3 {
		return errors.New("want: group NAME all|any|K and one name or more")
	}
	if err := r.free(words[0]); err != nil {
		return err
	}
	if r.groups++; r.groups > maxParties {
		return fmt.Errorf("more than %d groups", maxParties)
	}
	g := &group{witness: -1}
	for _, name := range words[2:] {
		m := r.named[name]
		switch {
		case m == nil:
			return fmt.Errorf("no witness and no group %q before", name)
		case r.used[name]:
			return fmt.Errorf("%q is in a group already", name)
		}
		r.used[name] = true
		g.members = append(g.members, m)
	}
	switch words[1] {
	case "all":
		g.need = len(g.members)
	case "any":
		g.need = 1
	default:
		var err error
		if g.need, err = strconv.Atoi(words[1]); err != nil || g.need < 1 || g.need > len(g.members) || strconv.Itoa(g.need) != words[1] {
			return fmt.Errorf("%q: want all, any, or a number from 1 to %d", words[1], len(g.members))
		}
	}
	r.named[words[0]] = g
	return nil
}

// Logs are those whose checkpoints the policy takes.
func (p *Policy) Logs() []Party { return slices.Clone(p.logs) }

// Witnesses are those that it knows.
func (p *Policy) Witnesses() []Party { return slices.Clone(p.witnesses) }

// Witnessed says whether the policy asks for any cosignature at all. Without one it
// believes the log alone.
func (p *Policy) Witnessed() bool { return p.quorum != nil }

func (p *Policy) keys(of []Party) []*Key {
	keys := make([]*Key, len(of))
	for i := range of {
		keys[i] = of[i].Key
	}
	return keys
}

// met says whether those witnesses are enough.
func (g *group) met(has func(witness int) bool) bool {
	if g == nil {
		return true
	}
	if g.witness >= 0 {
		return has(g.witness)
	}
	n := 0
	for _, m := range g.members {
		if m.met(has) {
			n++
		}
	}
	return n >= g.need
}

// A Witnessed checkpoint is one that a policy takes.
type Witnessed struct {
	Checkpoint
	// Note is the signed checkpoint, as it was given.
	Note []byte
	// Cosigned are the witnesses that have signed, with the time that each says.
	Cosigned []Cosigned
	// Time is the latest at which a quorum says that this was the newest checkpoint: each
	// of its members has signed then or later. It is zero where none is asked for.
	Time time.Time
}

// A Cosigned checkpoint was signed by a witness at a time.
type Cosigned struct {
	Witness string // as the policy calls it
	Time    time.Time
}

// ErrQuorum is what every *QuorumError matches.
var ErrQuorum = errors.New("tlog: too few witnesses have signed")

// A QuorumError: the log has signed a checkpoint, and too few witnesses have.
type QuorumError struct {
	Signed, Missing []string // as the policy calls them
}

func (e *QuorumError) Error() string {
	return fmt.Sprintf("tlog: too few witnesses have signed the checkpoint: %d have (%s), missing are %s",
		len(e.Signed), strings.Join(e.Signed, ", "), strings.Join(e.Missing, ", "))
}

// Is reports whether target is [ErrQuorum].
func (e *QuorumError) Is(target error) bool { return target == ErrQuorum }

// Open opens a signed checkpoint that the policy takes at a time. A cosignature of the
// future, by more than [Skew], does not count. How old it is is for [Witnessed.Fresh]. It
// fails with [ErrCheckpoint], [ErrUnsigned] and *[QuorumError].
func (p *Policy) Open(signed []byte, now time.Time) (*Witnessed, error) {
	c, n, err := openNote(signed, p.keys(p.logs), p.keys(p.witnesses))
	if err != nil {
		return nil, err
	}
	w := &Witnessed{Checkpoint: *c, Note: slices.Clone(signed)}
	at := p.times(n, now)
	var all []time.Time
	var missing []string
	for i, x := range p.witnesses {
		if t, ok := at[i]; ok {
			w.Cosigned = append(w.Cosigned, Cosigned{x.Name, t})
			all = append(all, t)
		} else {
			missing = append(missing, x.Name)
		}
	}
	if p.quorum == nil {
		return w, nil
	}
	slices.SortFunc(all, func(a, b time.Time) int { return b.Compare(a) })
	for _, t := range all {
		if p.quorum.met(func(i int) bool { s, ok := at[i]; return ok && !s.Before(t) }) {
			w.Time = t
			return w, nil
		}
	}
	e := &QuorumError{Missing: missing}
	for _, s := range w.Cosigned {
		e.Signed = append(e.Signed, s.Witness)
	}
	return nil, e
}

// times are those of the witnesses' signatures that count, by their place in the policy.
func (p *Policy) times(n *note.Note, now time.Time) map[int]time.Time {
	at := make(map[int]time.Time)
	for _, sig := range n.Sigs {
		i := slices.IndexFunc(p.witnesses, func(x Party) bool { return x.Key.name == sig.Name && x.Key.KeyHash() == sig.Hash })
		if i < 0 {
			continue
		}
		if t, ok := timeOf(sig); ok && !t.After(now.Add(Skew)) {
			at[i] = t
		}
	}
	return at
}

// ErrStale is what every *StaleError matches.
var ErrStale = errors.New("tlog: the log has said nothing new for too long")

// A StaleError: what was given held a while ago, and what is newer may be kept from the
// device.
type StaleError struct {
	Time, Now time.Time
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("tlog: the newest that enough witnesses have signed is of %s, more than %v before %s: the log has stopped, or what is newer is kept back",
		e.Time.UTC().Format(time.RFC3339), MaxAge, e.Now.UTC().Format(time.RFC3339))
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Fresh says with a *[StaleError] that the checkpoint is older than [MaxAge]. One that no
// witness has to sign has no age.
func (w *Witnessed) Fresh(now time.Time) error {
	if !w.Time.IsZero() && now.Sub(w.Time) > MaxAge {
		return &StaleError{w.Time, now}
	}
	return nil
}
