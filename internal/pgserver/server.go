//go:build unix

// Package pgserver runs servers of PostgreSQL of a program's own, for tests and benchmarks: they
// listen on a socket in a directory of theirs, and end with the program.
package pgserver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Admin is the role that may do all.
const Admin = "admin"

// A Server is one that this program started, or will.
type Server struct {
	// Dir has its socket, of port 5432, and its files.
	Dir   string
	args  []string
	stdin io.Closer // its end is the server's
	cmd   *exec.Cmd
	log   bytes.Buffer // complete when ended is closed
	ended chan struct{}
}

// New makes a server's files. sync says whether it keeps what it commits through a loss of
// power; settings are its own beside, each as name=value. The caller removes it.
func New(sync bool, settings ...string) (s *Server, err error) {
	dir, err := os.MkdirTemp("", "pg") // short: a socket's path has at most 107 bytes
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	s = &Server{Dir: dir}
	defer func() {
		if err != nil {
			s.Remove()
		}
	}()
	if who := other(); who != nil {
		if err := os.Chown(dir, int(who.Uid), int(who.Gid)); err != nil {
			return nil, fmt.Errorf("pgserver: %w", err)
		}
	}
	init := s.command("initdb", "-D", filepath.Join(dir, "data"), "-U", Admin, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pgserver: initdb: %w\n%s", err, out)
	}
	s.args = []string{"-D", filepath.Join(dir, "data"), "-k", dir, "-c", "listen_addresses=", "-c", "max_connections=300",
		"-c", "shared_buffers=32MB", "-c", "log_min_messages=warning"}
	if !sync { // nor is asked to wait for a disk, unless a transaction does ask
		s.args = append(s.args, "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")
	}
	s.Set(settings...)
	return s, nil
}

// Set gives a server that is not started yet settings more, each as name=value.
func (s *Server) Set(settings ...string) {
	for _, set := range settings {
		s.args = append(s.args, "-c", set)
	}
}

// Put writes a file beside the server's that only the server reads, and returns its path.
func (s *Server) Put(name string, content []byte) (path string, err error) {
	path = filepath.Join(s.Dir, name)
	if err = os.WriteFile(path, content, 0o600); err == nil {
		if who := other(); who != nil {
			err = os.Chown(path, int(who.Uid), int(who.Gid))
		}
	}
	if err != nil {
		return "", fmt.Errorf("pgserver: %w", err)
	}
	return path, nil
}

// program is where a program of PostgreSQL's is: on the PATH, or where Debian has the newest.
func program(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	newest, version := name, -1
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // nil where there is none
	for _, path := range found {
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))); err == nil && n > version {
			newest, version = path, n
		}
	}
	return newest
}

// other is the user that the server runs as, where the tests run as root.
func other() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if errors.Join(err1, err2) == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil // initdb says what is wrong
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(program(name), args...)
	cmd.Dir = s.Dir
	// Its messages are in English, and nothing of the tests' environment connects it.
	cmd.Env = []string{"PATH=" + filepath.Dir(program("postgres")) + ":" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	if who := other(); who != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	}
	return cmd
}

// Start starts the server and waits until it takes connections.
func (s *Server) Start() error {
	// The server ends when the pipe does, and that is with this process at the latest.
	script := `postgres "$@" & pid=$!; cat >/dev/null; kill -QUIT $pid; wait $pid`
	s.cmd = s.command("sh", append([]string{"-c", script, "sh"}, s.args...)...)
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	s.ended = ended
	s.log.Reset()
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(stderr)
		for told := false; lines.Scan(); {
			fmt.Fprintln(&s.log, lines.Text())
			if !told && strings.Contains(lines.Text(), "ready to accept") {
				told = true
				close(ready)
			}
		}
	}()
	select {
	case <-ready:
		return nil
	case <-ended:
		_ = s.cmd.Wait()
		return fmt.Errorf("pgserver: postgres ended:\n%s", &s.log)
	}
}

// Stop ends the server without a checkpoint.
func (s *Server) Stop() {
	_ = s.stdin.Close()
	<-s.ended
	_ = s.cmd.Wait()
}

// Kill ends the server and all of its processes without a word to any of them: the one
// that would clean up behind the others sleeps when they are killed.
func (s *Server) Kill() error {
	b, err := os.ReadFile(filepath.Join(s.Dir, "data", "postmaster.pid"))
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	parent, err := strconv.Atoi(line)
	if err == nil {
		err = syscall.Kill(parent, syscall.SIGSTOP)
	}
	if err != nil {
		return fmt.Errorf("pgserver: the server's process: %w", err)
	}
	children, err := childrenOf(parent)
	for _, pid := range append(children, parent) {
		if killed := syscall.Kill(pid, syscall.SIGKILL); killed != nil && killed != syscall.ESRCH {
			err = errors.Join(err, fmt.Errorf("pgserver: kill %d: %w", pid, killed))
		}
	}
	s.Stop()
	return err
}

// childrenOf asks the system for the processes that a process has begun.
func childrenOf(parent int) (pids []int, err error) {
	out, err := exec.Command("ps", "-eo", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("pgserver: ps: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		var pid, of int
		if _, err := fmt.Sscan(line, &pid, &of); err == nil && of == parent {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Remove removes the files of a server that does not run.
func (s *Server) Remove() { _ = os.RemoveAll(s.Dir) }

// Follow makes a standby of a server that runs, which has all that is committed there.
func (s *Server) Follow() (*Server, error) {
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	b := &Server{Dir: dir}
	for _, arg := range s.args {
		b.args = append(b.args, strings.ReplaceAll(arg, s.Dir, dir))
	}
	if who := other(); who != nil {
		err = os.Chown(dir, int(who.Uid), int(who.Gid))
	}
	if err == nil {
		copying := b.command("pg_basebackup", "-D", filepath.Join(dir, "data"), "-R", "-X", "stream", "-c", "fast", "--no-sync",
			"-d", "host="+s.Dir+" port=5432 user="+Admin+" application_name=standby")
		var out []byte
		if out, err = copying.CombinedOutput(); err != nil {
			err = fmt.Errorf("pgserver: pg_basebackup: %w\n%s", err, out)
		}
	}
	if err == nil {
		err = b.Start()
	}
	if err != nil {
		b.Remove()
		return nil, err
	}
	return b, nil
}
