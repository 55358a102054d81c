package app_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/devdir"
)

const queueToken = "a-token-of-the-shop"

// accessFile is one that lets the shop push to its queue.
func accessFile(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(queueToken))
	return file(t, dir, "access.yaml", "callers: [{name: shop, token_sha256: ["+hex.EncodeToString(sum[:])+
		"], allow: [{queues: [orders-*], permissions: [push, look]}]}]")
}

func file(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate makes files with a certificate for this machine, and what a client needs to trust it.
func certificate(t *testing.T, dir string) (cert, key string, client *http.Client) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "queues"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	t.Cleanup(client.CloseIdleConnections)
	return file(t, dir, "tls.crt", string(certPEM)),
		file(t, dir, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))), client
}

// post sends something to a queue, and gives the answer.
func post(t *testing.T, client *http.Client, token, url, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

// queuesOf is where a program that is ready says that it serves queues.
func queuesOf(t *testing.T, p *running) string {
	t.Helper()
	for word := range strings.FieldsSeq(p.errs.await(t, "msg=ready")) {
		if at, ok := strings.CutPrefix(word, "queues="); ok {
			return strings.Trim(at, `"`)
		}
	}
	t.Fatal("nobody says where the queues are")
	return ""
}

// TestQueuesOfAnOrchestrator serves them at all networks, with tokens and TLS, and keeps them over
// a restart.
func TestQueuesOfAnOrchestrator(t *testing.T) {
	t.Parallel()
	s, dir := server(t), t.TempDir()
	cert, key, client := certificate(t, dir)
	access := accessFile(t, dir)
	args := with("orchestrator", "--nats", s.URL(), "--database", filepath.Join(dir, "rondo.db"), "--jobs-listen",
		"0.0.0.0:0", "--jobs-access", access, "--jobs-tls-cert", cert, "--jobs-tls-key", key)
	at := func(p *running) string {
		_, port, err := net.SplitHostPort(strings.TrimPrefix(queuesOf(t, p), "https://"))
		if err != nil {
			t.Fatal(err)
		}
		return "https://127.0.0.1:" + port
	}
	p := start(t, nil, args...)
	url := at(p)
	if status, answer := post(t, client, queueToken, url+"/queue/orders-1/push",
		`{"item": {"n": 1}}`); status != http.StatusOK && status != http.StatusCreated {
		t.Errorf("%d %s", status, answer)
	}
	for token, want := range map[string]int{"": http.StatusUnauthorized, "another": http.StatusUnauthorized,
		queueToken: http.StatusForbidden} {
		if status, answer := post(t, client, token, url+"/queue/orders-1/pop", ""); status != want {
			t.Errorf("pop with the token %q: %d %s", token, status, answer)
		}
	}
	if strings.Contains(p.errs.String()+p.out.String(), queueToken) {
		t.Errorf("the log tells the token: %s", p.errs)
	}
	client.CloseIdleConnections()
	p.end()

	// Now without tokens and TLS, as this machine alone may.
	p = start(t, nil, with("orchestrator", "--nats", s.URL(), "--database", filepath.Join(dir, "rondo.db"),
		"--jobs-listen", "127.0.0.1:0")...)
	url = queuesOf(t, p)
	if status, answer := post(t, http.DefaultClient, "", url+"/queue/orders-1/pop", ""); status != http.StatusOK ||
		!strings.Contains(answer, `{"n": 1}`) && !strings.Contains(answer, `{"n":1}`) {
		t.Errorf("%d %s", status, answer)
	}
	http.DefaultClient.CloseIdleConnections()
	p.end()
}

func TestAnOrchestratorServesNoQueuesUnlessItIsTold(t *testing.T) {
	t.Parallel()
	s, database := server(t), filepath.Join(t.TempDir(), "rondo.db")
	for _, more := range [][]string{nil, {"--jobs-listen", "off", "--jobs-access", "nowhere.yaml"}} {
		p := start(t, nil, append(with("orchestrator", "--nats", s.URL(), "--database", database), more...)...)
		if at := queuesOf(t, p); at != "" {
			t.Errorf("%q: queues are served at %s", more, at)
		}
		p.end()
	}
}

func TestQueuesOfDev(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	p := start(t, nil, with("dev", "--dir", dir, "--nats-listen", "127.0.0.1:0", "--jobs-listen",
		"127.0.0.1:0")...).ready()
	at, err := devdir.Read(dir)
	if err != nil || !strings.HasPrefix(at.JobQueues, "http://127.0.0.1:") {
		t.Fatalf("%+v, %v", at, err)
	}
	p.out.await(t, "  queues     "+at.JobQueues)
	p.out.await(t, "curl -d '{\"item\": {\"task\": 1}}' "+at.JobQueues+"/queue/my-queue/push")
	if status, answer := post(t, http.DefaultClient, "", at.JobQueues+"/queue/my-queue/push",
		`{"item": {"task": 1}}`); status/100 != 2 {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer := post(t, http.DefaultClient, "", at.JobQueues+"/queue/my-queue/pop?require_ack=true",
		""); status != http.StatusOK || !strings.Contains(answer, `"lock_id"`) {
		t.Errorf("%d %s", status, answer)
	}
	http.DefaultClient.CloseIdleConnections()
	p.end()

	code, _, problems := inside(t, environment(),
		with("dev", "--dir", t.TempDir(), "--nats-listen", "127.0.0.1:0", "--jobs-listen", l.Addr().String())...)
	if code != 1 || !strings.Contains(problems,
		"choose it with --jobs-listen, or leave it out with --jobs-listen off") {
		t.Errorf("an address that is taken: exit code %d: %s", code, problems)
	}
	dir = t.TempDir()
	p = start(t, nil, with("dev", "--dir", dir, "--nats-listen", "127.0.0.1:0", "--jobs-listen", "off")...).ready()
	if at, err := devdir.Read(dir); err != nil || at.JobQueues != "" {
		t.Errorf("%+v, %v", at, err)
	}
	p.end()
	if strings.Contains(p.out.String(), "curl") {
		t.Errorf("it advises to use queues that are not there: %s", p.out)
	}
}

// TestTheUsualAddressOfQueuesMayBeTaken starts two without an address for queues. Other processes
// of this machine may take the usual one and give it back meanwhile: a server elsewhere logs that.
func TestTheUsualAddressOfQueuesMayBeTaken(t *testing.T) {
	t.Parallel()
	var at []string
	for range 2 {
		dir := t.TempDir()
		p := start(t, nil, with("dev", "--dir", dir, "--nats-listen", "127.0.0.1:0")...).ready()
		where, err := devdir.Read(dir)
		if err != nil || where.JobQueues == "" {
			t.Fatalf("%+v, %v", where, err)
		}
		at = append(at, where.JobQueues)
		if !strings.HasSuffix(where.JobQueues, ":8000") {
			p.errs.await(t, "the usual address of queues is taken")
		}
	}
	if at[0] == at[1] {
		t.Errorf("both at %s", at[0])
	}
}

func TestSettingsOfQueuesThatDoNotFit(t *testing.T) {
	dir := t.TempDir()
	cert, key, _ := certificate(t, dir)
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"orchestrator", "--jobs-listen", "0.0.0.0:8000", "--jobs-tls-cert", "c", "--jobs-rate", "-1",
			"--jobs-max-size", "8MiB"}, 2, []string{
			"--jobs-listen: 0.0.0.0:8000 can be reached from other machines: say who may do what there with " +
				"--jobs-access FILE, or listen at 127.0.0.1", "a certificate needs its key",
			"--jobs-rate: -1; want at least 0", "--jobs-max-body: 4MiB are less than the 8MiB",
			"4 things are wrong",
		}},
		{[]string{"orchestrator", "--jobs-listen", ":8000"}, 2,
			[]string{"--jobs-listen: :8000 can be reached from other machines: say who may do what there with " +
				"--jobs-access FILE, or listen at 127.0.0.1"}},
		{[]string{"dev", "--jobs-listen", "8000", "--jobs-client-ca", "ca", "--jobs-rate", "fast"}, 2, []string{
			`--jobs-listen: "8000" is not an address`, "say --jobs-tls-cert and --jobs-tls-key, too",
			"say with --jobs-access FILE who may do what with which certificate",
			`--jobs-rate: "fast" is no number like 100 or 0.5`,
		}},
		{[]string{"orchestrator", "--jobs-access", "a", "--jobs-rate", "NaN"}, 2,
			[]string{"--jobs-listen: where are the queues served? Say it, like 0.0.0.0:8000, or off",
				"--jobs-rate: NaN"}},
		{[]string{"orchestrator", "--jobs-listen", ":0", "--jobs-access", filepath.Join(dir, "none.yaml")}, 1,
			[]string{"--jobs-access: the access file", "no such file"}},
		{[]string{"orchestrator", "--jobs-listen", ":0", "--jobs-access",
			file(t, dir, "bad.yaml", "callers: [{name: x}]")}, 1,
			[]string{"2 things are wrong", "has neither token_sha256 nor certificates"}},
		{[]string{"orchestrator", "--jobs-listen", ":0", "--jobs-access",
			file(t, dir, "certs.yaml",
				"callers: [{name: x, certificates: [x], allow: [{queues: ['*'], permissions: [pop]}]}]")}, 1, []string{
			"say with --jobs-client-ca who issues them"}},
		{[]string{"orchestrator", "--jobs-listen", "127.0.0.1:0", "--jobs-tls-cert", cert, "--jobs-tls-key",
			cert}, 1, []string{"--jobs-tls-cert: ", "the certificate and the key"}},
		{[]string{"orchestrator", "--jobs-listen", ":0", "--jobs-access", accessFile(t, dir), "--jobs-tls-cert",
			cert, "--jobs-tls-key", key, "--jobs-client-ca", key}, 1, []string{"there is no certificate in PEM"}},
	} {
		args := append(c.args, "--listen", "127.0.0.1:0")
		if c.args[0] == "orchestrator" {
			args = append(args, "--database", filepath.Join(dir, "rondo.db"))
		}
		code, _, problems := inside(t, environment(), args...)
		if code != c.code {
			t.Errorf("%q: exit code %d: %s", c.args, code, problems)
		}
		for _, want := range c.want {
			if !strings.Contains(problems, want) {
				t.Errorf("%q: missing: %s\nin: %s", c.args, want, problems)
			}
		}
	}
}
