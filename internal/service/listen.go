package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/faults"
)

// An Address is where a service listens: "host:port", or "unix:" and the path of a
// socket. The path is relative to the working directory.
type Address string

const unixPrefix = "unix:"

// IsUnix reports whether a is a unix socket.
func (a Address) IsUnix() bool { return strings.HasPrefix(string(a), unixPrefix) }

// StaysHere reports whether nothing but this machine can reach a: a loopback address or a
// unix socket. A host name other than localhost does not count, for it may come to mean
// another address.
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
	_, port, err := net.SplitHostPort(string(a))
	if err != nil {
		return fmt.Errorf("%q is neither host:port nor unix:PATH", string(a))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: the port is not a number from 0 to 65535", string(a))
	}
	return nil
}

// listen opens the address. A socket file that a stopped process left behind is replaced;
// one that answers is not.
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

// permit gives the socket a mode. Until then it has what the umask leaves: it is up to its
// directory that this opens nothing to strangers.
func (a Address) permit(mode os.FileMode) error {
	if runtime.GOOS == "windows" { // whose sockets have no mode
		return nil
	}
	return os.Chmod(strings.TrimPrefix(string(a), unixPrefix), mode)
}

// Listen is the public listener's part of a configuration file.
type Listen struct {
	// Address is host:port, or unix:PATH. Required.
	Address Address `toml:"address"`
	// TLSCertificate is a PEM file, read anew when it changes, and so is TLSKey. Both or
	// none.
	TLSCertificate Path `toml:"tls_certificate"`
	// TLSKey is the certificate's key, a PEM file.
	TLSKey Secret `toml:"tls_key"`
	// TLSTerminatedUpstream says that a proxy in front speaks TLS; it permits plain HTTP
	// on any address.
	TLSTerminatedUpstream bool `toml:"tls_terminated_upstream"`
	// ForwardedHeader names the header in which the proxy in front writes whom a request
	// is from, such as "X-Forwarded-For"; its last entry counts. It goes with
	// TLSTerminatedUpstream or a unix socket: a sender who reaches the listener around
	// the proxy could write it too. Without it there is no limit per address behind a
	// proxy, and the log says so at each start.
	ForwardedHeader string `toml:"forwarded_header"`
	// TLSClientCA are the certificates, in a PEM file, of those who may come at all: each
	// has to show one that they signed. Optional; it goes with TLSCertificate.
	TLSClientCA Path `toml:"tls_client_ca"`
	// AskClients asks those who come for a certificate, which they may not have, and leaves it
	// to the handler whose it is and who signed it.
	AskClients bool `toml:"-"`
	// SocketMode is who may connect to a unix socket, in place of what the process' umask
	// leaves. Optional.
	SocketMode os.FileMode `toml:"-"`
	// MaxConnections are open at once. For a further one the longest idle makes place;
	// where all send requests that make progress it waits. Default 1024.
	MaxConnections int `toml:"max_connections"`
	// ReservedConnections are places, beside MaxConnections, for connections that have
	// shown a valid token, and for later ones from their address. Default 64.
	ReservedConnections int `toml:"reserved_connections"`
	// MaxPerAddress are open at once of one IPv4 address, or of one /64 of IPv6; behind a
	// proxy it bounds the requests under way of one. Addresses that have shown a valid
	// token have no limit. Default an eighth of MaxConnections, and no limit on loopback
	// or where no header names the sender; negative: no limit.
	MaxPerAddress int `toml:"max_per_address"`
	// MinRate is how many bytes a second of a request's body have to come, on average,
	// after its first five seconds. Default 1024.
	MinRate int `toml:"min_rate"`
	// HeaderTimeout bounds reading a request's head. Default 10s.
	HeaderTimeout Duration `toml:"header_timeout"`
	// RequestTimeout bounds reading a whole request and, separately, writing its answer.
	// Default 60s.
	RequestTimeout Duration `toml:"request_timeout"`
	// IdleTimeout closes a kept connection without requests; the more places are taken,
	// the sooner. Default 2m.
	IdleTimeout Duration `toml:"idle_timeout"`
}

// Proxied says that connections come from something in front, so that their addresses say
// nothing of who sends a request.
func (l Listen) Proxied() bool { return l.TLSTerminatedUpstream || l.Address.IsUnix() }

// noLimitPerAddress says that anybody may have all places, because nothing tells one
// sender from another.
func (l Listen) noLimitPerAddress() bool {
	return l.Proxied() && l.ForwardedHeader == "" || l.withDefaults().MaxPerAddress < 0 && !l.Address.StaysHere()
}

// Limits of a listener; the upper bounds keep a slip of the pen from switching a limit
// off.
const (
	defaultMaxConnections = 1024
	maxMaxConnections     = 1 << 20
	defaultReserved       = 64
	defaultMinRate        = 1024
	maxMinRate            = 1 << 20
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
	if l.ReservedConnections == 0 {
		l.ReservedConnections = defaultReserved
	}
	switch {
	case l.MaxPerAddress != 0:
	case l.Proxied() && l.ForwardedHeader == "", !l.Proxied() && l.Address.StaysHere():
		l.MaxPerAddress = -1
	default:
		l.MaxPerAddress = max(l.MaxConnections/8, 8)
	}
	if l.MinRate == 0 {
		l.MinRate = defaultMinRate
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

// Validate says all that is wrong with the listener, as a [faults.List]. It touches no
// file.
func (l Listen) Validate() error {
	var f faults.List
	address := l.Address.Validate()
	if f.Add("address: ", address); address == nil && l.TLSCertificate == "" && !l.TLSTerminatedUpstream && !l.Address.StaysHere() {
		f.Add("address: ", ErrPlainHTTP)
	}
	f.If((l.TLSCertificate == "") != (l.TLSKey == ""), "tls_certificate and tls_key go together")
	f.If(l.ForwardedHeader != "" && !l.Proxied(),
		"forwarded_header: goes with tls_terminated_upstream or a unix socket; anybody could write it else")
	f.If(l.Proxied() && l.ForwardedHeader == "" && l.MaxPerAddress > 0,
		"max_per_address: behind a proxy all requests come from its address; name its forwarded_header")
	f.If(l.SocketMode != 0 && !l.Address.IsUnix(), "address: a mode goes with a unix socket")
	f.If(l.TLSClientCA != "" && l.TLSCertificate == "", "tls_client_ca: goes with tls_certificate")
	l = l.withDefaults()
	f.If(l.ReservedConnections < 0 || l.ReservedConnections > maxMaxConnections, "reserved_connections: want at most %d", maxMaxConnections)
	f.If(l.MinRate < 1 || l.MinRate > maxMinRate, "min_rate: want 1 to %d bytes a second", maxMinRate)
	f.If(l.MaxConnections < 1 || l.MaxConnections > maxMaxConnections, "max_connections: want 1 to %d", maxMaxConnections)
	for _, t := range []struct {
		key string
		d   Duration
	}{
		{"header_timeout", l.HeaderTimeout}, {"request_timeout", l.RequestTimeout}, {"idle_timeout", l.IdleTimeout},
	} {
		f.If(t.d <= 0 || t.d > maxTimeout, "%s: want above 0 and at most %v", t.key, time.Duration(maxTimeout))
	}
	return f.All()
}

// CheckFiles reads what the listener names, as starting it would, and says all that is
// wrong with it, as a [faults.List].
func (l Listen) CheckFiles() error {
	var f faults.List
	if l.TLSCertificate != "" {
		_, err := l.clients()
		f.Add("", err)
		_, err = l.Certificate()
		f.Add("", err)
	}
	return f.All()
}

// Certificate reads the certificate that the listener shows; nil where it speaks no TLS.
func (l Listen) Certificate() (*x509.Certificate, error) {
	if l.TLSCertificate == "" {
		return nil, nil
	}
	pair, err := (&certificate{cert: l.TLSCertificate, key: l.TLSKey}).get(nil)
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

// clients are those who may sign the certificates of clients; nil: clients need none.
func (l Listen) clients() (*x509.CertPool, error) {
	if l.TLSClientCA == "" {
		return nil, nil
	}
	b, err := os.ReadFile(string(l.TLSClientCA))
	if err != nil {
		return nil, fmt.Errorf("service: read tls_client_ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("service: tls_client_ca: no certificate in %s", l.TLSClientCA)
	}
	return pool, nil
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
