package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
)

// A benchParty is an aggregator of a benchmark, which runs or does not.
type benchParty struct {
	role     dap.Role
	configs  []string       // files, one of each process
	children []*Child       // those that run
	front    *Balancer      // nil: the one process is reached as it is
	rows     *benchDatabase // nil: they are in its directory
	peak     int64          // resident sets in bytes, of all its lives
}

func (p *benchParty) start(serve func(dap.Role, string) (*Child, error)) error {
	for _, config := range p.configs {
		child, err := serve(p.role, config)
		if err != nil {
			return err
		}
		p.children = append(p.children, child)
	}
	return nil
}

// stop stops its processes, the last first.
func (p *benchParty) stop() (err error) {
	if len(p.children) == 0 {
		return nil
	}
	var sum int64
	for _, child := range slices.Backward(p.children) {
		now, known := procNumber(child.PID, "status", "VmHWM:") // KiB
		peak, stopped := child.Stop()
		if known {
			// Of a process that was started by a large one, Stop tells that one's size.
			peak = int64(now) * 1024
		}
		sum, err = sum+peak, errors.Join(err, stopped)
	}
	p.children, p.peak = nil, max(p.peak, sum)
	return err
}

// use is what a process has used since it started.
type use struct {
	cpu     float64            // seconds
	written map[string]float64 // bytes by kind of file
	disk    float64            // bytes that the system wrote for it
	known   bool               // disk is
}

func (u use) sum() (bytes float64) {
	for _, n := range u.written {
		bytes += n
	}
	return bytes
}

// use is what both have used so far, in the order of parties.
func (b *bench) use(ctx context.Context) (both [2]use, err error) {
	for i, p := range b.parties {
		if both[i], err = p.use(ctx, b.http); err != nil {
			return both, fmt.Errorf("lab: metrics of the %v: %w", p.role, err)
		}
	}
	return both, nil
}

// use is what all processes of a party have used, its database's server too.
func (p *benchParty) use(ctx context.Context, client *http.Client) (u use, err error) {
	u.written, u.known = make(map[string]float64), true
	for i, config := range p.configs {
		if err := u.add(ctx, client, p.role, config); err != nil {
			return u, err
		}
		disk, known := diskBytes(p.children[i].PID)
		u.disk, u.known = u.disk+disk, u.known && known
	}
	if p.rows != nil {
		err = p.rows.add(&u)
	}
	return u, err
}

// add reads a process's own metrics.
func (u *use) add(ctx context.Context, client *http.Client, role dap.Role, file string) error {
	config, err := deploy.LoadAggregator(file, role)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(config.Local.Address)+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		file, written := strings.CutPrefix(series, `starling_written_bytes_total{file="`)
		if !written && series != "process_cpu_seconds_total" {
			continue
		}
		x, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", series, err)
		}
		if written {
			u.written[strings.TrimSuffix(file, `"}`)] += x
			said = true
		} else {
			u.cpu += x
		}
	}
	if !said {
		return fmt.Errorf("status %d without the bytes that it has written", resp.StatusCode)
	}
	return nil
}

// count fills in what both have used for a report, from one time to another.
func (r *BenchReport) count(before, after [2]use) {
	r.WrittenBy = make(map[string]map[string]float64)
	for i, role := range []dap.Role{dap.RoleHelper, dap.RoleLeader} {
		r.CPU.set(role, after[i].cpu-before[i].cpu, r.Reports, 1e6)
		r.Written.set(role, after[i].sum()-before[i].sum(), r.Reports, 1)
		files := make(map[string]float64)
		for kind, n := range after[i].written {
			files[kind] = (n - before[i].written[kind]) / float64(r.Reports)
		}
		r.WrittenBy[role.String()] = files
		if before[i].known && after[i].known {
			if r.Disk == nil {
				r.Disk = new(ByRole)
			}
			r.Disk.set(role, after[i].disk-before[i].disk, r.Reports, 1)
		}
	}
}

// diskBytes are the bytes of pages that Linux had to write for a process, less those that
// were never written because their file was removed before. It is not known elsewhere.
func diskBytes(pid int) (bytes float64, known bool) {
	written, known1 := procNumber(pid, "io", "write_bytes:")
	cancelled, known2 := procNumber(pid, "io", "cancelled_write_bytes:")
	return written - cancelled, known1 && known2
}

// procNumber is what Linux says of a process in a line of a file of /proc.
func procNumber(pid int, file, name string) (x float64, known bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name {
			x, err := strconv.ParseFloat(f[1], 64)
			return x, err == nil
		}
	}
	return 0, false
}

// directorySize is how many bytes the files below a directory have.
func directorySize(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}
