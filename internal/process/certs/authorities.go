package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// rereadInterval is the minimum time between two reads of a file with authorities, so that clients that only connect
// cause few reads.
const rereadInterval = 10 * time.Second

// Authorities are the certificate authorities of clients, from a PEM file. They are read again for a new
// connection, at most every 10 s, so that a server follows the rotation of the authorities without a restart: it
// accepts clients of an added authority, and refuses new connections of clients of a removed one. If the file
// cannot be read, or has no authority, the last ones stay. It is safe for concurrent use.
type Authorities struct {
	file string
	now  func() time.Time

	mu      sync.Mutex
	read    time.Time
	content []byte
	pool    *x509.CertPool
}

// ReadAuthorities returns the authorities in a file. It returns an error if it cannot read the file, or if the file has
// no certificate. now returns the time.
func ReadAuthorities(file string, now func() time.Time) (*Authorities, error) {
	a := &Authorities{file: file, now: now}
	if err := a.update(); err != nil {
		return nil, err
	}
	return a, nil
}

// Require lets a server verify the certificates of clients, as auth says, against the authorities in the file. The
// server must get its own certificate from this config, and not from a copy.
func (a *Authorities) Require(config *tls.Config, auth tls.ClientAuthType) {
	config.ClientAuth, config.ClientCAs = auth, a.current()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		latest := config.Clone()
		latest.GetConfigForClient, latest.ClientCAs = nil, a.current()
		return latest, nil
	}
}

// current returns the authorities, and first reads the file if the last read is [rereadInterval] ago.
func (a *Authorities) current() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if past := a.now().Sub(a.read); past >= rereadInterval || past < 0 {
		_ = a.update() // the last ones stay: a file may be missing for a moment while it is replaced
	}
	return a.pool
}

func (a *Authorities) update() error {
	a.read = a.now()
	content, err := os.ReadFile(a.file)
	if err != nil {
		return err
	}
	if a.pool != nil && bytes.Equal(content, a.content) {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return fmt.Errorf("no certificate in PEM in %s", a.file)
	}
	a.content, a.pool = content, pool
	return nil
}
