package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
)

// lane is one half of a partition, with a consumer of its own: what people say waits in one, and
// what instances that run wait for goes ahead in the other. So however many starts there are, who
// runs goes on.
//
// The broker tells them apart by the number of words: when it stores a message, it takes a verb of
// two words apart, and those go ahead (see [github.com/rondo-run/rondo/pkg/events.Verb.Ahead]).
//
//	rondo.start.fulfil.order-1     is stored as   rondo.p.2.start.fulfil.order-1
//	rondo.work-done.1-4.order-1    is stored as   rondo.p.2.work.done.1-4.order-1
//
// It could also be told which verbs belong to a lane. But when many messages are stored, the broker
// searches long for the next one of a consumer that is for several subjects; and what has a verb
// that is in no list would stay there for ever.
type lane string

const (
	people lane = "p-"
	ahead  lane = "a-"
)

// in this order: while the one is for everything, as it once was, there cannot be the other
var lanes = []lane{people, ahead}

// consumer names the consumer of a lane.
func (l lane) consumer(partition int) string { return string(l) + strconv.Itoa(partition) }

// filter is what is stored in a lane.
func (b *Bus) filter(l lane, partition int) string {
	words := "*.*.*"
	if l == ahead {
		words = "*.*.*.>"
	}
	return b.subject("p", strconv.Itoa(partition), words)
}

// storedAs is where a message is stored that is published under a subject, of any partition.
func (b *Bus) storedAs(subject string) string {
	verb, rest, _ := strings.Cut(strings.TrimPrefix(subject, b.names.prefix+"."), ".")
	return b.subject("p.*", strings.ReplaceAll(verb, "-", "."), rest)
}

// publishedAs is the subject under which something was published that is stored, and its partition.
// What is not in a partition is as it was published.
func (b *Bus) publishedAs(subject string) (string, int) {
	rest, ok := strings.CutPrefix(subject, b.names.prefix+".p.")
	if !ok {
		return subject, 0
	}
	p, rest, _ := strings.Cut(rest, ".")
	partition, err := strconv.Atoi(p)
	if err != nil {
		return subject, 0
	}
	for more := strings.Count(rest, ".") - 2; more > 0; more-- {
		rest = strings.Replace(rest, ".", "-", 1)
	}
	return b.names.prefix + "." + rest, partition
}

// partitionTransform has the broker compute the partition of a message.
func (b *Bus) partitionTransform(n int) *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{
		Source: b.subject("*.*.*"),
		Destination: b.subject("p.{{partition(" + strconv.Itoa(n) +
			",3)}}.{{split(1,-)}}.{{wildcard(2)}}.{{wildcard(3)}}"),
	}
}

// destination is where a stream stores what comes to it.
func destination(c jetstream.StreamConfig) string {
	if c.SubjectTransform == nil {
		return ""
	}
	return c.SubjectTransform.Destination
}

var partitionCall = regexp.MustCompile(`\{\{partition\((\d+),`)

// partitionsOf reads how many partitions a stream has.
func partitionsOf(c jetstream.StreamConfig) int {
	m := partitionCall.FindStringSubmatch(destination(c))
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

func (b *Bus) partitionConsumer(l lane, partition int) jetstream.ConsumerConfig {
	description := fmt.Sprintf("Rondo: partition %d, what people say", partition)
	if l == ahead {
		description = fmt.Sprintf("Rondo: partition %d, what goes ahead", partition)
	}
	return jetstream.ConsumerConfig{
		Durable: l.consumer(partition), Description: description, FilterSubject: b.filter(l, partition),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.config.InboxWait, MaxDeliver: -1, MaxAckPending: maxHeld,
		MaxWaiting: 512,
	}
}

// partition makes or checks the consumers of a partition.
func (s *setup) partition(ctx context.Context, st jetstream.Stream, i int) {
	for _, l := range lanes {
		s.consumer(ctx, st, s.b.partitionConsumer(l, i))
	}
}

// Partitions implements broker.Inbox. It also removes what is left of partitions that are no longer
// used and have been drained.
func (b *Bus) Partitions(ctx context.Context) (broker.Partitions, error) {
	st, err := b.js.Stream(ctx, b.names.inbox)
	if gone(err) && b.mend(ctx) == nil {
		st, err = b.js.Stream(ctx, b.names.inbox)
	}
	if err != nil {
		return broker.Partitions{}, problem("look at stream "+b.names.inbox, err)
	}
	p := broker.Partitions{Count: partitionsOf(st.CachedInfo().Config)}
	b.count.Store(int64(p.Count))
	have, err := lanesOf(ctx, st)
	if err != nil {
		return broker.Partitions{}, problem("list the consumers of "+b.names.inbox, err)
	}
	for i := range p.Count {
		for _, l := range lanes {
			if slices.Contains(have[i], l) || b.config.Setup != Make {
				continue
			}
			err := b.askAgain(ctx, func(ctx context.Context) error {
				// somebody has raised their number, or the broker has lost one
				_, err := st.CreateOrUpdateConsumer(ctx, b.partitionConsumer(l, i))
				return err
			})
			if err != nil {
				return broker.Partitions{}, problem("make the consumer "+l.consumer(i), err)
			}
		}
		delete(have, i)
	}
	changed, _ := time.Parse(time.RFC3339, st.CachedInfo().Config.Metadata[changedKey])
	settled := time.Since(changed) > 2*b.config.InboxWait // by then all servers know
	for i := range have {
		if !settled || !b.dropDrained(ctx, st, i) {
			p.Draining = append(p.Draining, i)
		}
	}
	slices.Sort(p.Draining)
	return p, nil
}

// lanesOf lists which lanes have a consumer, by partition.
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
func (b *Bus) dropDrained(ctx context.Context, st jetstream.Stream, partition int) bool {
	if b.config.Setup != Make {
		return false
	}
	if left, err := b.Backlog(ctx, partition); err != nil || left.Waiting > 0 || left.Held > 0 {
		return false
	}
	for _, l := range lanes {
		if err := st.DeleteConsumer(ctx, l.consumer(partition)); err != nil &&
			!errors.Is(err, jetstream.ErrConsumerNotFound) {
			return false
		}
	}
	return true
}

// SetPartitions changes how many partitions the inbox has. What is stored already stays where it
// is, and is taken from there.
func (b *Bus) SetPartitions(ctx context.Context, n int) error {
	if n < 1 || n > maxPartitions {
		return fmt.Errorf("nats: %d partitions; want 1 to %d", n, maxPartitions)
	}
	inbox, err := b.js.Stream(ctx, b.names.inbox)
	if err != nil {
		return problem("look at stream "+b.names.inbox, err)
	}
	s := setup{b: b, replicas: b.config.Replicas}
	for i := range n { // first somebody who takes from them, then messages
		s.partition(ctx, inbox, i)
	}
	if len(s.errs) == 0 {
		s.stream(ctx, b.inboxConfig(n))
	}
	if len(s.errs) == 0 {
		b.partitions.Store(int64(n))
	}
	return problem("change the partitions", errors.Join(s.errs...))
}

// Backlog implements broker.Inbox.
func (b *Bus) Backlog(ctx context.Context, partition int) (all broker.Backlog, err error) {
	for _, l := range lanes {
		one, err := b.backlog(ctx, b.names.inbox, l.consumer(partition))
		if err != nil {
			return broker.Backlog{}, err
		}
		all.Waiting, all.Held, all.Receivers = all.Waiting+one.Waiting, all.Held+one.Held,
			max(all.Receivers, one.Receivers)
	}
	return all, nil
}
