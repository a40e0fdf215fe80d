package service

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

// An Address is where a service listens: "host:port", or "unix:" and the path of a socket. The path is relative to
// the working directory.
type Address string

const unixPrefix = "unix:"

// IsUnix reports whether a is a unix socket.
func (a Address) IsUnix() bool { return strings.HasPrefix(string(a), unixPrefix) }

// StaysHere reports whether nothing but this machine can reach a: a loopback address or a unix socket. A host name
// other than localhost does not count, for it may come to mean another address.
func (a Address) StaysHere() bool {
	if a.IsUnix() {
		return true
	}
	host, _, err := net.SplitHostPort(string(a))
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Validate says what is wrong with the address.
func (a Address) Validate() error {
	if a.IsUnix() {
		if len(a) == len(unixPrefix) {
			return errors.New("a unix socket needs a path, as in \"unix:/run/starling/leader.sock\"")
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(string(a)); err != nil {
		return fmt.Errorf("%q is neither host:port nor unix:PATH", string(a))
	}
	return nil
}

// listen opens the address. A socket file that a stopped process left behind is replaced; one that answers is not.
func (a Address) listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	if !a.IsUnix() {
		return lc.Listen(ctx, "tcp", string(a))
	}
	path := strings.TrimPrefix(string(a), unixPrefix)
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("%s exists and is not a socket", path)
		}
		d := net.Dialer{Timeout: time.Second}
		if c, err := d.DialContext(ctx, "unix", path); err == nil {
			c.Close()
			return nil, fmt.Errorf("another process listens on %s", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return lc.Listen(ctx, "unix", path)
}

// Listen is the public listener's part of a configuration file.
type Listen struct {
	// Address is required.
	Address Address `toml:"address"`
	// TLSCertificate and TLSKey are PEM files, read anew when they change. Both or none.
	TLSCertificate Path   `toml:"tls_certificate"`
	TLSKey         Secret `toml:"tls_key"`
	// TLSTerminatedUpstream says that a proxy in front speaks TLS; it permits plain HTTP on any address.
	TLSTerminatedUpstream bool `toml:"tls_terminated_upstream"`
	// MaxConnections are open at once; further ones wait in the kernel's queue. Default 1024.
	MaxConnections int `toml:"max_connections"`
	// HeaderTimeout bounds reading a request's head. Default 10s.
	HeaderTimeout Duration `toml:"header_timeout"`
	// RequestTimeout bounds reading a whole request and, separately, writing its answer. Default 60s.
	RequestTimeout Duration `toml:"request_timeout"`
	// IdleTimeout closes a kept connection without requests. Default 2m.
	IdleTimeout Duration `toml:"idle_timeout"`
}

// Limits of a listener; the upper bounds keep a slip of the pen from switching a limit off.
const (
	defaultMaxConnections = 1024
	maxMaxConnections     = 1 << 20
	defaultHeaderTimeout  = Duration(10 * time.Second)
	defaultRequestTimeout = Duration(60 * time.Second)
	defaultIdleTimeout    = Duration(2 * time.Minute)
	maxTimeout            = Duration(time.Hour)
	maxHeaderBytes        = 16 << 10
)

func (l Listen) withDefaults() Listen {
	if l.MaxConnections == 0 {
		l.MaxConnections = defaultMaxConnections
	}
	if l.HeaderTimeout == 0 {
		l.HeaderTimeout = defaultHeaderTimeout
	}
	if l.RequestTimeout == 0 {
		l.RequestTimeout = defaultRequestTimeout
	}
	if l.IdleTimeout == 0 {
		l.IdleTimeout = defaultIdleTimeout
	}
	return l
}

// ErrPlainHTTP: a public address without TLS.
var ErrPlainHTTP = errors.New("plain HTTP would leave this machine: give tls_certificate and tls_key, " +
	"listen on loopback or a unix socket, or set tls_terminated_upstream = true where a proxy speaks TLS")

// Validate says what is wrong with the listener. It touches no file.
func (l Listen) Validate() error {
	if err := l.Address.Validate(); err != nil {
		return fmt.Errorf("address: %w", err)
	}
	if (l.TLSCertificate == "") != (l.TLSKey == "") {
		return errors.New("tls_certificate and tls_key go together")
	}
	if l.TLSCertificate == "" && !l.TLSTerminatedUpstream && !l.Address.StaysHere() {
		return fmt.Errorf("address: %w", ErrPlainHTTP)
	}
	l = l.withDefaults()
	if l.MaxConnections < 1 || l.MaxConnections > maxMaxConnections {
		return fmt.Errorf("max_connections: want 1 to %d", maxMaxConnections)
	}
	for _, t := range []struct {
		key string
		d   Duration
	}{
		{"header_timeout", l.HeaderTimeout}, {"request_timeout", l.RequestTimeout}, {"idle_timeout", l.IdleTimeout},
	} {
		if t.d <= 0 || t.d > maxTimeout {
			return fmt.Errorf("%s: want above 0 and at most %v", t.key, time.Duration(maxTimeout))
		}
	}
	return nil
}

// CheckFiles reads what the listener names, as starting it would.
func (l Listen) CheckFiles() error {
	if l.TLSCertificate == "" {
		return nil
	}
	_, err := (&certificate{cert: l.TLSCertificate, key: l.TLSKey}).get(nil)
	return err
}

// certificate reads a key pair from files and reads it again when they change.
type certificate struct {
	cert Path
	key  Secret

	mu      sync.Mutex // guards all below
	pair    *tls.Certificate
	changed time.Time // modification time of the certificate file that pair came from
	looked  time.Time
}

// certificateAge is how long a certificate is served without looking for a newer one.
const certificateAge = 30 * time.Second

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.pair != nil && now.Sub(c.looked) < certificateAge {
		return c.pair, nil
	}
	c.looked = now
	info, err := os.Stat(string(c.cert))
	if err == nil && c.pair != nil && info.ModTime().Equal(c.changed) {
		return c.pair, nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = c.load()
	}
	if err != nil {
		if c.pair != nil {
			return c.pair, nil // a renewal half written must not stop the service
		}
		return nil, fmt.Errorf("service: read TLS certificate: %w", err)
	}
	c.pair, c.changed = &pair, info.ModTime()
	return c.pair, nil
}

func (c *certificate) load() (tls.Certificate, error) {
	key, err := c.key.Read()
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := os.ReadFile(string(c.cert))
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// limitListener holds at most a number of connections open at once.
type limitListener struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	close sync.Once
}

func newLimitListener(l net.Listener, n int) *limitListener {
	return &limitListener{Listener: l, slots: make(chan struct{}, n), done: make(chan struct{})}
}

func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitConn{Conn: c, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limitListener) Close() error {
	l.close.Do(func() { close(l.done) })
	return l.Listener.Close()
}

type limitConn struct {
	net.Conn
	release func()
}

func (c *limitConn) Close() error {
	err := c.Conn.Close()
	c.release()
	return err
}
