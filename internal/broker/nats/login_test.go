package natsbroker_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
)

// connects checks that a connection succeeds, or fails.
func connects(t *testing.T, s *embedded.Server, fine bool, config natsbroker.Config) {
	t.Helper()
	if _, err := natstest.TryConnect(t, s, config); (err == nil) != fine {
		t.Errorf("%v, want that it works: %v", err, fine)
	}
}

func TestTokenAndUser(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: configFile(t, `authorization { token: "s3cr3t" }`)})
	connects(t, s, true, natsbroker.Config{Login: natsbroker.Login{Token: "s3cr3t"}})
	connects(t, s, false, natsbroker.Config{Login: natsbroker.Login{Token: "other"}})
	connects(t, s, true, natsbroker.Config{URLs: strings.Replace(s.URL(), "//", "//s3cr3t@", 1)})
	s = natstest.StartWith(t, embedded.Options{Config: configFile(t, `authorization { user: me, password: "p w" }`)})
	connects(t, s, true, natsbroker.Config{Login: natsbroker.Login{User: "me", Password: "p w"}})
	connects(t, s, false, natsbroker.Config{Login: natsbroker.Login{User: "me"}})
}

func TestInProcess(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.URL() != "" {
		t.Errorf("it listens at %s", s.URL())
	}
	b, err := natsbroker.Connect(t.Context(), natsbroker.Config{InProcess: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Connected(); err != nil {
		t.Error(err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it is connected again", func() bool { return b.Connected() == nil })
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if b.Connected() == nil {
		t.Error("it is connected after it was closed")
	}
}

// ---- Keys of NATS: a byte for the kind, the key, and a checksum, in base 32.

const (
	prefixSeed, prefixOperator, prefixAccount, prefixUser = 18 << 3, 14 << 3, 0, 20 << 3
)

type key struct {
	kind    byte
	private ed25519.PrivateKey
}

func newKey(t *testing.T, kind byte) key {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key{kind, private}
}

func encodeKey(prefix []byte, raw []byte) string {
	b := append(prefix, raw...)
	crc := uint16(0)
	for _, c := range b {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(binary.LittleEndian.AppendUint16(b, crc))
}

func (k key) public() string {
	return encodeKey([]byte{k.kind}, k.private.Public().(ed25519.PublicKey))
}

func (k key) seed() string {
	return encodeKey([]byte{prefixSeed | k.kind>>5, k.kind & 31 << 3}, k.private.Seed())
}

// token signs the claims about a key.
func (k key) token(t *testing.T, name string, about key, claims map[string]any) string {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	claims["version"] = 2
	signed := part(map[string]string{"typ": "JWT", "alg": "ed25519-nkey"}) + "." +
		part(map[string]any{"jti": name, "iat": time.Now().Unix(), "iss": k.public(), "name": name,
			"sub": about.public(), "nats": claims})
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(k.private, []byte(signed)))
}

func TestNKey(t *testing.T) {
	t.Parallel()
	user, other := newKey(t, prefixUser), newKey(t, prefixUser)
	s := natstest.StartWith(t,
		embedded.Options{Config: configFile(t, `authorization { users: [ { nkey: `+user.public()+` } ] }`)})
	connects(t, s, true, natsbroker.Config{Login: natsbroker.Login{NKey: file(t, "user.nk", user.seed())}})
	connects(t, s, false, natsbroker.Config{Login: natsbroker.Login{NKey: file(t, "other.nk", other.seed())}})
	_, err := natstest.TryConnect(t, s, natsbroker.Config{Login: natsbroker.Login{NKey: "nowhere.nk"}})
	wants(t, err, "read the nkey of nowhere.nk")
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCredentialsFile(t *testing.T) {
	t.Parallel()
	operator, account, user := newKey(t, prefixOperator), newKey(t, prefixAccount), newKey(t, prefixUser)
	limits := map[string]any{
		"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1, "leaf": -1, "wildcards": true,
		"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
	}
	system := newKey(t, prefixAccount)
	operatorToken := operator.token(t, "operator", operator, map[string]any{"type": "operator"})
	accountToken := operator.token(t, "app", account, map[string]any{"type": "account", "limits": limits})
	userToken := account.token(t, "user", user, map[string]any{"type": "user", "subs": -1, "data": -1, "payload": -1})
	systemToken := operator.token(t, "system", system, map[string]any{"type": "account",
		"limits": map[string]any{"subs": -1, "data": -1, "payload": -1, "conn": -1, "wildcards": true}})
	s := natstest.StartWith(t, embedded.Options{Config: configFile(t,
		fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: { %s: %s, %s: %s }\n",
			operatorToken, system.public(), account.public(), accountToken, system.public(), systemToken))})
	credentials := func(seed string) string {
		return file(t, "user.creds", "-----BEGIN NATS USER JWT-----\n"+userToken+
			"\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n"+seed+
			"\n------END USER NKEY SEED------\n")
	}
	connects(t, s, true, natsbroker.Config{Login: natsbroker.Login{Credentials: credentials(user.seed())}})
	connects(t, s, false, natsbroker.Config{
		Login: natsbroker.Login{Credentials: credentials(newKey(t, prefixUser).seed())}})
	connects(t, s, false, natsbroker.Config{})
}

// ---- Contexts of the nats command.

func TestContextsOfTheCommandLine(t *testing.T) {
	s := natstest.StartWith(t, embedded.Options{Config: configFile(t, `authorization { user: me, password: secret }`)})
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	dir := filepath.Join(config, "nats", "context")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("good", `{"url": "`+s.URL()+`", "user": "me", "password": "secret"}`)
	write("elsewhere", `{"url": "nats://127.0.0.1:1", "user": "me", "password": "secret"}`)
	write("nobody", `{"url": "`+s.URL()+`"}`)
	connects(t, s, true, natsbroker.Config{Context: "good"})
	connects(t, s, true, natsbroker.Config{Context: filepath.Join(dir, "good.json")})
	connects(t, s, false, natsbroker.Config{Context: "elsewhere"})
	connects(t, s, true, natsbroker.Config{Context: "elsewhere", URLs: s.URL() + ", " + s.URL()})
	connects(t, s, false, natsbroker.Config{Context: "nobody"})
	connects(t, s, true, natsbroker.Config{Context: "nobody",
		Login: natsbroker.Login{User: "me", Password: "secret"}})
	_, err := natstest.TryConnect(t, s, natsbroker.Config{Context: "missing"})
	wants(t, err, `context "missing"`)
	t.Chdir(dir)
	connects(t, s, true, natsbroker.Config{Context: "./good.json"})
}

// ---- TLS.

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	path string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	a.path, _ = a.issue("authority", true)
	return a
}

// issue writes a certificate and its key into files.
func (a *authority) issue(name string, isAuthority bool) (certificate, private string) {
	a.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: isAuthority,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if isAuthority {
		a.cert, a.key = c, k
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	if isAuthority {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return file(a.t, name+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		file(a.t, name+"-key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	good, bad := newAuthority(t), newAuthority(t)
	cert, key := good.issue("server", false)
	clientCert, clientKey := good.issue("client", false)
	otherCert, otherKey := bad.issue("other", false)
	for _, c := range []struct {
		name, options string
		first, verify bool
	}{
		{"plain", "", false, false}, {"first", "handshake_first: true", true, false},
		{"with client certificates", "ca_file: \"" + good.path + "\", verify: true", false, true},
	} {
		s := natstest.StartWith(t, embedded.Options{Config: configFile(t,
			fmt.Sprintf("tls { cert_file: %q, key_file: %q, %s }", cert, key, c.options))})
		connects(t, s, !c.verify, natsbroker.Config{TLS: natsbroker.TLS{CA: good.path, TLSFirst: c.first}})
		connects(t, s, true,
			natsbroker.Config{TLS: natsbroker.TLS{CA: good.path, TLSFirst: c.first,
				Certificate: clientCert, Key: clientKey}})
		connects(t, s, !c.verify,
			natsbroker.Config{TLS: natsbroker.TLS{CA: good.path, TLSFirst: c.first,
				Certificate: otherCert, Key: otherKey}})
		connects(t, s, false,
			natsbroker.Config{TLS: natsbroker.TLS{CA: bad.path, TLSFirst: c.first,
				Certificate: clientCert, Key: clientKey}})
		connects(t, s, false, natsbroker.Config{TLS: natsbroker.TLS{TLSFirst: c.first}})
	}
	s := natstest.Start(t)
	// No plain connection if TLS is configured.
	connects(t, s, false, natsbroker.Config{TLS: natsbroker.TLS{CA: good.path}})
	connects(t, s, false, natsbroker.Config{TLS: natsbroker.TLS{CA: "nowhere.pem"}})
}
