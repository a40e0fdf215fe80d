package service

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/starling-agg/starling/internal/faults"
)

// Limits on the files an operator hands us.
const (
	maxConfigBytes = 1 << 20
	maxSecretBytes = 64 << 10
)

// A ConfigError says where a configuration file is wrong. Line and Column count from 1
// and are 0 where unknown.
type ConfigError struct {
	File         string
	Line, Column int
	Key          string // dotted, as in "public.address"; empty for a fault of syntax
	Reason       string
}

func (e *ConfigError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Key != "" {
		fmt.Fprintf(&b, "%s: ", e.Key)
	}
	b.WriteString(e.Reason)
	return b.String()
}

// Load reads the TOML file at path into the struct that into points to, over the defaults
// it already holds. Unknown keys, repeated keys and values of the wrong type are a
// [*ConfigError]; unknown keys are a [faults.List] of one for each, and the rest is read
// all the same. Every field of type [Path] or [Secret] that is relative is made
// relative to the file's directory. Load does not validate: the caller's Validate does.
func Load(path string, into any) error {
	text, err := readConfig(path)
	if err != nil {
		return err
	}
	var unknown faults.List
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(into); err != nil {
		strict := new(toml.StrictMissingError)
		if !errors.As(err, &strict) {
			return configError(path, err)
		}
		for i := range strict.Errors {
			line, column := strict.Errors[i].Position()
			unknown.Add("", &ConfigError{path, line, column, strings.Join(strict.Errors[i].Key(), "."), ReasonUnknown})
		}
	}
	resolve(reflect.ValueOf(into), filepath.Dir(path))
	return unknown.All()
}

// LoadKnown is Load for a reader that does not know yet what file it has: keys that into
// has no field for are passed over.
func LoadKnown(path string, into any) error {
	text, err := readConfig(path)
	if err != nil {
		return err
	}
	if err := toml.Unmarshal(text, into); err != nil {
		return configError(path, err)
	}
	resolve(reflect.ValueOf(into), filepath.Dir(path))
	return nil
}

func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("service: open configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return nil, fmt.Errorf("service: read configuration: %w", err)
	}
	if len(text) > maxConfigBytes {
		return nil, &ConfigError{File: path, Reason: fmt.Sprintf("larger than %d bytes", maxConfigBytes)}
	}
	return text, nil
}

// ReasonUnknown is the Reason of a key that nobody knows.
const ReasonUnknown = "unknown key"

// configError turns the decoder's errors into ours.
func configError(path string, err error) error {
	var syntax *toml.DecodeError
	if errors.As(err, &syntax) {
		line, column := syntax.Position()
		return &ConfigError{path, line, column, strings.Join(syntax.Key(), "."), strings.TrimPrefix(syntax.Error(), "toml: ")}
	}
	return &ConfigError{File: path, Reason: strings.TrimPrefix(err.Error(), "toml: ")}
}

// resolve makes every relative Path and Secret below v relative to dir.
func resolve(v reflect.Value, dir string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			resolve(v.Elem(), dir)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				resolve(v.Field(i), dir)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			resolve(v.Index(i), dir)
		}
	case reflect.String:
		_, isPath := v.Interface().(Path)
		_, isSecret := v.Interface().(Secret)
		if (isPath || isSecret) && v.String() != "" && !filepath.IsAbs(v.String()) {
			v.SetString(filepath.Join(dir, v.String()))
		}
	}
}

// A Path is a file or directory named in a configuration file, absolute or relative to
// that file.
type Path string

// A Secret is the path of a file that holds a secret, absolute or relative to the
// configuration file that names it.
type Secret string

// Text returns what a file of text holds, without a final newline. It refuses what Read
// refuses.
func (s Secret) Text() (string, error) {
	b, err := s.Read()
	if err != nil {
		return "", err
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	if len(b) == 0 {
		return "", fmt.Errorf("service: secret %s is empty", s)
	}
	return string(b), nil
}

// Read returns what the file holds, byte for byte. A file that others than its owner may
// read or write is refused with an error that says how to mend it.
func (s Secret) Read() ([]byte, error) {
	if s == "" {
		return nil, errors.New("service: no path to a secret given")
	}
	f, err := os.Open(string(s))
	if err != nil {
		return nil, fmt.Errorf("service: open secret: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("service: inspect secret: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("service: secret %s is not a regular file", s)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, &SecretModeError{Path: string(s), Mode: info.Mode().Perm()}
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err != nil {
		return nil, fmt.Errorf("service: read secret: %w", err)
	}
	if len(b) > maxSecretBytes {
		return nil, fmt.Errorf("service: secret %s is larger than %d bytes", s, maxSecretBytes)
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("service: secret %s is empty", s)
	}
	return b, nil
}

// A SecretModeError is a secret that others than its owner may read or write.
type SecretModeError struct {
	Path string
	Mode fs.FileMode
}

func (e *SecretModeError) Error() string {
	return fmt.Sprintf("service: secret %s has mode %04o; only its owner may have access: chmod 600 %s",
		e.Path, e.Mode, e.Path)
}

// A Duration is a time.Duration written in configuration as "1.5s", "5m" or "24h".
type Duration time.Duration

var _ encoding.TextUnmarshaler = (*Duration)(nil)

// UnmarshalText reads what [time.ParseDuration] reads.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("not a duration such as \"5m\": %q", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes the duration so that UnmarshalText reads it back.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }
