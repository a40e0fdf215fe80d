package pgdb

import (
	"fmt"
	"io/fs"
	"strings"
)

// readStatements reads the named statements: a line "-- name: x" begins the one called x,
// which ends at the next such line.
func readStatements(files fs.FS) (map[string]string, error) {
	text := make(map[string]string)
	if files == nil {
		return text, nil
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("pgdb: list statements: %w", err)
	}
	for _, file := range names {
		b, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, fmt.Errorf("pgdb: read statements: %w", err)
		}
		_, rest, _ := strings.Cut("\n"+string(b), "\n-- name: ")
		for rest != "" {
			var name, block string
			block, rest, _ = strings.Cut(rest, "\n-- name: ")
			name, block, _ = strings.Cut(block, "\n")
			name = strings.TrimSpace(name)
			if _, twice := text[name]; twice {
				return nil, fmt.Errorf("pgdb: %s: statement %q twice", file, name)
			}
			text[name] = strings.TrimSpace(block)
		}
	}
	return text, nil
}
