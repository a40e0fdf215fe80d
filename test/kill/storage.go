package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

const (
	user   = "starling"
	secret = "Kaeru-tobikomu"
	bucket = "reports"
)

// A storage is an S3 server in which leaders put what is too large for rows.
type storage struct {
	section string // of the configuration that names it
	puts    atomic.Int64
	end     func()
}

// newStorage starts one, with all that it has in dir: this process, or a gateway.
func newStorage(dir, gateway string) (s *storage, err error) {
	if err := os.MkdirAll(filepath.Join(dir, "data", bucket), 0o700); err != nil {
		return nil, err
	}
	credentials := filepath.Join(dir, "credentials")
	text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", user, secret)
	if err := os.WriteFile(credentials, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s = new(storage)
	endpoint := ""
	if gateway == "" {
		endpoint, err = s.here()
	} else {
		endpoint, err = s.there(gateway, dir)
	}
	s.section = fmt.Sprintf("\n[database.objects]\nendpoint = %q\nregion = \"us-east-1\"\nbucket = %q\npath_style = true\ncredentials = %q\n",
		endpoint, bucket, credentials)
	return s, err
}

// here is a server in this process, which is never killed.
func (s *storage) here() (endpoint string, err error) {
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		return "", err
	}
	real := gofakes3.New(backend).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/"+bucket+"/slices/") {
			s.puts.Add(1)
		}
		real.ServeHTTP(w, r)
	}))
	s.end = server.Close
	return server.URL, nil
}

// there is a versitygw.
func (s *storage) there(gateway, dir string) (endpoint string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := l.Addr().String()
	l.Close()
	cmd := exec.Command(gateway, "--quiet", "--keep-alive", "--port", address, "posix", filepath.Join(dir, "data"))
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+user, "ROOT_SECRET_KEY="+secret)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("%s: %w", gateway, err)
	}
	s.end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return "http://" + address, nil
		}
		if time.Now().After(deadline) {
			s.end()
			return "", errors.Join(errors.New("versitygw does not answer"), err)
		}
		time.Sleep(50 * time.Millisecond) // another process: there is no signal to wait for
	}
}
