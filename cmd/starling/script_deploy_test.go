package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// deployment makes a deployment that counts, as starling lab --keep does, and runs nothing.
// One that is owned has three owners who vouch for its keys, and a manifest that they have
// signed.
func deployment(ts *testscript.TestScript, neg bool, args []string) {
	owned := len(args) == 2 && args[0] == "--owned"
	front := len(args) == 2 && args[0] == "--relay" || owned
	if neg || len(args) != 1 && !front {
		ts.Fatalf("usage: deployment [--relay | --owned] DIR")
	}
	dir := ts.MkAbs(args[len(args)-1])
	a, err := deploy.Loopback()
	ts.Check(err)
	defer a.Close()
	o := account.Options{Name: "count", Query: recipe.Count{}, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 100,
		Epsilon: recipe.Decimal{Coefficient: 1}}
	var f *deploy.Front
	if front {
		f, err = deploy.LoopbackFront()
		ts.Check(err)
		defer f.Close()
		o.Relay = &recipe.Relay{URL: f.RelayURL(), Gateway: f.GatewayURL()}
	}
	var owners *deploy.Owners
	if owned {
		owners, err = deploy.NewOwners()
		ts.Check(err)
		o.ServerKeys, err = owners.ServerKeys(true)
		ts.Check(err)
	}
	r, err := account.New(o)
	ts.Check(err)
	if owned {
		ts.Check(deploy.CreateFor(dir, r, a, owners))
	} else {
		ts.Check(deploy.Create(dir, r, a))
	}
	if front {
		ts.Check(deploy.CreateFront(dir, r, f, time.Now(), 20*time.Millisecond))
	}
	holdWritten(ts, dir)
}

// certificates makes PEM files in a directory: ca.pem, who signs helper.pem, leader.pem and
// expired.pem, and other-ca.pem, who signs other.pem; keys are in NAME.key.
func certificates(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: certificates DIR")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	now := time.Now()
	serial := int64(0)
	issue := func(name string, ends time.Time, by *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		ts.Check(err)
		serial++
		c := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-48 * time.Hour), NotAfter: ends,
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
			BasicConstraintsValid: true, IsCA: by == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		}
		if by == nil {
			by, signer = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer)
		ts.Check(err)
		private, err := x509.MarshalPKCS8PrivateKey(key)
		ts.Check(err)
		for file, block := range map[string]*pem.Block{
			name + ".pem": {Type: "CERTIFICATE", Bytes: der},
			name + ".key": {Type: "PRIVATE KEY", Bytes: private},
		} {
			ts.Check(os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
		}
		return c, key
	}
	ca, key := issue("ca", now.Add(time.Hour), nil, nil)
	issue("helper", now.Add(time.Hour), ca, key)
	issue("leader", now.Add(time.Hour), ca, key)
	issue("expired", now.Add(-24*time.Hour), ca, key)
	ca, key = issue("other-ca", now.Add(time.Hour), nil, nil)
	issue("other", now.Add(time.Hour), ca, key)
}

// waitMetrics asks a party in another process for its metrics until the expression matches.
func waitMetrics(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: wait-metrics CONFIG REGEXP")
	}
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	poll(ts, args[0], "/metrics", want)
}

// begin waits until a manifest holds: the parties in other processes go by the clock on the
// wall.
func begin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: begin MANIFEST")
	}
	m, err := ohttp.ReadManifest([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	<-time.After(time.Until(m.NotBefore))
}

// calm waits, if the period that runs ends before a while is over, for the next: for scripts
// that go by what begins with an hour or an epoch. Periods begin at whole multiples of their
// length since 1970.
func calm(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: calm PERIOD WHILE")
	}
	period, err := time.ParseDuration(args[0])
	ts.Check(err)
	while, err := time.ParseDuration(args[1])
	ts.Check(err)
	now := time.Now()
	if left := period - time.Duration(now.UnixNano())%period; left < while {
		<-time.After(left)
	}
}
