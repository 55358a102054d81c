package natsbroker

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// A stream has one replica before and after each step that changes its transform, whatever replicas
// it has and gets: also if an interrupted change has left one, or an operator changes both numbers.
func TestTheTransformChangesOnOneReplica(t *testing.T) {
	t.Parallel()
	p := plan{names: &names{prefix: "rondo"}}
	config := func(replicas, partitions int, noted string) jetstream.StreamConfig {
		c := jetstream.StreamConfig{Replicas: replicas, SubjectTransform: p.partitionTransform(partitions),
			Metadata: map[string]string{partitionsKey: fmt.Sprint(partitions)}}
		if noted != "" {
			c.Metadata[replicasKey] = noted
		}
		return c
	}
	for _, x := range []struct {
		have, want jetstream.StreamConfig
		steps      int
		noted      string // the replicas that the metadata has after the first step
	}{
		{config(1, 4, ""), config(1, 8, ""), 1, ""},
		{config(3, 4, ""), config(3, 8, ""), 3, "3"},
		{config(3, 4, ""), config(5, 8, ""), 3, "5"},
		{config(3, 4, ""), config(3, 4, ""), 1, ""},
		{config(1, 4, "3"), config(3, 8, ""), 3, "3"},
		{config(1, 4, ""), config(3, 8, ""), 3, ""},
	} {
		steps, before := stepsOf(x.have, x.want), x.have
		if len(steps) != x.steps || steps[0].Metadata[replicasKey] != x.noted {
			t.Errorf("%v to %v has the steps %v", x.have, x.want, steps)
		}
		for _, c := range steps {
			if destination(c) != destination(before) && (c.Replicas != 1 || before.Replicas != 1) {
				t.Errorf("%d replicas with %s become %d with %s", before.Replicas, destination(before), c.Replicas,
					destination(c))
			}
			before = c
		}
		if before.Replicas != x.want.Replicas || before.Metadata[replicasKey] != "" {
			t.Errorf("in the end there are %d replicas, %v", before.Replicas, before.Metadata)
		}
	}
}
