//go:build unix

package pgtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-agg/starling/internal/pgserver"
)

// A Secured is a server that is reached as one on another machine is: over TCP, with TLS, and
// by password.
type Secured struct {
	*Server
	CA, Stranger string // files with certificates: of the authority of the server's, and of another one
	address      string
	t            testing.TB
	root         *x509.Certificate
	key          *ecdsa.PrivateKey
}

// NewSecured starts a server for one test. It has an address of this machine's own network for
// itself, so that its port is nobody else's; Linux has all of that network.
func NewSecured(t testing.TB) *Secured {
	t.Helper()
	s := &Secured{t: t, address: fmt.Sprintf("127.%d.%d.%d", 1+mathrand.IntN(254), mathrand.IntN(256), 1+mathrand.IntN(254))}
	s.root, s.key, s.CA = s.authority("ca.pem")
	_, _, s.Stranger = s.authority("stranger.pem")
	s.Server = newServer(t, func(own *pgserver.Server) error {
		hba, err := own.Put("hba.conf", []byte("local all all trust\nhost all all 127.0.0.0/8 scram-sha-256\n"))
		own.Set("listen_addresses="+s.address, "hba_file="+hba)
		return err
	})
	return s
}

func (s *Secured) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// authority makes an authority, and a file with its certificate.
func (s *Secured) authority(name string) (root *x509.Certificate, key *ecdsa.PrivateKey, file string) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.ok(err)
	root = &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	s.ok(err)
	file = filepath.Join(s.t.TempDir(), name)
	s.ok(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return root, key, file
}

// TLS has the server answer with a certificate for its address, or for another one's; or, with
// neither, without TLS.
func (s *Secured) TLS(own, another bool) {
	s.t.Helper()
	set := "off"
	if own || another {
		set = "on"
		address := s.address
		if another {
			address = "192.0.2.1"
		}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		s.ok(err)
		leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: s.root.NotAfter, IPAddresses: []net.IP{net.ParseIP(address)}}
		der, err := x509.CreateCertificate(rand.Reader, leaf, s.root, &key.PublicKey, s.key)
		s.ok(err)
		pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
		s.ok(err)
		for name, block := range map[string]*pem.Block{"ssl_cert_file": {Type: "CERTIFICATE", Bytes: der}, "ssl_key_file": {Type: "PRIVATE KEY", Bytes: pkcs8}} {
			file, err := s.own.Put(name, pem.EncodeToMemory(block))
			s.ok(err)
			s.ok(s.exec("ALTER SYSTEM SET " + name + " = '" + file + "'"))
		}
	}
	s.ok(s.exec("ALTER SYSTEM SET ssl = " + set))
	s.ok(s.exec("SELECT pg_reload_conf()"))
	for s.Ask(s.t, "SELECT count(*) FROM pg_settings WHERE name = 'ssl' AND setting = '"+set+"'") == 0 {
		time.Sleep(10 * time.Millisecond) // the server's own processes: there is no signal to wait for
	}
}

// Over is the connection string of the role of the replicas over TCP, with a password; ca is
// the file of the authority that is trusted, empty for those of the machine.
func (s *Secured) Over(role, password, ca string) string {
	text := fmt.Sprintf("host=%s port=5432 dbname=%s user=%s password=%s", s.address, s.config.Database, role, password)
	if ca != "" {
		text += " sslrootcert=" + ca
	}
	return text
}

// Password is the one that a role has at first.
const Password = password

// Change gives a role another password, and ends all connections that it has.
func (s *Secured) Change(role, password string) {
	s.t.Helper()
	s.ok(s.exec("ALTER ROLE " + role + " PASSWORD '" + password + "'"))
	s.Ask(s.t, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '"+role+"'")
}
