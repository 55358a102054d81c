package embedded_test

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker/embedded"
)

func TestTwoServersShareNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for range 2 {
		s, err := embedded.Start(embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "rondo-nats-*")); len(left) > 1 {
				t.Errorf("%q are left", left)
			}
		}()
	}
	if made, _ := filepath.Glob(filepath.Join(os.TempDir(), "rondo-nats-*")); len(made) != 2 {
		t.Errorf("%q were made", made)
	}
}

// TestWhyItCannotRunIsSaidAtOnce: the error has the cause, and not that the server did not answer
// in time.
func TestWhyItCannotRunIsSaidAtOnce(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	plain := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]embedded.Options{
		"address already in use": {Listen: taken.Addr().String()}, "not a directory": {Dir: plain},
		"no such file": {Config: "nowhere.conf"}, "missing port": {Listen: "x"},
	} {
		s, err := embedded.Start(o)
		if err == nil {
			_ = s.Close() // it should not have started
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "does not answer") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestRecoveryIsCalm starts a server on the data of a killed one: the server logs in one line, and
// not in warnings, that it reads its streams again.
func TestRecoveryIsCalm(t *testing.T) {
	first, killed := t.TempDir(), t.TempDir()
	s := start(t, embedded.Options{Dir: first})
	fill(t, s)
	if err := s.Restart(); err != nil { // it writes the state of its streams,
		t.Fatal(err)
	}
	fill(t, s) // and is killed after some more
	if err := os.CopyFS(killed, os.DirFS(first)); err != nil {
		t.Fatal(err)
	}

	var log bytes.Buffer
	again := start(t, embedded.Options{Dir: killed, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if n := again.Recovered(); n != 1 {
		t.Errorf("%d streams were recovered", n)
	}
	if text := log.String(); strings.Contains(text, "WARN") ||
		strings.Count(text, "streams recovered after an unclean shutdown") != 1 {
		t.Errorf("it logs\n%s", text)
	}
	fill(t, again)
}

func start(t *testing.T, o embedded.Options) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// patience is how long a test waits for an event that must happen.
const patience = 5 * time.Minute

// fill publishes some messages into a stream.
func fill(t *testing.T, s *embedded.Server) {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateOrUpdateStream(t.Context(),
		jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := js.Publish(t.Context(), "s.a", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}
