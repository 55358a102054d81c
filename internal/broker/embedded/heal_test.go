package embedded

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// tightening is a server whose directory the test fills: room reports an error until it is told
// otherwise.
func tightening(t *testing.T) (s *Server, tried, room chan error) {
	t.Helper()
	tried, room = make(chan error), make(chan error)
	s, err := Start(Options{Dir: t.TempDir(), Heal: time.Millisecond, room: func(string) error {
		err := <-room
		tried <- err
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, tried, room
}

// TestAServerThatCouldNotWriteIsRestarted: it is restarted once there is room, and keeps its
// messages. nats-server itself would store nothing any more.
func TestAServerThatCouldNotWriteIsRestarted(t *testing.T) {
	s, tried, room := tightening(t)
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	before := s.running()
	s.log.Errorf("%s", "JetStream failed to store a msg on stream '$G > KV_b': no space left on device")
	for range 3 {
		room <- errors.New("no space left on device")
		<-tried
		if s.running() != before || !before.Running() {
			t.Fatal("restarted without room")
		}
	}
	room <- nil
	<-tried
	before.WaitForShutdown()
	for { // until the client has connected again; the test's own deadline ends it
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		e, err := kv.Get(ctx, "key")
		cancel()
		if err == nil {
			if string(e.Value()) != "value" {
				t.Errorf("the value is %q", e.Value())
			}
			break
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	if s.running() == before {
		t.Error("it is the same server")
	}
	if _, err := kv.PutString(t.Context(), "key", "another"); err != nil {
		t.Error(err)
	}
}

// TestAClosedServerIsNotRestarted: there may be room again at the moment at which it is closed.
func TestAClosedServerIsNotRestarted(t *testing.T) {
	s, err := Start(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	before, ended := s.running(), s.ended
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.mend(ended, s.log, nil)
	if s.running() != before || before.Running() {
		t.Error("a closed server was restarted")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	again := s.running()
	s.mend(ended, s.log, nil)
	if s.running() != again {
		t.Error("a later run was restarted")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestRoomIsTriedByWriting(t *testing.T) {
	dir := t.TempDir()
	if err := tryRoom(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v (%v)", left, err)
	}
	if err := tryRoom(dir + "/missing"); err == nil {
		t.Error("a directory that is missing has room")
	}
}
