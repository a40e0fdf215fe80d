package sender

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/starling-agg/starling/recipe"
)

// MaxAttributes bounds a file of attributes, in bytes.
const MaxAttributes = 64 << 10

// An AttributesError: a line of a file of attributes is not what it must be.
type AttributesError struct {
	Line int // from 1; 0: the file as a whole
	Err  error
}

func (e *AttributesError) Error() string {
	if e.Line == 0 {
		return "attributes: " + e.Err.Error()
	}
	return fmt.Sprintf("attributes: line %d: %v", e.Line, e.Err)
}
func (e *AttributesError) Unwrap() error { return e.Err }

// ReadAttributes reads what a device declares to targeted recipes: lines of
// ATTRIBUTE=VALUE, of which none names an attribute twice; empty ones and comments after #
// are skipped. It fails with *[AttributesError], and as r does.
func ReadAttributes(r io.Reader) (map[recipe.Attribute]string, error) {
	bounded := &io.LimitedReader{R: r, N: MaxAttributes + 1}
	list := make(map[recipe.Attribute]string)
	lines := bufio.NewScanner(bounded)
	lines.Buffer(nil, MaxAttributes+1)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		a, err := recipe.ParseAttribute(strings.TrimSpace(name))
		if value = strings.TrimSpace(value); !ok || value == "" || err != nil {
			return nil, &AttributesError{n, errors.New("no attribute that a recipe may ask for, with its value")}
		}
		if _, twice := list[a]; twice {
			return nil, &AttributesError{n, fmt.Errorf("%v a second time", a)}
		}
		list[a] = value
	}
	if bounded.N == 0 {
		return nil, &AttributesError{0, fmt.Errorf("more than %d bytes", MaxAttributes)}
	}
	return list, lines.Err()
}

// LookedUp accepts the one entry of a log that a person has looked up, as
// [Options].Certificate.
func LookedUp(entry recipe.Hash) func(*recipe.Targeting) error {
	return func(t *recipe.Targeting) error {
		if t.Certificate.Entry != entry {
			return errors.New("the recipe names another log entry")
		}
		return nil
	}
}
