package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/starling-agg/starling/cmd/internal/questions"
	"github.com/starling-agg/starling/vdaf/pine"
)

// keptMethods are what account --serve answers, by the words of the command: what
// computes from its arguments and from files that they name, reaches no network, holds no
// secret, and writes nothing but the new file of a recipe. A command that keeps state,
// waits for somebody or replaces a file has no place here.
var keptMethods = map[string][]string{
	"account":     {"account"},
	"plan":        {"recipe", "plan"},
	"recipe plan": {"recipe", "plan"},
	"recipe new":  {"recipe", "new"},
	"recipe show": {"recipe", "show"},
	"fl plan":     {"fl", "plan"},
}

// problems are the names of exit codes in answers; docs/accounting.md lists them.
var problems = map[int]string{
	exitFailed: "failed", exitUsage: "usage", exitInput: "input", exitUnreachable: "unreachable", exitNotYet: "not-yet", exitCheck: "check",
	exitInterrupted: "interrupted",
}

// A shared is what the questions of a kept process have in common.
type shared struct {
	// speed is measured once: it is of the machine, and takes longer than most answers.
	speed func() (*pine.Speed, error)
	mu    sync.Mutex
	found map[string]any // what was computed, by what was asked; guarded by mu
}

// maxFound bounds what a kept process remembers, to some megabytes.
const maxFound = 1000

// remembered is compute for what follows from key alone. Of a kept process's questions it
// computes the same one once.
func remembered[T any](ctx context.Context, e *env, key any, f func() (T, error)) (T, error) {
	var asked strings.Builder
	if e.shared == nil || !spell(&asked, reflect.ValueOf(key)) {
		return compute(ctx, f)
	}
	s := e.shared
	s.mu.Lock()
	v, ok := s.found[asked.String()].(T)
	s.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := compute(ctx, f)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.found) >= maxFound {
			clear(s.found)
		}
		s.found[asked.String()] = v
	}
	return v, err
}

// spell writes a value so that no other is written so, and reports whether it can:
// whether the value is all there, and no part of it elsewhere.
func spell(b *strings.Builder, v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Invalid:
		b.WriteString("nil,")
	// By kind: what a type says of itself may be the same for two values.
	case reflect.Bool:
		fmt.Fprintf(b, "%t,", v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		fmt.Fprintf(b, "%d,", v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		fmt.Fprintf(b, "%d,", v.Uint())
	case reflect.Float32, reflect.Float64:
		fmt.Fprintf(b, "%x,", v.Float())
	case reflect.String:
		fmt.Fprintf(b, "%q,", v.String())
	case reflect.Interface:
		if v.IsNil() {
			return spell(b, reflect.Value{})
		}
		fmt.Fprintf(b, "%s.%s:", v.Elem().Type().PkgPath(), v.Elem().Type().Name())
		return v.Elem().Type().Name() != "" && spell(b, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if !spell(b, v.Field(i)) {
				return false
			}
		}
	case reflect.Slice, reflect.Array:
		fmt.Fprintf(b, "%d[", v.Len())
		for i := range v.Len() {
			if !spell(b, v.Index(i)) {
				return false
			}
		}
	default:
		return false
	}
	return true
}

// answerer is what account --serve answers with.
func answerer(plain bool) *questions.Server {
	all := &shared{speed: sync.OnceValues(calibrate), found: make(map[string]any)}
	return &questions.Server{Program: "starling", Version: thisBuild().Version, Methods: keptMethods, Failed: exitFailed, Usage: exitUsage,
		Run: func(ctx context.Context, command, args []string, stdin string) (result json.RawMessage, notes []string, failed *questions.Error) {
			var stdout, stderr bytes.Buffer
			e := &env{stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr, plain: plain, shared: all}
			err := root().run(ctx, e, "", slices.Concat(command, []string{"--json"}, args))
			for line := range strings.Lines(stderr.String()) {
				notes = append(notes, strings.TrimSuffix(line, "\n"))
			}
			switch printed := bytes.TrimSpace(stdout.Bytes()); {
			case json.Valid(printed):
				result = printed
			case err == nil:
				err = failf(exitUsage, "leave out --help and --json", "what the command printed is no JSON")
			}
			if err != nil {
				f := faultOf(err)
				failed = &questions.Error{Text: err.Error(), Problem: problems[f.code], Hint: f.hint, Exit: f.code}
			}
			return result, notes, failed
		}}
}

// serveAccount is account --serve.
func serveAccount(ctx context.Context, e *env, flags *flag.FlagSet) error {
	if e.shared != nil {
		return failf(exitUsage, "ask the next question", "a kept accountant starts no other")
	}
	alone := true
	flags.Visit(func(f *flag.Flag) { alone = alone && (f.Name == "serve" || f.Name == "json") })
	if !alone {
		return failf(exitUsage, "starling account --serve", "--serve stands alone: questions are read from standard input")
	}
	return answerer(e.plain).Serve(ctx, e.stdin, e.stdout, e.stderr)
}
