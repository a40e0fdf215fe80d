// Package questions answers the questions of a program out of a process that it keeps: a
// line of JSON each, in their order.
//
// A question is an object with the keys id (a number or a text), method, args (the words
// of a command line behind the command) and stdin (what the command reads there). An
// answer has its id, and result, which is what the command prints with --json, or error,
// or both where the command prints a result and fails all the same. The answer to what is
// no question says so, and the next line is read. docs/accounting.md tells it to users.
//
// The program that asks owns the process: limits are against slips, not against
// strangers.
package questions

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
)

// protocol is raised when a question or an answer means something else than it did. Keys
// and methods are added without.
const protocol = 1

const (
	// maxQuestion bounds a line that is read, in bytes. It has room for the longest list
	// of events as a text within a text.
	maxQuestion = 4 << 20

	maxID = 128 // bytes of an id as it is written
)

// hello is the method that says what answers: program, version, protocol, methods, and in
// max_line the bytes of a question.
const hello = "hello"

// Problems that are of the line or of this program, and of no command.
const (
	problemQuestion = "question" // a line that is no question
	problemInternal = "internal" // a fault of the program's own
)

// An Error is what a command would have said of its failure.
type Error struct {
	Text    string `json:"error"`
	Problem string `json:"problem"` // a name for Exit, or what a line lacks
	Hint    string `json:"hint"`    // what to ask or to type instead; may be empty
	Exit    int    `json:"exit"`    // the exit code that the command would have had
}

// A Server answers questions. Fields are read only.
type Server struct {
	// Program and Version are what hello says.
	Program, Version string
	// Methods are the commands that are answered, by the names that questions have for
	// them: the words in front of the arguments.
	Methods map[string][]string
	// Run runs a command, which Methods has, with the arguments of a question. Result is
	// the JSON that it printed, or nil; notes are what it said to people beside it. If it
	// panics, the answer says so.
	Run func(ctx context.Context, command, args []string, stdin string) (result json.RawMessage, notes []string, failed *Error)
	// Failed and Usage are the exit codes of commands that failed, and that make no
	// sense.
	Failed, Usage int
}

type question struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Args   []string        `json:"args"`
	Stdin  string          `json:"stdin"`
}

type answer struct {
	ID     json.RawMessage `json:"id"` // null where the question's could not be read
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	Notes  []string        `json:"notes,omitempty"`
}

// Serve answers each line of in by one on out. It returns nil when in has ended and all
// was answered, or when ctx is over, and an error when in or out is broken. The traces of
// panics go to log.
func (s *Server) Serve(ctx context.Context, in io.Reader, out, log io.Writer) error {
	type line struct {
		text []byte
		long bool
		err  error
	}
	lines := make(chan line)
	// Reading waits for whoever asks, and cannot be told to stop: it ends with the
	// process, or with the next line.
	go func() {
		r := bufio.NewReaderSize(in, 64<<10)
		for {
			text, long, err := readLine(r, maxQuestion)
			select {
			case lines <- line{text, long, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		var next line
		select {
		case next = <-lines:
		case <-ctx.Done():
			return nil
		}
		if next.err != nil && !errors.Is(next.err, io.EOF) {
			return fmt.Errorf("reading questions: %w", next.err)
		}
		if next.err == nil || len(next.text) > 0 || next.long {
			a := s.no(nil, "a question is a line of at most %d bytes", maxQuestion)
			if !next.long {
				a = s.answer(ctx, next.text, log)
			}
			if ctx.Err() != nil {
				return nil // nobody waits for an answer that says so
			}
			if err := writeLine(out, a); err != nil {
				return fmt.Errorf("writing answers: %w", err)
			}
		}
		if next.err != nil {
			return nil
		}
	}
}

// readLine reads up to the end of a line, which it takes away. Of a line longer than
// limit it says so, and keeps nothing. The last line may lack its end.
func readLine(r *bufio.Reader, limit int) (text []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		if err == nil {
			part = part[:len(part)-1]
		}
		if long = long || len(text)+len(part) > limit; long {
			text = nil
		} else {
			text = append(text, part...)
		}
		if !full {
			return text, long, err
		}
	}
}

// writeLine writes an answer as one line, at once.
func writeLine(w io.Writer, a *answer) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(a); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// no answers a line that is no question.
func (s *Server) no(id json.RawMessage, format string, args ...any) *answer {
	return &answer{ID: id, Error: &Error{fmt.Sprintf(format, args...), problemQuestion,
		`a question is a line such as {"id":1,"method":"hello"}, whose answer lists the methods`, s.Usage}}
}

// answer answers one line.
func (s *Server) answer(ctx context.Context, text []byte, log io.Writer) *answer {
	var q question
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(&q)
	id := q.ID
	if len(id) == 0 || len(id) > maxID || !strings.ContainsRune(`"-0123456789`, rune(id[0])) {
		id = nil
	}
	if err != nil {
		return s.no(id, "the line is no question: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return s.no(id, "there is more on the line than a question")
	}
	if id == nil {
		return s.no(nil, "id is missing, or is no number and no text of at most %d bytes", maxID)
	}
	if q.Method == hello {
		return s.greet(id, len(q.Args) == 0 && q.Stdin == "")
	}
	command, ok := s.Methods[q.Method]
	if !ok {
		return s.no(id, "there is no method %q", q.Method)
	}
	return s.run(ctx, id, command, &q, log)
}

func (s *Server) greet(id json.RawMessage, alone bool) *answer {
	if !alone {
		return s.no(id, "%s takes no args and no stdin", hello)
	}
	b, err := json.Marshal(map[string]any{"program": s.Program, "version": s.Version, "protocol": protocol,
		"methods": append([]string{hello}, slices.Sorted(maps.Keys(s.Methods))...), "max_line": maxQuestion})
	if err != nil {
		panic("questions: internal error: " + err.Error())
	}
	return &answer{ID: id, Result: b}
}

// run answers by what a command line prints.
func (s *Server) run(ctx context.Context, id json.RawMessage, command []string, q *question, log io.Writer) (a *answer) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(log, "%s: internal error: %v\n\n%s\n", s.Program, p, debug.Stack())
			what, _, _ := strings.Cut(fmt.Sprint(p), "\n")
			a = &answer{ID: id, Error: &Error{"internal error: " + what, problemInternal,
				"this is a fault of the program: please report it, with what it said on standard error", s.Failed}}
		}
	}()
	a = &answer{ID: id}
	a.Result, a.Notes, a.Error = s.Run(ctx, command, q.Args, q.Stdin)
	return a
}
