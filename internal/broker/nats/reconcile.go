package natsbroker

import (
	"context"
	"slices"
	"time"
)

// One process looks regularly whether all streams, consumers and buckets are there, and makes those
// again that are missing: the one that receives from partition 0. Receivers and publishers notice
// what they use themselves, and at once. This look is for the rest: a consumer whose messages wait
// unseen, or a bucket that is written to at the next failure only. It compares names, so that two
// builds with different settings do not change each other's streams during a deployment.

// reconcileEvery is the interval of the looks. With [mendAfter] it is well below a minute.
const reconcileEvery = 20 * time.Second

// reconcile looks until the context ends.
func (r *resources) reconcile(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		missing, err := r.missingNames(ctx)
		if err != nil {
			r.log.Debug("NATS: the streams could not be listed; looking again later", "error", err)
			continue
		}
		if len(missing) == 0 {
			continue
		}
		r.log.Warn("NATS: something was removed from the broker", "what", missing)
		if err := r.mend(ctx); err != nil && ctx.Err() == nil {
			r.log.Error("NATS: what is missing could not be made again; trying again", "what", missing, "error", err)
		}
	}
}

// missingNames lists the streams, the buckets and the consumers that Rondo needs and that are not
// there. Consumers of task queues are not among them: each worker makes those that it uses.
func (r *resources) missingNames(ctx context.Context) (missing []string, err error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	streams := r.js.StreamNames(ctx)
	var have []string
	for name := range streams.Name() {
		have = append(have, name)
	}
	if err := streams.Err(); err != nil {
		return nil, problem("list the streams", err)
	}
	n := &r.names
	want := []string{n.inbox, n.later, n.work, n.dead}
	for _, bucket := range []string{n.members, n.sessions, n.kv} {
		want = append(want, "KV_"+bucket)
	}
	for _, name := range want {
		if !slices.Contains(have, name) {
			missing = append(missing, name)
		}
	}
	for _, stream := range []string{n.inbox, n.later} {
		if slices.Contains(missing, stream) {
			continue
		}
		more, err := r.missingConsumers(ctx, stream)
		if err != nil {
			return nil, err
		}
		missing = append(missing, more...)
	}
	return missing, nil
}

// missingConsumers lists the consumers of a stream that are not there.
func (r *resources) missingConsumers(ctx context.Context, stream string) (missing []string, err error) {
	st, err := r.js.Stream(ctx, stream)
	if err != nil {
		return nil, problem("look at stream "+stream, err)
	}
	want := []string{dueConsumer}
	if stream == r.names.inbox {
		want = nil
		for i := range partitionsOf(st.CachedInfo().Config) {
			for _, l := range lanes {
				want = append(want, l.consumer(i))
			}
		}
	}
	names := st.ConsumerNames(ctx)
	have := make(map[string]bool)
	for name := range names.Name() {
		have[name] = true
	}
	if err := names.Err(); err != nil {
		return nil, problem("list the consumers of "+stream, err)
	}
	for _, name := range want {
		if !have[name] {
			missing = append(missing, stream+"/"+name)
		}
	}
	return missing, nil
}
