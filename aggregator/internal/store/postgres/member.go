package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/pgdb"
)

// keptMembers is how long the row of a process stays that was not seen any more.
const keptMembers = 24 * time.Hour

// A Member is one process of the aggregator in one of its lives: this one. It says now and
// then how it stands, for whoever asks any of them. Safe for concurrent use.
//
// Its row is written by nobody else, and counts how often it was. So a process that does not
// find it as it left it, or later, is on a database that was put back; it ends, with or
// without marks. A start has the marks alone to go by, and so has a process that was not
// seen between the backup and the day it was put back: each beat looks at them.
type Member struct {
	s    *Store
	name string

	mu    sync.Mutex
	beats uint64    // that are known to be there
	seen  time.Time // of the last of them
}

// Member is this process from now on.
func (s *Store) Member() *Member {
	name := make([]byte, 16)
	rand.Read(name)
	return &Member{s: s, name: hex.EncodeToString(name)}
}

// Name is random, and this life's alone.
func (m *Member) Name() string { return m.name }

// There says whether the database has heard of it.
func (m *Member) There() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.beats > 0
}

// Beat says that the process is there, and how it stands: at most 64 KiB. life is that of
// its HPKE keys (package vault), empty where it has none. ended: it is the last beat. On a
// database that was put back it fails with [store.ErrUnknown] and an
// [*aggregator.StoreError], and so does all that follows. Where the schema is one of before
// there were members it does nothing.
func (m *Member) Beat(ctx context.Context, life string, said []byte, ended bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var beats uint64
	var at int64
	var lost string
	err := m.s.update(ctx, "beat-member", func(tx *pgdb.Tx) (err error) {
		beats, lost = 0, ""
		begun, err := members(tx)
		if err == nil && !begun && m.beats > 0 {
			lost = "its schema is of before this process was seen in it"
		}
		if err != nil || !begun {
			return err
		}
		if _, err := tx.One("vault-now", nil, &at); err != nil {
			return err
		}
		if _, err := tx.Exec("drop-old-members", at-keptMembers.Microseconds()); err != nil {
			return err
		}
		found := false
		if m.beats > 0 {
			found, err = tx.One("renew-member", []any{m.name, life, at, ended, said, m.beats}, &beats)
			if err == nil && !found && time.UnixMicro(at).Sub(m.seen) < keptMembers {
				lost = fmt.Sprintf("this process was seen %d times, last at %s, and the database does not know it", m.beats, m.seen.Format(time.RFC3339))
				return nil
			}
		}
		if err == nil && !found {
			_, err = tx.One("put-member", []any{m.name, life, at, ended, said}, &beats)
		}
		return err
	})
	switch {
	case lost != "":
		return errors.Join(m.s.refuse("%s", lost), err)
	case err == nil && beats > 0:
		m.beats, m.seen = beats, time.UnixMicro(at).UTC()
	}
	if err != nil || ended {
		return err
	}
	return m.s.compareReleases(ctx)
}

// members says whether the schema has the table.
func members(tx *pgdb.Tx) (begun bool, err error) {
	var one int
	return tx.One("members-begun", nil, &one)
}

// A SeenMember is what the database has of a process.
type SeenMember struct {
	Name        string
	Began, Seen time.Time
	Live        bool // it was seen within the last [vault.Lease], and has not ended
	Ended       bool // it was stopped in order
	Said        []byte
	// Keys has its proofs that it holds HPKE keys; without any where it lives no more.
	Keys vault.Peer
}

// Replica adds what the database knows of a process to what it says of itself, and the ids
// of the HPKE keys that it has proved to hold.
func (m *SeenMember) Replica(r status.Replica, keys []uint8) status.Replica {
	r.ID, r.Since, r.Seen, r.State, r.Keys = m.Name, m.Began, m.Seen, status.ReplicaDead, nil
	switch {
	case m.Live:
		r.State = status.ReplicaLive
	case m.Ended:
		r.State = status.ReplicaStopped
	}
	if !m.Live {
		r.Takes, r.NotTaking, r.Claims, r.Rates = false, nil, 0, nil
		return r
	}
	for _, id := range keys {
		r.Keys = append(r.Keys, uint16(id))
	}
	return r
}

// Members lists the processes, the first that began first, and the time by the clock that
// they share.
func (s *Store) Members(ctx context.Context) (list []SeenMember, now time.Time, err error) {
	err = s.view(ctx, "members", func(tx *pgdb.Tx) error {
		list = nil
		begun, err := members(tx)
		if err != nil || !begun {
			return err
		}
		var at int64
		if _, err := tx.One("vault-now", nil, &at); err != nil {
			return err
		}
		now = time.UnixMicro(at).UTC()
		return tx.Each("members", nil, func(r pgdb.Row) error {
			var m SeenMember
			var began, seen int64
			var proofs []byte
			if err := r.Scan(&m.Name, &began, &seen, &m.Ended, &m.Said, &m.Keys.Name, &proofs); err != nil {
				return err
			}
			m.Began, m.Seen = time.UnixMicro(began).UTC(), time.UnixMicro(seen).UTC()
			m.Live = !m.Ended && at-seen <= vault.Lease.Microseconds()
			for proof := range slices.Chunk(proofs, sha256.Size) {
				m.Keys.Proofs = append(m.Keys.Proofs, [sha256.Size]byte(proof))
			}
			list = append(list, m)
			return nil
		})
	})
	return list, now, err
}

// Ahead is how far a clock is ahead of the one that all processes share.
func (s *Store) Ahead(ctx context.Context, clock disk.Clock) (ahead time.Duration, err error) {
	err = s.view(ctx, "time", func(tx *pgdb.Tx) error {
		var at int64
		asked := clock.Now()
		_, err := tx.One("vault-now", nil, &at)
		heard := clock.Now()
		ahead = asked.Add(heard.Sub(asked) / 2).Sub(time.UnixMicro(at))
		return err
	})
	return ahead, err
}

// refuse is the fault of a database that was put back, which holds for good.
func (s *Store) refuse(format string, args ...any) error {
	s.wrong.CompareAndSwap(nil, &aggregator.StoreError{Fault: aggregator.OlderDatabase, Role: s.role, Detail: fmt.Sprintf(format, args...)})
	return s.fault()
}
