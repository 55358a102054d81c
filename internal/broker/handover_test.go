package broker_test

import (
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
)

func TestKindsOfHandovers(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]broker.HandoverKind{
		"rondo.event.e.i": broker.HandoverInbox, "rondo.task-done.1-2.i": broker.HandoverInbox,
		"other.task._.a.1-2.i": broker.HandoverInbox, // which its receiver refuses
		"rondo.task._.a.1-2.i": broker.HandoverTask, "rondo.task.rondo.a.1-2.i": broker.HandoverTask,
		"rondo.task.rondo%2Esystem.a.1-2.i": broker.HandoverSystem,
	} {
		if is := broker.HandoverKindOf("rondo", subject); is != want {
			t.Errorf("%s is of the kind %s, want %s", subject, is, want)
		}
	}
}
