package embedded_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/bus/embedded"
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
		"address already in use": {Listen: taken.Addr().String()}, "not a directory": {Dir: plain}, "no such file": {Config: "nowhere.conf"}, "missing port": {Listen: "x"},
	} {
		began := time.Now()
		s, err := embedded.Start(o)
		if err == nil {
			_ = s.Close() // it should not have started
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: it took %v", want, took)
		}
	}
}
