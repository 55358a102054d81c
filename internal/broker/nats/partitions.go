package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
)

// lane is one half of a partition, with a consumer of its own. One lane has the messages from
// clients; the other one has the messages that running instances wait for, which go ahead. So
// running instances continue, however many starts wait.
//
// The broker distinguishes the lanes by the number of words: when it stores a message, it splits a
// verb of two words, and such a message goes ahead (see
// [github.com/rondo-run/rondo/pkg/events.Verb.Ahead]).
//
//	rondo.start.fulfil.order-1     is stored as   rondo.p.2.start.fulfil.order-1
//	rondo.task-done.1-4.order-1    is stored as   rondo.p.2.task.done.1-4.order-1
//
// The consumers could also list the verbs of their lanes. But when many messages are stored, the
// broker searches long for the next message of a consumer with several filter subjects. And a
// message with a verb that is in no list would stay in the stream for ever.
type lane string

const (
	fromClients lane = "p-"
	ahead       lane = "a-"
)

// In this order: an earlier version made the first consumer for all messages, and the filters of
// the consumers of a stream with WorkQueue retention must not overlap.
var lanes = []lane{fromClients, ahead}

// consumer returns the name of the consumer of a lane.
func (l lane) consumer(partition int) string { return string(l) + strconv.Itoa(partition) }

// partitionTransform makes the broker compute the partition of a message.
func (p *plan) partitionTransform(n int) *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{
		Source: p.subject("*.*.*"),
		Destination: p.subject("p.{{partition(" + strconv.Itoa(n) +
			",3)}}.{{split(1,-)}}.{{wildcard(2)}}.{{wildcard(3)}}"),
	}
}

// destination returns the subject under which a stream stores messages, "" if it has no transform.
func destination(c jetstream.StreamConfig) string {
	if c.SubjectTransform == nil {
		return ""
	}
	return c.SubjectTransform.Destination
}

var partitionCall = regexp.MustCompile(`\{\{partition\((\d+),`)

// partitionsOf returns the number of partitions of a stream.
func partitionsOf(c jetstream.StreamConfig) int {
	m := partitionCall.FindStringSubmatch(destination(c))
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

func (p *plan) partitionConsumer(l lane, partition int) jetstream.ConsumerConfig {
	description := fmt.Sprintf("Rondo: partition %d, what people say", partition)
	if l == ahead {
		description = fmt.Sprintf("Rondo: partition %d, what goes ahead", partition)
	}
	return marked(jetstream.ConsumerConfig{
		Durable: l.consumer(partition), Description: description, FilterSubject: p.filter(l, partition),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: p.config.InboxAckWait, MaxDeliver: -1, MaxAckPending: maxHeld,
		MaxWaiting: 512,
	})
}

// partition creates or verifies the consumers of a partition.
func (s *setup) partition(ctx context.Context, st jetstream.Stream, i int) {
	for _, l := range lanes {
		s.consumer(ctx, st, s.r.plan.partitionConsumer(l, i))
	}
}

// Partitions implements broker.Inbox. It also makes missing consumers, and removes those of former
// partitions that are drained.
func (in *inbox) Partitions(ctx context.Context) (broker.Partitions, error) {
	st, err := in.stream(ctx)
	if gone(err) && in.mend(ctx) == nil {
		st, err = in.stream(ctx)
	}
	if err != nil {
		return broker.Partitions{}, problem("look at stream "+in.names.inbox, err)
	}
	c := st.CachedInfo().Config
	p := broker.Partitions{Count: partitionsOf(c)}
	in.results.partitions.Store(int64(p.Count))
	have, err := lanesOf(ctx, st)
	if err != nil {
		return broker.Partitions{}, problem("list the consumers of "+in.names.inbox, err)
	}
	wanted := in.abandoned(ctx, st, have)
	for i := range p.Count {
		wanted = append(wanted, i)
	}
	for _, i := range wanted {
		for _, l := range lanes {
			if slices.Contains(have[i], l) || in.plan.config.Setup != Make {
				continue
			}
			err := in.askAgain(ctx, func(ctx context.Context) error {
				// An operator has raised the number of partitions, or the broker has lost a
				// consumer.
				_, err := st.CreateOrUpdateConsumer(ctx, in.plan.partitionConsumer(l, i))
				return err
			})
			if err != nil {
				return broker.Partitions{}, problem("make the consumer "+l.consumer(i), err)
			}
			have[i] = append(have[i], l)
		}
	}
	for i, there := range have {
		if i >= p.Count && !(in.plan.settled(c) && in.dropDrained(ctx, i, there)) {
			p.Draining = append(p.Draining, i)
		}
	}
	slices.Sort(p.Draining)
	return p, nil
}

// stream finds the stream. It asks again before the time limit for a request is over, because a
// server that is starting may accept a request and not answer it.
func (in *inbox) stream(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := in.bounded(ctx)
	defer cancel()
	return in.streamCalled(ctx, in.names.inbox)
}

// settled reports whether all servers know the number of partitions of the stream: no message comes
// into a former partition any more.
func (p *plan) settled(c jetstream.StreamConfig) bool {
	changed, _ := time.Parse(time.RFC3339, c.Metadata[changedKey])
	return time.Since(changed) > 2*p.config.InboxAckWait
}

// abandonedEvery is the interval at which a process looks for messages in former partitions without
// consumers.
const abandonedEvery = 15 * time.Second

// abandoned lists the former partitions that have messages, and lack a consumer. An operator may
// have removed it, or a process may have removed it as drained, with outdated knowledge: it was
// frozen meanwhile, and other processes have raised the number of partitions, and lowered it again.
func (in *inbox) abandoned(ctx context.Context, st jetstream.Stream, have map[int][]lane) (out []int) {
	c := st.CachedInfo().Config
	due := in.lookedForAbandoned.Due(time.Now(), abandonedEvery)
	for i := partitionsOf(c); i < max(most(c), slices.Max(append(slices.Collect(maps.Keys(have)), 0))+1); i++ {
		if n := len(have[i]); n == len(lanes) || n == 0 && !due {
			continue
		}
		f, err := in.reader.lastOf(ctx, c.Name, in.names.subject("p", strconv.Itoa(i), ">"))
		switch {
		case f != nil:
			out = append(out, i)
		case err != nil:
			in.log.Debug("NATS: a former partition could not be looked at; looking again later", "partition", i,
				"error", err)
			in.lookedForAbandoned.Forget()
		}
	}
	return out
}

// most returns the largest number of partitions that a stream has had.
func most(c jetstream.StreamConfig) int {
	n, _ := strconv.Atoi(c.Metadata[mostKey])
	return max(n, partitionsOf(c))
}

// lanesOf lists the lanes that have a consumer, by partition.
func lanesOf(ctx context.Context, st jetstream.Stream) (map[int][]lane, error) {
	have := make(map[int][]lane)
	names := st.ConsumerNames(ctx)
	for name := range names.Name() {
		for _, l := range lanes {
			if number, ok := strings.CutPrefix(name, string(l)); ok {
				if i, err := strconv.Atoi(number); err == nil {
					have[i] = append(have[i], l)
				}
			}
		}
	}
	return have, names.Err()
}

// dropDrained removes the consumers of a former partition if nothing is left in it.
func (in *inbox) dropDrained(ctx context.Context, partition int, there []lane) bool {
	if in.plan.config.Setup != Make {
		return false
	}
	for _, l := range there {
		left, err := in.backlog(ctx, in.names.inbox, l.consumer(partition))
		if err != nil || left.Waiting > 0 || left.Held > 0 {
			return false
		}
	}
	// Another process may have raised the number of partitions meanwhile, and need the consumers.
	st, err := in.js.Stream(ctx, in.names.inbox)
	if err != nil || partition < partitionsOf(st.CachedInfo().Config) || !in.plan.settled(st.CachedInfo().Config) {
		return false
	}
	for _, l := range there {
		if err := st.DeleteConsumer(ctx, l.consumer(partition)); err != nil &&
			!errors.Is(err, jetstream.ErrConsumerNotFound) {
			return false
		}
	}
	return true
}

// SetPartitions changes the number of partitions of the inbox. Stored messages stay in their
// partitions, and are taken from there.
func (in *inbox) SetPartitions(ctx context.Context, n int) error {
	if n < 1 || n > maxPartitions {
		return fmt.Errorf("nats: %d partitions; want 1 to %d", n, maxPartitions)
	}
	inbox, err := in.js.Stream(ctx, in.names.inbox)
	if err != nil {
		return problem("look at stream "+in.names.inbox, err)
	}
	s := setup{r: in.resources, replicas: in.plan.config.Replicas}
	for i := range min(n, partitionsOf(inbox.CachedInfo().Config)) {
		s.partition(ctx, inbox, i)
	}
	if len(s.errs) == 0 {
		s.stream(ctx, in.plan.inboxConfig(n))
	}
	if len(s.errs) == 0 {
		in.partitions.Store(int64(n))
	}
	return problem("change the partitions", errors.Join(s.errs...))
}

// prepare prepares the inbox for more partitions, and reports whether it could. First it notes in
// the stream that the number changes, so that no process removes consumers as drained; then it
// makes the consumers; then messages may come into the partitions.
func (s *setup) prepare(ctx context.Context, inbox jetstream.Stream, n int) bool {
	have := inbox.CachedInfo().Config
	c := have
	c.Metadata = userMetadata(have.Metadata)
	changing(c.Metadata, max(n, most(have)))
	before := len(s.errs)
	if s.failed("stream "+c.Name, s.update(ctx, have, c)) {
		return false
	}
	for i := range n {
		s.partition(ctx, inbox, i)
	}
	return len(s.errs) == before
}

// changing notes in the metadata of the inbox when its number of partitions changes.
func changing(metadata map[string]string, most int) {
	metadata[changedKey] = time.Now().UTC().Format(time.RFC3339)
	metadata[mostKey] = strconv.Itoa(most)
}

// Backlog implements broker.Inbox.
func (in *inbox) Backlog(ctx context.Context, partition int) (all broker.Backlog, err error) {
	for _, l := range lanes {
		one, err := in.backlog(ctx, in.names.inbox, l.consumer(partition))
		if err != nil {
			return broker.Backlog{}, err
		}
		all.Waiting, all.Held, all.Receivers = all.Waiting+one.Waiting, all.Held+one.Held,
			max(all.Receivers, one.Receivers)
	}
	return all, nil
}
