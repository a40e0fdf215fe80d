package deploy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/internal/service"
)

// TestGatewayAdmission: a gateway finds keys for tokens in the directory that its file
// names; a file that others may read, one that is no list, and a directory beside no epochs
// are told before it starts.
func TestGatewayAdmission(t *testing.T) {
	x := createFront(t, counted)
	c := x.gateway
	dir := t.TempDir()
	c.Epochs, c.Admission = service.Path(dir), service.Path(dir)
	keys := &admission.Keys{Task: [32]byte{5}, First: uint64(time.Now().Unix()) / 3600, Length: 3600, Grace: 900}
	keys.Generate(2)
	b, err := keys.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "1.admission")
	write := func(b []byte, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file, b, mode), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write(b, 0o600)
	o, err := c.options()
	if err != nil || len(o.Admission) != 1 || o.Admission[0].Keys.Name() != keys.Name() || o.Admission[0].Note != file+".used" {
		t.Fatalf("%d lists, %v", len(o.Admission), err)
	}
	write(b, 0o644)
	if err := c.Check(); !errors.As(err, new(*service.SecretModeError)) {
		t.Errorf("a file that others may read: %v", err)
	}
	write(b[:len(b)-1], 0o600)
	if err := c.Check(); !errors.Is(err, admission.ErrKeys) || !strings.Contains(err.Error(), "1.admission") {
		t.Errorf("a file that is cut off: %v", err)
	}
	write(b, 0o600)
	c.Admission = service.Path(filepath.Join(dir, "elsewhere"))
	if err := c.Check(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	c.Epochs = ""
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "admission: belongs to epochs") {
		t.Errorf("beside no epochs: %v", err)
	}
}
