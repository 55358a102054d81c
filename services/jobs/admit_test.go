package jobserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
)

// untouched is a store that fails the test when it is used.
type untouched struct {
	jobs.Store
	t *testing.T
}

func (u untouched) Do(context.Context, string, ...jobs.Operation) ([]jobs.Result, error) {
	u.t.Error("an operation came to the store")
	return nil, jobs.ErrNoQueue
}

func (u untouched) Look(context.Context, string) (jobs.Info, error) {
	u.t.Error("a look came to the store")
	return jobs.Info{}, jobs.ErrNoQueue
}

func (u untouched) List(context.Context, string, int) ([]jobs.Info, error) {
	u.t.Error("a list came to the store")
	return nil, jobs.ErrNoQueue
}

func (u untouched) Dead(context.Context, string, jobs.DeadID, int) ([]jobs.Dead, error) {
	u.t.Error("a list of dead items came to the store")
	return nil, jobs.ErrNoQueue
}

// listing is a store that only lists queues.
type listing struct {
	untouched
	names []string
}

func (l listing) List(_ context.Context, after string, limit int) (all []jobs.Info, err error) {
	for _, name := range l.names {
		if name > after && len(all) < limit {
			all = append(all, jobs.Info{Queue: name})
		}
	}
	return all, nil
}

// serving is a server that runs until the end of the test.
func serving(t *testing.T, store jobs.Store, c Config) *Server {
	t.Helper()
	if c.Address == "" {
		c.Address = "127.0.0.1:0"
	}
	s, err := New(store, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// refused is the answer to a refused request.
type refused struct {
	status int
	header http.Header
	problem
}

// ask makes a request for a route, and wants a problem for an answer.
func ask(t *testing.T, client *http.Client, s *Server, r route, queueID string, header ...string) (refused, string) {
	t.Helper()
	answer, text, err := send(t, client, s, r, queueID, header...)
	if err != nil {
		t.Fatal(err)
	}
	got := refused{status: answer.StatusCode, header: answer.Header}
	if answer.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %s: %d %s: %s", r.Method, r.Path, answer.StatusCode, answer.Header.Get("Content-Type"), text)
		return got, text
	}
	if err := json.Unmarshal([]byte(text), &got.problem); err != nil || got.problem.Status != got.status ||
		got.Detail == "" || got.RequestID == "" {
		t.Errorf("%s %s: %v: %s", r.Method, r.Path, err, text)
	}
	return got, text
}

func send(t *testing.T, client *http.Client, s *Server, r route, queueID string, header ...string) (*http.Response,
	string, error) {
	t.Helper()
	body := `{"item": {"a": 1}, "lock_id": "abcdefghijk", "settings": {}, "all": true}`
	req, err := http.NewRequestWithContext(t.Context(), r.Method,
		s.URL()+strings.ReplaceAll(r.Path, "{queue_id}", queueID), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	answer, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text), answer.Body.Close()
}

// mayOnly are callers with exactly one right each, for one queue, and one that may do everything
// with another.
func mayOnly() string {
	text := "callers:\n"
	for _, r := range permissions {
		text += "  - {name: only-" + string(r) + ", token_sha256: [" + hash(string(r)) +
			"], allow: [{queues: [mine], permissions: [" + string(r) + "]}]}\n"
	}
	return text + "  - {name: elsewhere, token_sha256: [" + hash("elsewhere") +
		"], allow: [{queues: [other-*], permissions: ['*']}]}\n"
}

// TestNobodyComesToTheStoreWhoMayNot asks every route in every way that is not good enough.
func TestNobodyComesToTheStoreWhoMayNot(t *testing.T) {
	access, err := OpenAccess(file(t, filepath.Join(t.TempDir(), "access.yaml"), mayOnly()), nil)
	if err != nil {
		t.Fatal(err)
	}
	log := &said{}
	s := serving(t, untouched{t: t}, Config{Access: access, Logger: log.logger()})
	client := &http.Client{}
	defer client.CloseIdleConnections()
	for _, r := range routes {
		for name, header := range map[string][]string{
			"no token": nil, "an unknown token": {"Authorization", "Bearer unknown-token"},
			"a malformed one": {"Authorization", "Bearer a b"},
			"another scheme":  {"Authorization", "Basic " + string(r.Right)},
			"two of them":     {"Authorization", "Bearer push", "Authorization", "Bearer pop"},
		} {
			got, text := ask(t, client, s, r, "mine", header...)
			if got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") != "Bearer" ||
				got.ErrorCode != codeWho {
				t.Errorf("%s %s with %s: %d %s", r.Method, r.Path, name, got.status, text)
			}
			if strings.Contains(text, "unknown-token") {
				t.Errorf("%s %s: the answer repeats the token: %s", r.Method, r.Path, text)
			}
		}
		if r.Right == "" {
			continue
		}
		for _, other := range permissions {
			if other == r.Right {
				continue
			}
			got, text := ask(t, client, s, r, "mine", "Authorization", "Bearer "+string(other))
			if got.status != http.StatusForbidden || got.ErrorCode != codeMayNot ||
				!strings.Contains(got.Detail, "only-"+string(other)+" may not "+string(r.Right)+" queue mine") {
				t.Errorf("%s %s with the right to %s: %d %s", r.Method, r.Path, other, got.status, text)
			}
		}
		if got, text := ask(t, client, s, r, "mine", "Authorization",
			"Bearer elsewhere"); got.status != http.StatusForbidden {
			t.Errorf("%s %s with a token for another queue: %d %s", r.Method, r.Path, got.status, text)
		}
		if got, text := ask(t, client, s, r, "yours", "Authorization",
			"Bearer "+string(r.Right)); got.status != http.StatusForbidden {
			t.Errorf("%s %s of another queue: %d %s", r.Method, r.Path, got.status, text)
		}
	}
	if strings.Contains(log.String(), "unknown-token") {
		t.Errorf("the log tells a token: %s", log)
	}
}

func TestAListHasOnlyWhatTheCallerMayLookAt(t *testing.T) {
	access, err := OpenAccess(file(t, filepath.Join(t.TempDir(), "access.yaml"), mayOnly()), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := serving(t, listing{untouched{t: t}, []string{"hidden", "mine", "other-1", "other-2"}}, Config{Access: access})
	client := &http.Client{}
	defer client.CloseIdleConnections()
	for token, want := range map[string]string{"look": "mine", "push": "", "elsewhere": "other-1,other-2"} {
		_, text, err := send(t, client, s, route{Method: http.MethodGet, Path: "/queues"}, "", "Authorization",
			"Bearer "+token)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Queues []struct {
				Queue string `json:"queue_id"`
			}
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, q := range got.Queues {
			names = append(names, q.Queue)
		}
		if strings.Join(names, ",") != want || strings.Contains(text, "hidden") {
			t.Errorf("%s: %s", token, text)
		}
	}
}

func TestWithoutAnAccessFileWebPagesAreKeptAwayFromEveryRoute(t *testing.T) {
	s := serving(t, untouched{t: t}, Config{})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, r := range routes {
		if r.Method != http.MethodGet {
			if got, text := ask(t, client, s, r, "mine", "Sec-Fetch-Site", "cross-site", "Origin",
				"https://evil.example"); got.status != http.StatusForbidden ||
				!strings.Contains(text, "a browser sends this") {
				t.Errorf("%s %s: %d %s", r.Method, r.Path, got.status, text)
			}
		}
		req, err := http.NewRequestWithContext(t.Context(), r.Method,
			s.URL()+strings.ReplaceAll(r.Path, "{queue_id}", "mine"), strings.NewReader(`{"item":1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "evil.example"
		answer, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s %s asked as evil.example: %d", r.Method, r.Path, answer.StatusCode)
		}
		_ = answer.Body.Close() // the status is enough
	}
}

func TestOtherMachinesAreNotLetInUnasked(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "[::]:0", "10.1.2.3:0", "example.org:0"} {
		if s, err := New(untouched{t: t}, Config{Address: address}); err == nil ||
			!strings.Contains(err.Error(), "say who may do what there with an access file") {
			t.Errorf("%s: %v, %v", address, s, err)
		}
	}
}

func TestTooManyRequestsAreToldWhenToComeAgain(t *testing.T) {
	clock := newManual()
	access, err := openAccess(file(t, filepath.Join(t.TempDir(), "access.yaml"),
		strings.Replace(mayOnly(), "allow: [{queues: [other", "rate: 0.5, allow: [{queues: [other", 1)), nil, clock.now,
		clock.elapsed)
	if err != nil {
		t.Fatal(err)
	}
	s := serving(t, listing{untouched{t: t}, nil}, Config{Access: access, Rate: 1, Now: clock.now})
	client := &http.Client{}
	defer client.CloseIdleConnections()
	status := func(token string) int {
		t.Helper()
		answer, _, err := send(t, client, s, route{Method: http.MethodGet, Path: "/queues"}, "", "Authorization",
			"Bearer "+token)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode
	}
	if a, b := status("look"), status("look"); a != http.StatusOK || b != http.StatusOK {
		t.Fatal(a, b)
	}
	if got, text := ask(t, client, s, route{Method: http.MethodGet, Path: "/queues"}, "", "Authorization",
		"Bearer look"); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "1" ||
		got.ErrorCode != codeTooMany {
		t.Errorf("%d, after %q: %s", got.status, got.header.Get("Retry-After"), text)
	}
	if got := status("elsewhere"); got != http.StatusOK {
		t.Errorf("another caller pays for it: %d", got)
	}
	if got, text := ask(t, client, s, route{Method: http.MethodGet, Path: "/queues"}, "", "Authorization",
		"Bearer elsewhere"); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "2" {
		t.Errorf("a rate of its own: %d, after %q: %s", got.status, got.header.Get("Retry-After"), text)
	}
	clock.pass(time.Second)
	if got := status("look"); got != http.StatusOK {
		t.Errorf("after a second: %d", got)
	}
}

// ---- Certificates.

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

var (
	serial      int64
	loopbackIPs = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
)

func newAuthority(t *testing.T, clock *manual) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key, a.pem, _ = issue(t, nil, x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageCertSign,
		NotBefore: clock.now().Add(-time.Hour), NotAfter: clock.now().AddDate(10, 0, 0),
	})
	return a
}

// issue makes a key and a certificate for it, as PEM, too.
func issue(t *testing.T, by *authority, template x509.Certificate) (cert *x509.Certificate, key *ecdsa.PrivateKey,
	certPEM, keyPEM string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial++
	template.SerialNumber = big.NewInt(serial)
	parent, signer := &template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// server is a server's certificate and key, as PEM.
func (a *authority) server(clock *manual, name string) (certPEM, keyPEM string) {
	_, _, certPEM, keyPEM = issue(a.t, a, x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: loopbackIPs,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore:   clock.now().Add(-time.Hour), NotAfter: clock.now().AddDate(1, 0, 0),
	})
	return certPEM, keyPEM
}

// client is a client's certificate.
func (a *authority) client(notBefore, notAfter time.Time, commonName string, uris ...string) *tls.Certificate {
	a.t.Helper()
	template := x509.Certificate{Subject: pkix.Name{CommonName: commonName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotBefore: notBefore, NotAfter: notAfter}
	for _, u := range uris {
		parsed, err := url.Parse(u)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = append(template.URIs, parsed)
	}
	cert, key, _, _ := issue(a.t, a, template)
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// secured is a server with certificates, and the means of its clients.
type secured struct {
	t     *testing.T
	clock *manual
	ca    *authority
	files TLSFiles
	log   *said
	*Server
}

func newSecured(t *testing.T, accessText string, store jobs.Store) *secured {
	t.Helper()
	dir, clock := t.TempDir(), newManual()
	x := &secured{t: t, clock: clock, ca: newAuthority(t, clock), log: &said{}}
	certPEM, keyPEM := x.ca.server(clock, "first")
	x.files = TLSFiles{
		Certificate: file(t, filepath.Join(dir, "tls.crt"), certPEM), Key: file(t, filepath.Join(dir, "tls.key"),
			keyPEM), ClientCA: file(t, filepath.Join(dir, "ca.crt"), x.ca.pem),
	}
	access, err := openAccess(file(t, filepath.Join(dir, "access.yaml"), accessText), x.log.logger(), clock.now,
		clock.elapsed)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newTLS(x.files, access, x.log.logger(), clock.now, clock.elapsed)
	if err != nil {
		t.Fatal(err)
	}
	x.Server = serving(t, store, Config{Access: access, TLS: c, Now: clock.now, Logger: x.log.logger()})
	return x
}

// client makes one that trusts an authority, with a certificate or without one.
func (x *secured) client(trusts *authority, own *tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(trusts.cert)
	c := &tls.Config{RootCAs: pool, Time: x.clock.now}
	if own != nil { // shown to any server, as simple clients do
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}}
	x.t.Cleanup(client.CloseIdleConnections)
	return client
}

var listRoute = route{Method: http.MethodGet, Path: "/queues"}

// status is that of a request that was answered.
func (x *secured) status(client *http.Client, header ...string) int {
	x.t.Helper()
	answer, _, err := send(x.t, client, x.Server, listRoute, "", header...)
	if err != nil {
		x.t.Fatal(err)
	}
	return answer.StatusCode
}

func withCertificates() string {
	return mayOnly() + "  - {name: by-uri, certificates: ['spiffe://example.org/shop'], allow: [{queues: [mine], " +
		"permissions: ['*']}]}\n" +
		"  - {name: by-name, certificates: [desk], allow: [{queues: [desk-*], permissions: [look]}]}\n"
}

func TestClientCertificatesTellWhoAsks(t *testing.T) {
	x := newSecured(t, withCertificates(), listing{untouched{t: t}, []string{"desk-1", "mine"}})
	from, to := x.clock.now().Add(-time.Hour), x.clock.now().Add(time.Hour)
	for _, c := range []struct {
		own  *tls.Certificate
		want string
	}{
		{x.ca.client(from, to, "", "spiffe://example.org/other", "spiffe://example.org/shop"), "mine"},
		{x.ca.client(from, to, "desk"), "desk-1"},
	} {
		answer, text, err := send(t, x.client(x.ca, c.own), x.Server, listRoute, "")
		if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(text, `"`+c.want+`"`) ||
			strings.Count(text, "queue_id") != 1 {
			t.Errorf("want %s: %v: %s", c.want, err, text)
			continue
		}
		if answer.ProtoMajor != 2 || answer.TLS.Version < tls.VersionTLS12 {
			t.Errorf("%s, TLS %x", answer.Proto, answer.TLS.Version)
		}
	}
	// A token counts more, and one that is wrong is not made good by a certificate.
	desk := x.client(x.ca, x.ca.client(from, to, "desk"))
	if _, text, err := send(t, desk, x.Server, listRoute, "", "Authorization", "Bearer look"); err != nil ||
		!strings.Contains(text, `"mine"`) {
		t.Errorf("%v: %s", err, text)
	}
	if got := x.status(desk, "Authorization", "Bearer unknown-token"); got != http.StatusUnauthorized {
		t.Error(got)
	}
	if got := x.status(x.client(x.ca, nil), "Authorization", "Bearer look"); got != http.StatusOK {
		t.Errorf("with a token and without a certificate: %d", got)
	}
}

// TestCertificatesThatAreNotTaken asks every route.
func TestCertificatesThatAreNotTaken(t *testing.T) {
	x := newSecured(t, withCertificates(), untouched{t: t})
	from, to := x.clock.now().Add(-time.Hour), x.clock.now().Add(time.Hour)
	unknown, none, desk := x.client(x.ca, x.ca.client(from, to, "nobody")), x.client(x.ca, nil),
		x.client(x.ca, x.ca.client(from, to, "desk"))
	expired, foreign := x.client(x.ca, x.ca.client(from, from.Add(time.Minute), "desk")),
		x.client(x.ca, newAuthority(t, x.clock).client(from, to, "desk"))
	for _, r := range routes {
		if got, text := ask(t, unknown, x.Server, r, "mine"); got.status != http.StatusUnauthorized ||
			!strings.Contains(text, "nobody has a client certificate of this name (nobody)") {
			t.Errorf("%s %s with a name that nobody has: %d %s", r.Method, r.Path, got.status, text)
		}
		if got, text := ask(t, none, x.Server, r, "mine"); got.status != http.StatusUnauthorized ||
			!strings.Contains(text, "or connect with a client certificate") {
			t.Errorf("%s %s without: %d %s", r.Method, r.Path, got.status, text)
		}
		if r.Right != "" {
			if got, text := ask(t, desk, x.Server, r, "mine"); got.status != http.StatusForbidden {
				t.Errorf("%s %s of another queue: %d %s", r.Method, r.Path, got.status, text)
			}
		}
		for name, client := range map[string]*http.Client{"an expired certificate": expired,
			"one of another authority": foreign} {
			if answer, text, err := send(t, client, x.Server, r, "mine"); err == nil {
				t.Errorf("%s %s with %s: %d %s", r.Method, r.Path, name, answer.StatusCode, text)
			}
		}
		// A browser shows a certificate for any page's request.
		if r.Method != http.MethodGet {
			if got, text := ask(t, desk, x.Server, r, "desk-1", "Sec-Fetch-Site",
				"cross-site"); got.status != http.StatusForbidden || !strings.Contains(text, "a browser sends this") {
				t.Errorf("%s %s from another site: %d %s", r.Method, r.Path, got.status, text)
			}
		}
	}
}

func TestACertificateThatExpiresWhileTheConnectionLasts(t *testing.T) {
	x := newSecured(t, withCertificates(), listing{untouched{t: t}, nil})
	client := x.client(x.ca, x.ca.client(x.clock.now().Add(-time.Hour), x.clock.now().Add(time.Hour), "desk"))
	if got := x.status(client); got != http.StatusOK {
		t.Fatal(got)
	}
	x.clock.pass(2 * time.Hour)
	if got, text := ask(t, client, x.Server, listRoute, ""); got.status != http.StatusUnauthorized ||
		!strings.Contains(text, "the client certificate has expired at") {
		t.Errorf("%d %s", got.status, text)
	}
}

func TestWithoutTokensNobodyConnectsWithoutACertificate(t *testing.T) {
	x := newSecured(t, "callers: [{name: desk, certificates: [desk], allow: [{queues: ['*'], permissions: ['*']}]}]",
		listing{untouched{t: t}, nil})
	if answer, _, err := send(t, x.client(x.ca, nil), x.Server, listRoute, ""); err == nil {
		t.Errorf("somebody came through: %d", answer.StatusCode)
	}
	if got := x.status(x.client(x.ca,
		x.ca.client(x.clock.now().Add(-time.Hour), x.clock.now().Add(time.Hour), "desk"))); got != http.StatusOK {
		t.Error(got)
	}
}

// TestCertificatesAreExchangedWhileTheServerRuns also exchanges the authority of the clients.
func TestCertificatesAreExchangedWhileTheServerRuns(t *testing.T) {
	x := newSecured(t, withCertificates(), listing{untouched{t: t}, nil})
	from, to := x.clock.now().Add(-time.Hour), x.clock.now().Add(time.Hour)
	seen := func(trusts *authority) string {
		t.Helper()
		answer, _, err := send(t, x.client(trusts, nil), x.Server, listRoute, "", "Authorization", "Bearer look")
		if err != nil {
			t.Fatal(err)
		}
		return answer.TLS.PeerCertificates[0].Subject.CommonName
	}
	if got := seen(x.ca); got != "first" {
		t.Fatal(got)
	}
	old := x.ca.client(from, to, "desk")
	before := x.client(x.ca, old)
	if got := x.status(before); got != http.StatusOK {
		t.Fatal(got)
	}

	// The certificate comes before its key: as long as they do not fit, the old ones stay.
	next := newAuthority(t, x.clock)
	certPEM, keyPEM := next.server(x.clock, "second")
	file(t, x.files.Certificate, certPEM)
	for range 3 {
		x.clock.pass(readEvery)
		if got := seen(x.ca); got != "first" {
			t.Fatal(got)
		}
	}
	if got := strings.Count(x.log.String(), "level=ERROR"); got != 1 ||
		!strings.Contains(x.log.String(), "the certificate and the key") {
		t.Errorf("%d errors were logged: %s", got, x.log)
	}
	file(t, x.files.Key, keyPEM)
	file(t, x.files.ClientCA, next.pem)
	x.clock.pass(readEvery)
	if got := seen(next); got != "second" {
		t.Fatal(got)
	}
	if got := x.status(x.client(next, next.client(from, to, "desk"))); got != http.StatusOK {
		t.Errorf("a certificate of the new authority: %d", got)
	}
	if answer, _, err := send(t, x.client(next, old), x.Server, listRoute, ""); err == nil {
		t.Errorf("a certificate of the old authority: %d", answer.StatusCode)
	}
}

func TestCertificatesThatCannotBeUsed(t *testing.T) {
	dir, clock := t.TempDir(), newManual()
	ca := newAuthority(t, clock)
	certPEM, keyPEM := ca.server(clock, "one")
	_, otherKey := ca.server(clock, "two")
	in := func(name, text string) string { return file(t, filepath.Join(dir, name), text) }
	for _, c := range []struct {
		files TLSFiles
		want  string
	}{
		{TLSFiles{Certificate: filepath.Join(dir, "none.crt"), Key: in("k", keyPEM)},
			"cannot read " + filepath.Join(dir, "none.crt") + ": no such file"},
		{TLSFiles{Certificate: in("c", certPEM), Key: in("o", otherKey)}, "the certificate and the key: "},
		{TLSFiles{Certificate: in("c", certPEM), Key: in("k", keyPEM), ClientCA: in("a", "nothing")},
			"the authorities of clients: there is no certificate in PEM"},
	} {
		if _, err := NewTLS(c.files, nil, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v; want %s", err, c.want)
		}
	}
}

// While the database may be a copy, no request reaches a queue.
func TestQueuesThatMayNotBeUsedRefuse(t *testing.T) {
	s := serving(t, untouched{t: t}, Config{Ready: func() error { return errors.New("it may be a copy") }})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, r := range routes {
		if r.ID == "openapi" {
			continue
		}
		got, text := ask(t, client, s, r, "mine")
		if got.status != http.StatusServiceUnavailable || got.ErrorCode != codeUnavailable ||
			got.header.Get("Retry-After") == "" || !strings.Contains(got.Detail, "it may be a copy") {
			t.Errorf("%s %s: %d %s", r.Method, r.Path, got.status, text)
		}
	}
	ready := errors.New("it may be a copy")
	store := Gated(untouched{t: t}, func() error { return ready })
	if _, err := store.Do(t.Context(), "mine", jobs.Push{}); !errors.Is(err, ready) ||
		history.ClassOf(err) != history.Retry {
		t.Errorf("a push has %v", err)
	}
}
