package jobserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"time"
)

// TLSFiles are the files with certificates, in PEM. They are read again when they change.
type TLSFiles struct {
	// Certificate and Key are the server's; the certificate may have others behind it, which lead
	// to one that clients trust.
	Certificate, Key string
	// ClientCA has the authorities of clients' certificates. Empty: clients are not asked for one.
	ClientCA string
}

// NewTLS returns the configuration for [Config.TLS]. If the access file has no tokens, or there is
// none, a client without a certificate of the authority cannot connect.
func NewTLS(f TLSFiles, access *Access, log *slog.Logger) (*tls.Config, error) {
	return newTLS(f, access, log, time.Now, sinceNow())
}

func newTLS(f TLSFiles, access *Access, log *slog.Logger, now func() time.Time,
	elapsed func() time.Duration) (*tls.Config, error) {
	paths := []string{f.Certificate, f.Key}
	if f.ClientCA != "" {
		paths = append(paths, f.ClientCA)
	}
	files, err := keep("the certificates of the queues' server", paths, func(data [][]byte) (*tls.Config, error) {
		return tlsOf(data, now)
	}, log, elapsed)
	if err != nil {
		return nil, err
	}
	optional := func() bool { return access != nil && access.Tokens() }
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		// net/http requires a certificate before it serves; connections get the current one.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &files.get().Certificates[0], nil
		},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := files.get()
			if c.ClientCAs != nil && optional() {
				c = c.Clone()
				c.ClientAuth = tls.VerifyClientCertIfGiven
			}
			return c, nil
		},
	}, nil
}

var protocols = []string{"h2", "http/1.1"}

// tlsOf makes a configuration from the contents of the files: certificate, key and, if there is
// one, authorities.
func tlsOf(data [][]byte, now func() time.Time) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(data[0], data[1])
	if err != nil {
		return nil, errors.New("the certificate and the key: " + err.Error())
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols,
		Certificates: []tls.Certificate{pair}, Time: now}
	if len(data) > 2 {
		c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !c.ClientCAs.AppendCertsFromPEM(data[2]) {
			return nil, errors.New("the authorities of clients: there is no certificate in PEM in the file")
		}
		// A resumed session would be trusted without a check whether its authority still is.
		c.SessionTicketsDisabled = true
	}
	return c, nil
}
