package health_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rondo-run/rondo/internal/health"
)

func serve(t *testing.T, c health.Config) *health.Server {
	t.Helper()
	c.Address = "127.0.0.1:0"
	s, err := health.Serve(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func get(t *testing.T, s *health.Server, path string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Get("http://" + s.Address() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestReadyTellsWhatIsNot(t *testing.T) {
	var problem atomic.Pointer[error]
	s := serve(t, health.Config{Ready: func() error {
		if p := problem.Load(); p != nil {
			return *p
		}
		return nil
	}})
	for _, path := range []string{"/readyz", "/livez"} {
		if resp, body := get(t, s, path); resp.StatusCode != http.StatusOK || body != "ok\n" ||
			!strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %s, %q", path, resp.Status, body)
		}
	}
	err := errors.New("not connected to NATS\nthe store does not answer")
	problem.Store(&err)
	if resp, body := get(t, s, "/readyz"); resp.StatusCode != http.StatusServiceUnavailable ||
		body != err.Error()+"\n" {
		t.Errorf("%s, %q", resp.Status, body)
	}
	if resp, _ := get(t, s, "/livez"); resp.StatusCode != http.StatusOK {
		t.Errorf("/livez: %s", resp.Status)
	}
	if resp, _ := get(t, s, "/other"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("/other: %s", resp.Status)
	}
	if resp, err := http.Post("http://"+s.Address()+"/livez", "text/plain", nil); err != nil ||
		resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
}

func TestVersion(t *testing.T) {
	for _, version := range []string{"1.2.3", ""} {
		s := serve(t, health.Config{Version: version})
		resp, body := get(t, s, "/version")
		var about struct{ Version, Go, Platform string }
		if err := json.Unmarshal([]byte(body), &about); err != nil ||
			resp.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %v", body, err)
		}
		if about.Go == "" || about.Platform == "" || about.Version == "" || version != "" && about.Version != version {
			t.Errorf("%s", body)
		}
	}
}

func TestAddresses(t *testing.T) {
	s, err := health.Serve(health.Config{Address: ":0"})
	if err != nil {
		t.Fatal(err)
	}
	if at, err := netip.ParseAddrPort(s.Address()); err != nil || !at.Addr().IsUnspecified() {
		t.Errorf("without a host it listens on %s: %v; want all addresses", s.Address(), err)
	}
	if _, err := health.Serve(health.Config{Address: s.Address()}); err == nil ||
		!strings.Contains(err.Error(), "another process may listen there") {
		t.Errorf("a taken address: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := health.Serve(health.Config{Address: "nowhere"}); err == nil ||
		!strings.Contains(err.Error(), "host:port") {
		t.Errorf("a bad address: %v", err)
	}
}
