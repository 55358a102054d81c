package natstest_test

import (
	"testing"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

func TestServerKeepsWhatItHasWhenItIsRestarted(t *testing.T) {
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	if err := b.Publish(t.Context(), events.Wire{Subject: "rondo.event.x.i"}); err != nil {
		t.Fatal(err)
	}
	was := s.URL()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if s.URL() != was {
		t.Errorf("it listens at %s, before at %s", s.URL(), was)
	}
	natstest.Eventually(t, "the message is there", func() bool {
		backlog, err := b.Backlog(t.Context(), 0)
		return err == nil && backlog.Waiting == 1
	})
}

func TestClusterGoesOnWithoutTheLeaderOfAStream(t *testing.T) {
	servers := natstest.Cluster(t, 3)
	b := natstest.Connect(t, servers, natsbroker.Config{Partitions: 1, Replicas: 3})
	leader := servers.Leader(t, "RONDO")
	if err := leader.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), events.Wire{Subject: "rondo.event.x.i"}); err != nil {
		t.Fatal(err)
	}
	if next := servers.Leader(t, "RONDO"); next == leader {
		t.Error("a server that was stopped leads")
	}
	if err := leader.Restart(); err != nil {
		t.Fatal(err)
	}
	servers.WaitReady(t)
}
