package party

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/status"
)

// BeatEvery is how often a process says to the others how it stands.
const BeatEvery = 10 * time.Second

// Bounds of what a process says of itself, so that it fits its row.
const (
	mostRates = 200
	mostWords = 300
)

// placesEvery is how many beats pass between two looks whether a place is reached that was.
const placesEvery = 6

// placeTime bounds such a look.
const placeTime = 5 * time.Second

// replica is this process among those that share its database. The zero value is that of a
// process that has not said anything yet.
type replica struct {
	member *postgres.Member // nil without a database

	mu        sync.Mutex
	beats     int
	ahead     time.Duration     // of its clock, against the database's
	unreached map[string]string // why, by place
}

// Beat says to the other processes on the database how this one stands, whatever its service
// knows of that being in r. It is an error that ends the process where the database was put
// back.
func (p *Party) Beat(ctx context.Context, r status.Replica) error {
	if p.Shared == nil {
		return nil
	}
	ahead, err := p.Shared.Ahead(ctx, p.opt.Clock)
	if err != nil {
		return err
	}
	m := &p.replica
	m.mu.Lock()
	look := m.beats%placesEvery == 0 || len(m.unreached) > 0
	m.beats++
	m.ahead = ahead
	m.mu.Unlock()
	if look {
		p.lookAtPlaces(ctx)
	}
	p.Lacking(ctx) // what it says of them is of now
	p.describe(&r)
	said, err := said(&r)
	if err != nil {
		return err
	}
	if err := m.member.Beat(ctx, p.life(), said, false); err != nil {
		return fmt.Errorf("replicas: %w", err)
	}
	return nil
}

// leaveTime bounds the last words of a process that stops.
const leaveTime = 2 * time.Second

// leave says that this process stops, so that nobody takes it for dead. It is said at best.
func (p *Party) leave() {
	m := &p.replica
	if m.member == nil || !m.member.There() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	r := status.Replica{}
	p.describe(&r)
	said, err := said(&r)
	if err == nil {
		err = m.member.Beat(ctx, "", said, true)
	}
	if err != nil {
		p.opt.Log.Warn("the other processes could not be told that this one stops", "error", err)
	}
}

// life is that of the HPKE keys, which tells whose proofs are this process's.
func (p *Party) life() string {
	if v, ok := p.vaults.hpke.(*postgres.Vault); ok {
		return v.Life()
	}
	return ""
}

// said is what goes into the row.
func said(r *status.Replica) ([]byte, error) {
	if len(r.Rates) > mostRates {
		busiest := slices.SortedFunc(maps.Keys(r.Rates), func(a, b string) int { return cmp.Or(cmp.Compare(r.Rates[b], r.Rates[a]), cmp.Compare(a, b)) })
		for _, task := range busiest[mostRates:] {
			delete(r.Rates, task)
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("replicas: %w", err)
	}
	return b, nil
}

// describe adds what a process knows of itself, whatever its role.
func (p *Party) describe(r *status.Replica) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	m := &p.replica
	r.Name, r.ID, r.Version, r.Settings = fmt.Sprintf("%s/%d", host, os.Getpid()), m.member.Name(), version(), p.settings()
	m.mu.Lock()
	defer m.mu.Unlock()
	r.ClockAhead, r.Unreached, r.IssuerKeys = m.ahead.Seconds(), maps.Clone(m.unreached), p.lacksKeys()
}

// version is that of this program.
var version = sync.OnceValue(func() string {
	words := "unreleased"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return words
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		words = v
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			words += " commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			words += " with changes"
		}
	}
	return words
})

// settings are those in which all replicas must be alike. The URL is one of them all the
// same: a schema of another is refused.
func (p *Party) settings() map[string]string {
	o, d := &p.opt, p.opt.Database
	m := map[string]string{
		"limits.clock_skew": o.Limits.ClockSkew.String(), "limits.max_age": o.Limits.MaxAge.String(),
		"retention": o.Retention.String(), "data_key_period": o.DataKeyPeriod.String(), "database.objects": place(d.Objects),
		"database.marks": "none", "hpke_key_period": "none: hpke_keys has its own",
	}
	if d.Marks != nil {
		m["database.marks"] = "a directory"
		if d.Marks.Objects != nil {
			m["database.marks"] = place(d.Marks.Objects)
		}
	}
	if by := o.KeySchedule; by != nil {
		m["hpke_key_period"], m["hpke_key_delay"] = cmp.Or(by.Period, keyset.DefaultPeriod).String(), by.Delay.String()
		m["hpke_key_max_age"], m["hpke_key_overlap"] = cmp.Or(by.MaxAge, keyset.DefaultMaxAge).String(), cmp.Or(by.Overlap, keyset.DefaultOverlap).String()
	}
	if p.wrapping != nil {
		if keys, err := p.wrapping.Keys(); err == nil && len(keys) > 0 {
			m["database.wrapping_keys, the newest"] = keys[0]
		}
	}
	return m
}

// place names object storage.
func place(o *aggregator.Objects) string {
	if o == nil {
		return "none"
	}
	return o.Endpoint + " " + o.S3Bucket + "/" + o.Prefix
}

// lookAtPlaces finds out which places this process reaches.
func (p *Party) lookAtPlaces(ctx context.Context) {
	unreached := make(map[string]string)
	look := func(name string, s payload.Store, object string, there bool) {
		if s == nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, placeTime)
		defer cancel()
		_, err := s.Size(ctx, object)
		switch {
		case errors.Is(err, payload.ErrNotFound) && there:
			unreached[name] = "what was there is gone: " + object
		case err != nil && !errors.Is(err, payload.ErrNotFound):
			words := err.Error()
			unreached[name] = words[:min(len(words), mostWords)]
		}
	}
	look("objects", p.Objects, "probe/reached.mark", false)
	look("marks", p.marked, postgres.OwnersMark, true)
	if ctx.Err() != nil {
		return
	}
	p.replica.mu.Lock()
	defer p.replica.mu.Unlock()
	p.replica.unreached = unreached
}

// MarksUnreached is why nothing can be released: this process does not reach the place of
// marks, or it is gone. Nil where it does, when it was last looked.
func (p *Party) MarksUnreached() error {
	p.replica.mu.Lock()
	defer p.replica.mu.Unlock()
	if why := p.replica.unreached["marks"]; why != "" {
		return errors.New("the place of marks is not reached: " + why)
	}
	return nil
}

// Replicas adds to a status of this process what all of them say, of which now is this one.
func (p *Party) Replicas(ctx context.Context, s *status.Status, now status.Replica) error {
	if p.Shared == nil {
		return nil
	}
	members, _, err := p.Shared.Members(ctx)
	if err != nil {
		return err
	}
	list := make([]status.Replica, 0, len(members))
	for i := range members {
		r, err := p.seen(&members[i], now)
		if err != nil {
			return err
		}
		list = append(list, r)
	}
	s.AddReplicas(list)
	return nil
}

// seen is a process as the database has it; this one as it is now.
func (p *Party) seen(m *postgres.SeenMember, now status.Replica) (r status.Replica, err error) {
	if m.Name == p.replica.member.Name() && m.Live {
		p.describe(&now)
		r, r.This = now, true
	} else if err := json.Unmarshal(m.Said, &r); err != nil {
		r = status.Replica{Name: "unknown", NotTaking: []string{"what it says of itself cannot be read: it is of another version"}}
	}
	ids := []uint8{}
	if m.Live {
		ids, err = p.Keys.ProvedBy(&m.Keys)
	}
	return m.Replica(r, ids), err
}
