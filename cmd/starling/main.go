// Starling plays every party of private aggregation from one binary.
package main

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/term"
)

func main() { os.Exit(start()) }

// start wires the process to the commands.
func start() int {
	// The first signal asks the command to stop in order; the second kills the process.
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	context.AfterFunc(ctx, cancel)

	e := &env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, plain: !utf8Locale()}
	if fd := int(os.Stdout.Fd()); term.IsTerminal(fd) {
		e.width = 80
		if w, _, err := term.GetSize(fd); err == nil {
			e.width = w
		}
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		e.asked = n
	}
	e.watched = term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb"
	return play(ctx, e, os.Args[1:])
}

// utf8Locale reports whether the terminal's user reads more than ASCII.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			return strings.Contains(strings.ToLower(strings.ReplaceAll(v, "-", "")), "utf8")
		}
	}
	return true
}
