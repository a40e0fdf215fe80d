//go:build unix

package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Ask is what a query's one row has, by psql: its columns, with | between.
func (s *Server) Ask(query string) (row string, err error) {
	out, err := s.command("psql", "--no-psqlrc", "--tuples-only", "--no-align", "--host", s.Dir, "--username", Admin, "--dbname", "postgres",
		"--command", query).Output()
	if err != nil {
		return "", fmt.Errorf("pgserver: psql: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Ticks is the processor time that the server has used since its start, in hundredths of a
// second: of all of its processes, those that have ended among them. Linux alone says so.
func (s *Server) Ticks() (ticks uint64, err error) {
	b, err := os.ReadFile(filepath.Join(s.Dir, "data", "postmaster.pid"))
	if err != nil {
		return 0, fmt.Errorf("pgserver: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	parent, err := strconv.Atoi(line)
	if err != nil {
		return 0, fmt.Errorf("pgserver: postmaster.pid: %w", err)
	}
	own, ended, err := ticksOf(parent)
	if err != nil {
		return 0, err
	}
	children, err := childrenOf(parent)
	if err != nil {
		return 0, err
	}
	ticks = own + ended
	for _, pid := range children {
		if own, _, err := ticksOf(pid); err == nil { // else it has ended since
			ticks += own
		}
	}
	return ticks, nil
}

// ticksOf are the times of a process and of those children that it has waited for: proc(5),
// /proc/PID/stat, fields 14 to 17.
func ticksOf(pid int) (own, ended uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("pgserver: %w", err)
	}
	// The name before may have spaces and brackets.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 15 {
		return 0, 0, fmt.Errorf("pgserver: /proc/%d/stat has %d fields", pid, len(fields))
	}
	var times [4]uint64
	for i := range times {
		if times[i], err = strconv.ParseUint(fields[11+i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("pgserver: /proc/%d/stat: %w", pid, err)
		}
	}
	return times[0] + times[1], times[2] + times[3], nil
}
