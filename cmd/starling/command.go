package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/vdaf/pine"
)

// env is what a command may touch of the world around it.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	// width of the terminal on stdout in columns, 0 where stdout is none.
	width int
	// asked is the width that $COLUMNS asks for, terminal or not; 0 where it asks for none.
	asked int
	// watched: stderr is a terminal, so progress may redraw its line.
	watched bool
	// plain: the terminal takes ASCII only.
	plain bool
	// shared is what the command has in common with others that one process answers; nil
	// where it is alone.
	shared *shared
}

// columns is how wide text for people may be.
func (e *env) columns() int {
	return cmp.Or(e.prose(), 100)
}

// prose is how wide whoever reads wants text to be, 0 where nobody said.
func (e *env) prose() int { return cmp.Or(e.asked, e.width) }

// json prints one value on stdout as one object with a line to itself.
func (e *env) json(v any) error {
	enc := json.NewEncoder(e.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// A command is a verb of the binary, or a group of them.
type command struct {
	name string
	// args stand after the name in the usage, as in "[flags] FILE".
	args string
	// short is one line without a full stop; long are paragraphs.
	short, long string
	// examples are lines to type, each with what it does.
	examples [][2]string
	// setup declares the flags and returns what runs with them. Nil for a group.
	setup func(*flag.FlagSet) func(ctx context.Context, e *env, args []string) error
	sub   []*command
}

// run finds the command that args name and runs it.
func (c *command) run(ctx context.Context, e *env, path string, args []string) error {
	path = strings.TrimSpace(strings.TrimSpace(path) + " " + c.name)
	if c.setup == nil {
		if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" || args[0] == "-help" {
			if len(args) > 1 {
				return c.run(ctx, e, strings.TrimSuffix(path, c.name), append(args[1:], "--help"))
			}
			if len(args) == 0 {
				c.usage(e.stderr, path, nil)
				return failf(exitUsage, path+" --help", "%s needs a command", path)
			}
			c.usage(e.stdout, path, nil)
			return nil
		}
		for _, s := range c.sub {
			if s.name == args[0] {
				return s.run(ctx, e, path, args[1:])
			}
		}
		return failf(exitUsage, c.nearest(path, args[0]), "%s has no command %q", path, args[0])
	}
	flags := flag.NewFlagSet(path, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	do := c.setup(flags)
	rest, err := parse(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		c.usage(e.stdout, path, flags)
		return nil
	}
	if unknown := new(flagError); errors.As(err, &unknown) {
		return failf(exitUsage, nearestFlag(path, flags, unknown.name), "%s %w", path, err)
	}
	if err != nil {
		return failf(exitUsage, path+" --help", "%s: %w", path, err)
	}
	return do(ctx, e, rest)
}

// A flagError is a flag that a command does not have.
type flagError struct{ name string }

func (e *flagError) Error() string { return fmt.Sprintf("has no flag --%s", e.name) }

// parse lets flags stand before, between and behind arguments; "--" ends them.
func parse(flags *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		err := flags.Parse(args)
		left := flags.Args()
		if err != nil && !errors.Is(err, flag.ErrHelp) {
			// The argument read last is at fault: an unknown flag, or one with its value.
			name, _, _ := strings.Cut(strings.TrimLeft(args[len(args)-len(left)-1], "-"), "=")
			if name != "" && flags.Lookup(name) == nil && strings.HasPrefix(args[len(args)-len(left)-1], "-") {
				return nil, &flagError{name}
			}
		}
		if err != nil {
			return nil, err
		}
		if used := len(args) - len(left); used > 0 && args[used-1] == "--" {
			return append(rest, left...), nil
		}
		if len(left) == 0 {
			return rest, nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

// nearest names the command that a mistyped one most likely meant: one of that name a word
// further on, as serve agent for agent, or one of nearly that name.
func (c *command) nearest(path, typed string) string {
	names := make([]string, len(c.sub))
	for i, s := range c.sub {
		names[i] = s.name
		if slices.ContainsFunc(s.sub, func(s *command) bool { return s.name == typed }) {
			return path + " " + s.name + " " + typed
		}
	}
	if best := closest(typed, names); best != "" {
		return path + " " + best
	}
	return path + " --help" + elsewhere
}

// nearestFlag names the flag that a mistyped one most likely meant, and what it takes.
func nearestFlag(path string, flags *flag.FlagSet, typed string) string {
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	best := closest(typed, names)
	if best == "" {
		return path + " --help"
	}
	kind, _ := flag.UnquoteUsage(flags.Lookup(best))
	return strings.TrimSpace(path + " --" + best + " " + kind)
}

// closest is the name that is at most two letters from what was typed, and not all of
// them; empty if none is.
func closest(typed string, names []string) (best string) {
	least := min(3, len(typed))
	for _, name := range names {
		if d := distance(typed, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete or replace between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

func (c *command) usage(w io.Writer, path string, flags *flag.FlagSet) {
	if c.short != "" {
		fmt.Fprintf(w, "%s.\n\n", c.short)
	}
	if c.sub != nil {
		fmt.Fprintf(w, "Usage: %s COMMAND\n\n", path)
		width := 10
		for _, s := range c.sub {
			width = max(width, len(s.name))
		}
		for _, s := range c.sub {
			fmt.Fprintf(w, "  %-*s %s\n", width, s.name, s.short)
		}
	} else {
		fmt.Fprintf(w, "Usage: %s\n", strings.TrimSpace(path+" "+c.args))
	}
	if c.long != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(c.long))
	}
	if flags != nil {
		any := false
		flags.VisitAll(func(f *flag.Flag) {
			if !any {
				fmt.Fprintf(w, "\nFlags:\n")
				any = true
			}
			kind, text := flag.UnquoteUsage(f)
			name := strings.TrimSpace("--" + f.Name + " " + kind)
			if len(name) > 24 {
				name += fmt.Sprintf("\n  %24s", "")
			}
			fmt.Fprintf(w, "  %-24s %s", name, text)
			if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
				fmt.Fprintf(w, " (default %s)", f.DefValue)
			}
			fmt.Fprintln(w)
		})
	}
	if len(c.examples) > 0 {
		fmt.Fprintf(w, "\nExamples:\n")
		for _, x := range c.examples {
			fmt.Fprintf(w, "  %s\n      %s\n", x[0], x[1])
		}
	}
	if c.sub != nil {
		fmt.Fprintf(w, "\n%s COMMAND --help says more about each.\n", path)
	}
}

// noArgs refuses arguments to a command that takes none.
func noArgs(path string, args []string) error {
	if len(args) > 0 {
		return failf(exitUsage, "starling "+path+" --help", "starling %s takes no argument %q", path, args[0])
	}
	return nil
}

// compute returns what f does, or the context's error as soon as that ends: what is pure
// arithmetic has no place at which it could be asked to stop, and the process is about to
// end.
func compute[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
		panic any // nothing, or what f panicked with
	}
	done := make(chan answer, 1)
	go func() {
		// A panic belongs to who asked, who may have other questions to answer.
		var a answer
		defer func() {
			if p := recover(); p != nil {
				a.panic = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
			}
			done <- a
		}()
		a.value, a.err = f()
	}()
	select {
	case a := <-done:
		if a.panic != nil {
			panic(a.panic)
		}
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// calibrate measures what reports cost on this machine.
func calibrate() (*pine.Speed, error) {
	begun := time.Now()
	return pine.Calibrate(func() time.Duration { return time.Since(begun) })
}

// speed is what calibrate measured, once a process.
func (e *env) speed() (*pine.Speed, error) {
	if e.shared != nil {
		return e.shared.speed()
	}
	return calibrate()
}
