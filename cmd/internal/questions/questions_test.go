package questions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// echo answers with its arguments.
func echo() *Server {
	return &Server{Program: "starling", Version: "v1", Failed: 1, Usage: 2,
		Methods: map[string][]string{"echo": {"a", "b"}, "panic": {"panic"}, "both": {"both"}},
		Run: func(_ context.Context, command, args []string, stdin string) (json.RawMessage, []string, *Error) {
			switch command[0] {
			case "panic":
				panic("a fault\nof several lines")
			case "both":
				return json.RawMessage("{\n  \"fits\": false,\n  \"to\": 1.0e-7, \"as\": \"<&>\"\n}"), []string{"said"}, &Error{"out of reach", "check", "", 6}
			}
			b, err := json.Marshal(append(slices.Concat(command, args), stdin))
			if err != nil {
				panic(err)
			}
			return b, nil, nil
		}}
}

func serve(t testing.TB, in string) (lines []string, log string) {
	t.Helper()
	var out, faults strings.Builder
	if err := echo().Serve(t.Context(), strings.NewReader(in), &out, &faults); err != nil {
		t.Fatal(err)
	}
	if out.Len() == 0 {
		return nil, faults.String()
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), faults.String()
}

// TestServe: each line has its answer, in order, whatever was wrong with those before.
func TestServe(t *testing.T) {
	long := strings.Repeat("x", maxQuestion)
	for _, c := range []struct{ line, id, want string }{
		{`{"id":1,"method":"echo","args":["--delta","1e-6"],"stdin":"[]"}`, `1`, `"result":["a","b","--delta","1e-6","[]"]`},
		{"{\"id\":\"x\",\"method\":\"echo\"}\r", `"x"`, `"result":["a","b",""]`},
		{`{"id":-1.50,"method":"both"}`, `-1.50`, `"result":{"fits":false,"to":1.0e-7,"as":"<&>"},"error":{"error":"out of reach","problem":"check","hint":"","exit":6},"notes":["said"]`},
		{``, `null`, `"problem":"question"`},
		{`nonsense`, `null`, `"problem":"question"`},
		{`[1]`, `null`, `"problem":"question"`},
		{`null`, `null`, `id is missing`},
		{`{"method":"echo"}`, `null`, `id is missing`},
		{`{"id":null,"method":"echo"}`, `null`, `id is missing`},
		{`{"id":true,"method":"echo"}`, `null`, `id is missing`},
		{`{"id":{"a":1},"method":"echo"}`, `null`, `id is missing`},
		{`{"id":"` + long[:maxID] + `","method":"echo"}`, `null`, `id is missing`},
		{`{"id":2,"method":"echo"} {}`, `2`, `there is more on the line`},
		{`{"id":3,"method":"echo","arg":[]}`, `3`, `"problem":"question"`},
		{`{"id":4,"method":"echo","args":"--delta"}`, `4`, `"problem":"question"`},
		{`{"id":5,"method":"echoes"}`, `5`, `there is no method \"echoes\"`},
		{`{"id":6,"method":"panic"}`, `6`, `"error":{"error":"internal error: a fault","problem":"internal"`},
		{`{"id":7,"method":"echo","stdin":"` + long + `"}`, `null`, `a question is a line of at most 4194304 bytes`},
		{`{"id":7,"method":"echo","stdin":"` + long + long + `"}`, `null`, `a question is a line of at most 4194304 bytes`},
		{`{"id":8,"method":"hello","args":["x"]}`, `8`, `hello takes no args`},
		{`{"id":9,"method":"hello"}`, `9`,
			`"result":{"max_line":4194304,"methods":["hello","both","echo","panic"],"program":"starling","protocol":1,"version":"v1"}`},
		{`{"id":10,"method":"echo","stdin":"<&> e"}`, `10`, `"result":["a","b","\u003c\u0026\u003e e"]`},
	} {
		lines, log := serve(t, "{\"id\":0,\"method\":\"echo\"}\n"+c.line+"\n{\"id\":99,\"method\":\"echo\"}")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], `{"id":0,"result"`) || !strings.HasPrefix(lines[2], `{"id":99,"result"`) {
			t.Errorf("%.80s: answered by %q", c.line, lines)
			continue
		}
		if got := lines[1]; !strings.HasPrefix(got, `{"id":`+c.id+`,`) || !strings.Contains(got, c.want) {
			t.Errorf("%.80s: answered by %.300s", c.line, got)
		}
		if found := strings.Contains(log, "questions_test.go"); found != strings.Contains(c.line, "panic") {
			t.Errorf("%.80s: on standard error %q", c.line, log)
		}
	}
	if lines, _ := serve(t, ""); lines != nil {
		t.Errorf("no question is answered by %q", lines)
	}
}

// broken fails to read or to write.
type broken struct{}

var errBroken = errors.New("broken")

func (broken) Read([]byte) (int, error)  { return 0, errBroken }
func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestServeEnds: the end of the context is the end of the work, and a pipe that breaks is
// told from one that ends.
func TestServeEnds(t *testing.T) {
	if err := echo().Serve(t.Context(), broken{}, io.Discard, io.Discard); !errors.Is(err, errBroken) {
		t.Errorf("a reader that fails: %v", err)
	}
	if err := echo().Serve(t.Context(), strings.NewReader("\n"), broken{}, io.Discard); !errors.Is(err, errBroken) {
		t.Errorf("a writer that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	s := echo()
	s.Run = func(ctx context.Context, _, _ []string, _ string) (json.RawMessage, []string, *Error) {
		cancel()
		<-ctx.Done()
		return nil, nil, &Error{}
	}
	go io.WriteString(w, "{\"id\":1,\"method\":\"echo\"}\n")
	var out bytes.Buffer
	if err := s.Serve(ctx, r, &out, io.Discard); err != nil || out.Len() > 0 {
		t.Errorf("a context that ends: %v, %s", err, out.Bytes())
	}
}

// FuzzServe: as many answers as lines, each an object with an id and with a result or an
// error.
func FuzzServe(f *testing.F) {
	f.Add([]byte("{\"id\":1,\"method\":\"echo\",\"args\":[\"a\"]}\n\n{\"id\":2,\"method\":\"panic\"}"))
	f.Add([]byte("{\"id\":\"\xff\",\"method\":\"both\",\"stdin\":\"\\ud800\"}\r\n[[[[\n"))
	f.Add([]byte("{\"id\":1e400,\"ID\":{},\"method\":\"hello\"}\n{\"id\":01}\n\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		want := bytes.Count(in, []byte("\n"))
		if len(in) > 0 && in[len(in)-1] != '\n' {
			want++
		}
		lines, _ := serve(t, string(in))
		if len(lines) != want {
			t.Fatalf("%d answers to %d lines", len(lines), want)
		}
		for _, line := range lines {
			var a map[string]json.RawMessage
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if _, ok := a["id"]; !ok || a["result"] == nil && a["error"] == nil {
				t.Fatalf("answer %s", line)
			}
		}
	})
}
