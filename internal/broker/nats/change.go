package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// update changes a stream.
//
// Each replica of a stream applies the transform when it stores a message, and learns of another
// transform at its own time. A message in flight at that moment would be in different partitions on
// different replicas, and might never be delivered. So while the transform changes, the stream has
// one replica. Its metadata has the former number, with which setup or a receiver ends the change
// if this process is killed.
func (s *setup) update(ctx context.Context, have, want jetstream.StreamConfig) error {
	for _, c := range stepsOf(have, want) {
		err := s.r.askAgain(ctx, func(ctx context.Context) error {
			_, err := s.r.js.UpdateStream(ctx, c)
			return err
		})
		if err != nil {
			return err
		}
		if err := s.settled(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// stepsOf returns the configurations that a stream gets one after the other.
func stepsOf(have, want jetstream.StreamConfig) []jetstream.StreamConfig {
	if max(have.Replicas, want.Replicas) <= 1 || destination(have) == destination(want) {
		return []jetstream.StreamConfig{want}
	}
	single, other := have, want
	single.Metadata = maps.Clone(want.Metadata)
	if n := max(have.Replicas, replicasBefore(have)); n > 1 {
		single.Metadata[replicasKey] = strconv.Itoa(cmp.Or(want.Replicas, n))
	}
	single.Replicas, other.Replicas, other.Metadata = 1, 1, single.Metadata
	return []jetstream.StreamConfig{single, other, want}
}

// settled waits until a stream has the wanted number of replicas.
func (s *setup) settled(ctx context.Context, c jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	for {
		st, err := s.r.js.Stream(ctx, c.Name)
		if err == nil {
			cluster := st.CachedInfo().Cluster
			if cluster == nil || cluster.Leader != "" && len(cluster.Replicas) == c.Replicas-1 {
				return nil
			}
		}
		select {
		case <-time.After(settleFor / 600):
		case <-ctx.Done():
			return errors.Join(errors.New("the servers have not agreed on the change yet; do it again"),
				context.Cause(ctx), err)
		}
	}
}

// replicasBefore returns the number of replicas that a stream had before a process began to change
// its transform, if the process has not ended the change: see update.
func replicasBefore(c jetstream.StreamConfig) int {
	n, err := strconv.Atoi(c.Metadata[replicasKey])
	if err != nil || c.Replicas != 1 {
		return 0
	}
	return n
}
