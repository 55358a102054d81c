package helm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestDatabaseWithTLS gives the variables and files of the example to the client of the database.
// The client must refuse any server but the right one, and present a certificate of its own, the
// orchestrator another one than the migration.
func TestDatabaseWithTLS(t *testing.T) {
	values, err := ReadValues(filepath.Join(Dir, "examples", "tls.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Render(Dir, Release{}, values)
	if err != nil {
		t.Fatal(err)
	}
	made := outside(t, r)
	for name, keys := range made {
		if _, ok := keys["tls.crt"]; ok {
			keys["tls.crt"], keys["tls.key"] = certificate(t, name)
		}
		if _, ok := keys["ca.crt"]; ok {
			keys["ca.crt"], _ = certificate(t, "authority")
		}
	}
	for _, c := range []struct{ kind, name, shows string }{
		{"Deployment", "rondo-orchestrator", "rondo-database-tls"},
		{"Job", "rondo-migrate", "rondo-database-owner-tls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, _ := r.Find(c.kind, c.name)
			p, err := r.Process(o, t.TempDir(), made)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range p.Env {
				if name, value, _ := strings.Cut(e, "="); strings.HasPrefix(name, "PG") {
					t.Setenv(name, value)
				}
			}
			settings, _ := read(t, p)
			config, err := pgconn.ParseConfig(settings.Database.URL)
			if err != nil {
				t.Fatal(err)
			}
			encrypted := config.TLSConfig
			if encrypted == nil || encrypted.ServerName != "db" || encrypted.RootCAs == nil ||
				encrypted.InsecureSkipVerify || len(config.Fallbacks) > 0 {
				t.Fatalf("%+v, and %d ways around it", encrypted, len(config.Fallbacks))
			}
			shown, err := x509.ParseCertificate(encrypted.Certificates[0].Certificate[0])
			if err != nil || shown.Subject.CommonName != c.shows {
				t.Errorf("it shows %v (%v), want %s", shown.Subject, err, c.shows)
			}
			for _, path := range []string{settings.NATS.CA, settings.NATS.Certificate, settings.NATS.Key,
				settings.NATS.NKey} {
				if readFile(t, path) == "" {
					t.Errorf("%s is empty", path)
				}
			}
			if !settings.NATS.TLSFirst || !strings.HasPrefix(settings.NATS.URLs, "tls://") {
				t.Errorf("%+v", settings.NATS)
			}
		})
	}
}

// TestEachLogsInAsItself checks that each part of the example for production has a user of its own,
// and none has the credentials of another part.
func TestEachLogsInAsItself(t *testing.T) {
	values, err := ReadValues(filepath.Join(Dir, "examples", "production.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Render(Dir, Release{}, values)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"Deployment/rondo-orchestrator": {"cockroachdb-ca", "nats-ca", "orders-database", "orders-database-client",
			"orders-nats-orchestrator"},
		"Deployment/rondo-worker-default": {"nats-ca", "orders-nats-worker", "orders-payment"},
		"Job/rondo-migrate": {"cockroachdb-ca", "nats-ca", "orders-database-owner",
			"orders-database-owner-client", "orders-nats-setup"},
		"Pod/rondo-test": {"nats-ca", "orders-nats-client"},
	} {
		kind, of, _ := strings.Cut(name, "/")
		o, ok := r.Find(kind, of)
		if !ok {
			t.Fatalf("there is no %s", name)
		}
		pods, err := o.Pods()
		if err != nil {
			t.Fatal(err)
		}
		var secrets []string
		for _, ref := range references(pods) {
			if ref.kind == "Secret" && ref.name != "registry" {
				secrets = append(secrets, ref.name)
			}
		}
		slices.Sort(secrets)
		if !slices.Equal(secrets, want) {
			t.Errorf("%s has %v, want %v", name, secrets, want)
		}
	}
}

func certificate(t testing.TB, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}
