package client_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/codec"
)

func TestConnect(t *testing.T) {
	s := newSystem(t, code()...)
	c, err := client.Connect(t.Context(), "", client.InProcess(s))
	must(t, err)
	if out, err := echo.Run(soon(t), c, "a"); out != "a" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	must(t, c.Close())
	must(t, c.Close())
	if _, err := client.Connect(t.Context(), "nats://127.0.0.1:1", client.Timeout(time.Second)); err == nil {
		t.Error("nobody is there")
	}
}

// TestOptions checks that each option sets the field of the configuration that it names.
func TestOptions(t *testing.T) {
	s, codec, log := newSystem(t, code()...), codec.JSON{}, slog.New(slog.DiscardHandler)
	config, o := client.Configured(client.Name("n"), client.Prefix("p"), client.Codec(codec),
		client.Timeout(time.Minute), client.Logger(log), client.NATSContext("context"), client.Credentials("creds"),
		client.NKey("seed"), client.UserPassword("user", "password"), client.Token("token"), client.RootCAs("ca"),
		client.Certificate("cert", "key"), client.TLSFirst(), client.InProcess(s), client.JetStreamDomain("hub"),
		client.JetStreamAPIPrefix("api"), client.InboxPrefix("inbox"))
	want := natsbroker.Config{Name: "n", Prefix: "p", Timeout: time.Minute, Logger: log, Context: "context",
		Login: natsbroker.Login{Credentials: "creds", NKey: "seed", User: "user", Password: "password",
			Token: "token"},
		TLS:       natsbroker.TLS{CA: "ca", Certificate: "cert", Key: "key", TLSFirst: true},
		InProcess: s, Domain: "hub", APIPrefix: "api", InboxPrefix: "inbox"}
	if !reflect.DeepEqual(config, want) {
		t.Errorf("got %+v", config)
	}
	if o.Name != "n" || o.Codec != codec {
		t.Errorf("got %+v", o)
	}
}

// TestConnectMakesNoStreams connects a client to a server without a system, and looks that none was
// made.
func TestConnectMakesNoStreams(t *testing.T) {
	server := natstest.Start(t)
	c, err := client.Connect(t.Context(), server.URL())
	must(t, err)
	defer c.Close()
	nc, err := nats.Connect(server.URL(), nats.Timeout(time.Minute))
	must(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	must(t, err)
	for name := range js.StreamNames(t.Context()).Name() {
		t.Errorf("there is a stream %s", name)
	}
}

// TestAWrongPrefixIsNamed starts an instance where no stream has the prefix: the log and the error
// name the prefix and say what to look at.
func TestAWrongPrefixIsNamed(t *testing.T) {
	server := natstest.Start(t)
	log := &warned{text: make(chan string, 1)}
	c, err := client.Connect(t.Context(), server.URL(), client.Prefix("shop"),
		client.Logger(slog.New(slog.NewTextHandler(log, nil))))
	must(t, err)
	defer c.Close()
	const want = "is \"shop\" the prefix of the system?"
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := echo.Start(ctx, c, "a")
		done <- err
	}()
	select {
	case text := <-log.text:
		if !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), want) {
			t.Errorf("it logs %s", text)
		}
	case err := <-done:
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, broker.ErrNoStream) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

// warned gives the first warning about publishing.
type warned struct{ text chan string }

func (w *warned) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("publishing fails")) {
		select {
		case w.text <- string(line):
		default:
		}
	}
	return len(line), nil
}
