// Package natstest gives tests NATS servers: one, or a cluster of some, all in this process.
package natstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/slowtest"
)

// patience is how long a test waits for something that is sure to come.
const patience = 15 * time.Minute

// Start starts a server that ends with the test. It listens on a free port of 127.0.0.1, the same
// one when it is restarted.
func Start(t testing.TB) *embedded.Server {
	t.Helper()
	return StartWith(t, embedded.Options{})
}

// StartWith is Start with options. Empty options have the values of Start.
func StartWith(t testing.TB, o embedded.Options) *embedded.Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	s, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it may have been closed by the test
	return s
}

// Connected connects to a server that runs. On a slow machine the server may answer after the time
// limit of a request. A service tries again then, and so does Connected.
func Connected(t testing.TB, connect func() (*natsbroker.Bus, error)) *natsbroker.Bus {
	t.Helper()
	b, err := patiently(connect)
	if err != nil {
		t.Fatalf("connected within %v: %v", patience, err)
	}
	t.Cleanup(func() { _ = b.Close() }) // it may have been closed by the test
	return b
}

// Dial is Connected for a process that has no test.
func Dial(ctx context.Context, config natsbroker.Config) (*natsbroker.Bus, error) {
	return patiently(func() (*natsbroker.Bus, error) { return natsbroker.Connect(ctx, config) })
}

// patiently calls connect until it answers in time, or patience is over.
func patiently(connect func() (*natsbroker.Bus, error)) (b *natsbroker.Bus, err error) {
	slowtest.Until(patience, func() bool {
		b, err = connect()
		return err == nil || !isLate(err)
	})
	return b, err
}

// isLate reports whether a request has failed only because its time was over.
func isLate(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, nats.ErrTimeout) || strings.Contains(err.Error(), "i/o timeout")
}

// Servers are those of one cluster.
type Servers []*embedded.Server

// Cluster starts servers that know each other, and waits until one leads them.
func Cluster(t testing.TB, n int) Servers {
	t.Helper()
	for attempt := range 5 {
		servers, err := startCluster(t, n)
		if err == nil {
			t.Cleanup(servers.Close)
			servers.WaitReady(t)
			return servers
		}
		servers.Close() // another process has taken one of the ports
		t.Logf("attempt %d: %v", attempt+1, err)
	}
	t.Fatal("no cluster could be started")
	return nil
}

func startCluster(t testing.TB, n int) (Servers, error) {
	routes, err := freeAddresses(n)
	if err != nil {
		return nil, err
	}
	// Each waits only until it can be connected to, so they may be started one after the other.
	var servers Servers
	for i := range n {
		s, err := embedded.Start(embedded.Options{
			Dir: t.TempDir(), Listen: "127.0.0.1:0",
			Cluster: &embedded.Cluster{Name: fmt.Sprintf("n%d", i+1), Listen: routes[i], Routes: routes},
		})
		if err != nil {
			return servers, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// freeAddresses finds free ports.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // not before all are found
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// Close stops all of them.
func (s Servers) Close() {
	for _, server := range s {
		_ = server.Close() // it may be closed already
	}
}

// URL lists the URLs of the servers.
func (s Servers) URL() string {
	var urls []string
	for _, server := range s {
		urls = append(urls, server.URL())
	}
	return strings.Join(urls, ",")
}

// WaitReady waits until one of them leads, and sees all of them.
func (s Servers) WaitReady(t testing.TB) {
	t.Helper()
	Eventually(t, "the cluster has a leader that sees all servers", func() bool {
		for _, server := range s {
			if leads, seen := server.LeadsCluster(); leads && seen == len(s) {
				return true
			}
		}
		return false
	})
}

// Leader is the one that leads a stream.
func (s Servers) Leader(t testing.TB, stream string) *embedded.Server {
	t.Helper()
	var leader *embedded.Server
	Eventually(t, "stream "+stream+" has a leader", func() bool {
		for _, server := range s {
			if server.LeadsStream(stream) {
				leader = server
				return true
			}
		}
		return false
	})
	return leader
}

// Connect connects to a server, or to all servers of a cluster, until the test ends.
func Connect(t testing.TB, to interface{ URL() string }, config natsbroker.Config) *natsbroker.Bus {
	t.Helper()
	return Connected(t, func() (*natsbroker.Bus, error) { return TryConnect(t, to, config) })
}

// TryConnect is Connect for tests that expect an error.
func TryConnect(t testing.TB, to interface{ URL() string }, config natsbroker.Config) (*natsbroker.Bus, error) {
	t.Helper()
	if config.URLs == "" && config.Context == "" {
		config.URLs = to.URL()
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if config.Timeout == 0 {
		config.Timeout = time.Minute // a machine may be busy
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b, err := natsbroker.Connect(ctx, config)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("close the connection: %v", err)
		}
	})
	return b, nil
}

// Eventually waits until a condition holds, and fails the test if that takes too long.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	if !slowtest.Until(patience, is) {
		t.Fatalf("after %v it is not so that %s", patience, what)
	}
}
