//go:build unix

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgserver"
)

// A benchDatabase is the server of PostgreSQL of one party of a benchmark: one for each, so
// that what each costs is told apart.
type benchDatabase struct{ *pgserver.Server }

// benchSettings are those of a small server of its own; all else is as PostgreSQL has it,
// durability above all.
var benchSettings = []string{"shared_buffers=256MB", "max_wal_size=4GB"}

// newBenchDatabase starts a server, and has a party's configuration name it, and a leader's
// also object storage, where objects is its section's file.
func newBenchDatabase(dir string, p *benchParty, objects string) (_ *benchDatabase, err error) {
	s, err := pgserver.New(true, benchSettings...)
	if err != nil {
		return nil, fmt.Errorf("lab: PostgreSQL, 15 or newer, is needed on the PATH (on Debian: apt-get install postgresql): %w", err)
	}
	d := &benchDatabase{s}
	if err := d.Start(); err != nil {
		d.Remove()
		return nil, fmt.Errorf("lab: %w", err)
	}
	defer func() {
		if err != nil {
			d.end()
		}
	}()
	role := p.role.String()
	file, keys := filepath.Join("secrets", "database."+role), filepath.Join("secrets", "wrapping."+role)
	if err := os.WriteFile(filepath.Join(dir, file), fmt.Appendf(nil, "host=%s port=5432 dbname=postgres user=%s\n", d.Dir, pgserver.Admin), 0o600); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if _, err := database.AddWrappingKey(filepath.Join(dir, keys), time.Now()); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	made, err := os.ReadFile(p.configs[0])
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	text := fmt.Sprintf("engine = \"postgres\"\n%s\n[database]\nfile = %q\nwrapping_keys = %q\n\n[database.marks]\ndirectory = %q\n",
		made, file, keys, filepath.Join("secrets", "marks."+role))
	if objects != "" && p.role == dap.RoleLeader {
		section, err := os.ReadFile(objects)
		if err != nil {
			return nil, fmt.Errorf("lab: %w", err)
		}
		text += "\n" + string(section)
	}
	if err := os.WriteFile(p.configs[0], []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	return d, nil
}

// end ends the server, and removes all that it has.
func (d *benchDatabase) end() {
	d.Stop()
	d.Remove()
}

// add adds to what a party has used what its server has: processor time, and the log, as a
// kind of file.
func (d *benchDatabase) add(u *use) error {
	ticks, err := d.Ticks()
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	wal, err := d.number("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
	u.cpu += float64(ticks) / 100
	u.written["wal"] = wal
	u.known = false // of its files the system tells nothing that adds up
	return err
}

// size is how large the database is, in bytes, its log not included.
func (d *benchDatabase) size() (float64, error) {
	return d.number("SELECT pg_database_size('postgres')")
}

func (d *benchDatabase) number(query string) (float64, error) {
	row, err := d.Ask(query)
	if err != nil {
		return 0, fmt.Errorf("lab: %w", err)
	}
	x, err := strconv.ParseFloat(row, 64)
	if err != nil {
		return 0, fmt.Errorf("lab: %w", errors.Join(fmt.Errorf("psql says %q", strings.TrimSpace(row)), err))
	}
	return x, nil
}
