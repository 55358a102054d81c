package client_test

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
