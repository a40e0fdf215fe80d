// Package kmstest starts a key management service that is not ours: moto, which speaks as
// Amazon's does. test/kms/check installs it, and names the program in STARLING_TEST_MOTO.
package kmstest

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Start starts a service and says where it is.
func Start(t testing.TB) string {
	t.Helper()
	program := os.Getenv("STARLING_TEST_MOTO")
	if program == "" {
		t.Fatal("no moto_server: test/kms/check runs this test")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-H", "127.0.0.1", "-p", port)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	said := make([]byte, 0, 1<<12)
	for buf := make([]byte, 1<<10); !bytes.Contains(said, []byte("Running on")); {
		n, err := out.Read(buf)
		if said = append(said, buf[:n]...); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	go io.Copy(io.Discard, out)
	return "http://" + addr
}

// NewKey makes a key in the service.
func NewKey(t testing.TB, endpoint string) string {
	t.Helper()
	var made struct {
		KeyMetadata struct {
			KeyID string `json:"KeyId"`
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", "TrentService.CreateKey")
	// It looks for the service in the scope, and at no signature.
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=starling/20260101/eu-central-1/kms/aws4_request, SignedHeaders=host, Signature=00")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || made.KeyMetadata.KeyID == "" {
		t.Fatalf("%+v, %v", made, err)
	}
	return made.KeyMetadata.KeyID
}

// Credentials writes a file of credentials, and says where it is.
func Credentials(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "credentials")
	text := "[default]\naws_access_key_id = starling\naws_secret_access_key = Kaeru-tobikomu\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
