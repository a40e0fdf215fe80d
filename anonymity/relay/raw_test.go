package relay

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

// raw sends bytes that no HTTP client would and reads one answer.
func raw(t *testing.T, host, request string) *http.Response {
	t.Helper()
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
