package gateway

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/internal/disk"
)

// Admission are keys for tokens that let requests into the rounds of a task.
type Admission struct {
	// Keys are those of the rounds of an epoch. Required.
	Keys *admission.Keys
	// Note is as [Key.Note].
	Note string
}

// list is one in use. Names of the tokens that let a request in are kept as the names of
// reports are, until the list is gone.
type list struct {
	Admission
	raw    [journal.KeySize]byte // of its name
	opened *opened
}

const (
	taskSize = 32
	// asksPrefix begins the name of an empty file for each task that was ever given keys;
	// the rest is the task. Without it a task whose keys are late would let anybody in.
	asksPrefix  = "asks-"
	tokenDomain = "starling gateway token v1"
)

// Words of [Status.Admission].
const (
	TokenCounted = "counted"
	TokenAgain   = "again"
	TokenNone    = "not_admitted"
)

// A token is what a request's is worth.
type token struct {
	asked bool  // whether the task asks for one
	by    *list // that the token is of, in use until the request is in its round; nil if it does not hold
	round uint64
	name  [journal.IDSize]byte
}

// admit looks at the token of a request of any kind. Where the task asks for one there is
// as much to compute for each request, with or without one.
func (g *Gateway) admit(path string, header []ohttp.Field) (t token) {
	task, err := g.o.Protocol.Task(path)
	keys := g.keys.Load()
	if err != nil || !keys.asks[task] {
		return t
	}
	t.asked = true
	value, fields := "", 0
	for _, f := range header {
		if f.Name == admission.Field {
			value = f.Value
			fields++
		}
	}
	number, shown, err := admission.ReadValue(value)
	now := g.o.Clock.Now()
	key, round, by := g.idle, voprf.Round{Number: number}, (*list)(nil)
	for _, l := range keys.lists {
		if l.Keys.Task == task && l.Keys.Open(number, now) {
			key, round, by = l.Keys.Of(number), l.Keys.Round(number), l
		}
	}
	holds := key.Admit(round, shown)
	t.name = g.tokenName(task, number, shown.Nonce)
	if err == nil && fields == 1 && by != nil && holds == nil && by.opened.enter() {
		t.by, t.round = by, number
	}
	return t
}

// leave ends the use of what a request was let in by.
func (it *item) leave() {
	if it.token.by != nil {
		it.token.by.opened.leave()
	}
}

// tokenName is what a token's nonce is known by as long as the list under which it came.
func (g *Gateway) tokenName(task [taskSize]byte, round uint64, nonce [32]byte) [journal.IDSize]byte {
	h := sha256.New()
	h.Write([]byte(tokenDomain))
	h.Write(g.secret[:])
	h.Write(task[:])
	h.Write(binary.BigEndian.AppendUint64(nil, round))
	h.Write(nonce[:])
	return [journal.IDSize]byte(h.Sum(nil))
}

// counted says whether a request counts, and takes its token: where one is asked for, the
// first request with it does. It is the same for a report and a cover, sent once or again.
// g.mu and Gateway.claims must be held.
func (g *Gateway) counted(r *round, t *token, from *sender) bool {
	if !t.asked {
		return true
	}
	if t.by == nil {
		g.counts.admit(TokenNone)
		return false
	}
	o := t.by.opened
	if _, known := o.ids[t.name]; known {
		g.lean(r, t.name) // its round brought what this one brings
		g.counts.admit(TokenAgain)
		return false
	}
	if len(o.ids) >= o.max {
		g.counts.admit(TokenNone)
		return false
	}
	g.name(r, o, r.claim(o, t.by.raw, from), t.name)
	g.counts.admit(TokenCounted)
	return true
}

// AdmissionKeys are the lists of keys for tokens in use, which do not change; rounds of some
// may not have begun.
func (g *Gateway) AdmissionKeys() []*admission.Keys {
	var all []*admission.Keys
	for _, l := range g.keys.Load().lists {
		all = append(all, l.Keys)
	}
	return all
}

// admissions are the lists in use.
func (g *Gateway) admissions() (all []Admission) {
	for _, l := range g.keys.Load().lists {
		all = append(all, l.Admission)
	}
	return all
}

// asking are the tasks that ask for tokens: those of earlier lives, those of a keyset, and
// those of lists, which are on the disk before they are in use.
func (g *Gateway) asking(old *keyset, lists []Admission) (map[[taskSize]byte]bool, error) {
	asks := make(map[[taskSize]byte]bool)
	if old != nil {
		asks = maps.Clone(old.asks)
	} else {
		entries, err := g.o.FS.ReadDir(".")
		if err != nil {
			return nil, fmt.Errorf("gateway: list directory: %w", err)
		}
		for _, e := range entries {
			name, ok := strings.CutPrefix(e.Name, asksPrefix)
			if b, err := hex.DecodeString(name); ok && err == nil && len(b) == taskSize {
				asks[[taskSize]byte(b)] = true
			}
		}
	}
	for _, a := range lists {
		if asks[a.Keys.Task] {
			continue
		}
		if err := disk.WriteFile(g.o.FS, asksPrefix+hex.EncodeToString(a.Keys.Task[:]), nil); err != nil {
			return nil, fmt.Errorf("gateway: a task asks for tokens: %w", err)
		}
		asks[a.Keys.Task] = true
	}
	return asks, nil
}

// parsedList is a file that was read, and the digest of its bytes: to read one takes a
// base multiplication for each key.
type parsedList struct {
	sum  [sha256.Size]byte
	keys *admission.Keys
}

// AdmissionKeys returns the keys for tokens whose time has not ended.
func (e *Epochs) AdmissionKeys(now time.Time) ([]Admission, error) {
	all, _, err := e.lists(now)
	return all, err
}

// lists returns the keys for tokens whose time has not ended, and the files of those whose
// time has.
func (e *Epochs) lists(now time.Time) (all []Admission, past []string, err error) {
	if e.Admission == "" {
		return nil, nil, nil
	}
	entries, err := os.ReadDir(e.Admission)
	if err != nil {
		return nil, nil, fmt.Errorf("admission: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	parsed := make(map[string]parsedList)
	seen := make(map[[journal.KeySize]byte]string)
	for _, entry := range entries {
		file := entry.Name()
		if !strings.HasSuffix(file, admissionSuffix) || disk.IsTemp(file) {
			continue
		}
		path := filepath.Join(e.Admission, file)
		info, err := entry.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil && info.Size() > admission.MaxFile {
			err = fmt.Errorf("longer than %d bytes", admission.MaxFile)
		}
		var b []byte
		if err == nil {
			b, err = e.Read(path)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("admission: %s: %w", file, err)
		}
		p := e.parsed[file]
		if sum := sha256.Sum256(b); p.keys == nil || p.sum != sum {
			p = parsedList{sum: sum}
			p.keys, err = admission.ReadKeys(b)
		}
		clear(b)
		if err != nil {
			return nil, nil, fmt.Errorf("admission: %s: %w", file, err)
		}
		if !now.Before(p.keys.End()) {
			past = append(past, file)
			continue
		}
		parsed[file] = p
		if other := seen[p.keys.Name()]; other != "" {
			return nil, nil, fmt.Errorf("admission: %s holds the keys of %s", file, other)
		}
		seen[p.keys.Name()] = file
		all = append(all, Admission{Keys: p.keys, Note: path + NoteSuffix})
	}
	e.parsed = parsed
	return all, past, nil
}
