package natsbus

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/semver"

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
)

const (
	// minVersion is the first server that can publish messages later; from goodVersion on it is known to do so reliably on several replicas.
	minVersion  = "2.12.0"
	goodVersion = "2.14.0"

	// dedupeWindow is how long the broker remembers ids. It only absorbs repeated publishing; longer costs memory.
	dedupeWindow = 5 * time.Second
	notesFor     = 24 * time.Hour
	// maxHeld bounds what is handed out from one partition or queue and not settled.
	maxHeld = 100_000
)

// setUp makes or checks everything that is needed in the broker.
func (b *Bus) setUp(ctx context.Context) error {
	if b.config.Setup == Use {
		return b.use(ctx)
	}
	if err := b.checkServer(ctx); err != nil {
		return err
	}
	s := setup{b: b}
	n, err := s.inboxPartitions(ctx)
	if err != nil {
		return err
	}
	b.inbox = s.stream(ctx, b.inboxConfig(n))
	b.work = s.stream(ctx, b.workConfig())
	b.dead = s.stream(ctx, b.deadConfig())
	b.members = s.bucket(ctx, jetstream.KeyValueConfig{
		Bucket: b.names.members, Description: "which orchestrators are alive", TTL: 10 * b.config.MemberLease, LimitMarkerTTL: time.Second, Storage: jetstream.MemoryStorage,
	})
	b.sessions = s.bucket(ctx, jetstream.KeyValueConfig{
		Bucket: b.names.sessions, Description: "which worker has which session", TTL: b.config.SessionLease, LimitMarkerTTL: time.Second, Storage: b.storage(),
	})
	b.notes = s.bucket(ctx, jetstream.KeyValueConfig{
		Bucket: b.names.notes_, Description: "attempts, and how far activities have got", TTL: notesFor, Storage: b.storage(),
	})
	s.bucket(ctx, jetstream.KeyValueConfig{Bucket: b.names.marks, Description: "what was done since the broker was made", Storage: b.storage()})
	if len(s.errs) == 0 {
		s.partitions(ctx)
	}
	if err := errors.Join(s.errs...); err != nil {
		if b.config.Setup == Verify {
			return fmt.Errorf("nats: what is there is not what is needed; run the setup with an account that may make streams:\n%w", err)
		}
		return problem("make streams", err)
	}
	return nil
}

// checkServer tells whether the server can do what is needed.
func (b *Bus) checkServer(ctx context.Context) error {
	version := "v" + b.nc.ConnectedServerVersion()
	if semver.Compare(version, "v"+minVersion) < 0 {
		return fmt.Errorf("nats: server %s is too old: it has to be at least %s, better %s; upgrade nats-server", b.nc.ConnectedServerVersion(), minVersion, goodVersion)
	}
	if semver.Compare(version, "v"+goodVersion) < 0 {
		b.log.Warn("NATS: the server works, but a newer one delays messages more reliably", "has", b.nc.ConnectedServerVersion(), "better", goodVersion)
	}
	if most := b.nc.MaxPayload(); most < int64(b.config.MaxPayload) {
		return fmt.Errorf("nats: the server takes messages of at most %d bytes; %d are needed: set max_payload in its configuration, or MaxPayload to less if all inputs and results are smaller",
			most, b.config.MaxPayload)
	}
	_, err := b.js.AccountInfo(ctx)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return errors.New("nats: JetStream is off on this server; start it with -js, or add `jetstream {}` to its configuration")
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return errors.New("nats: JetStream is off for this account; enable it for the account, or use another one")
	}
	return problem("ask for JetStream", err)
}

func (b *Bus) use(ctx context.Context) (err error) {
	for _, s := range []struct {
		to   *jetstream.Stream
		name string
	}{{&b.inbox, b.names.inbox}, {&b.work, b.names.work}, {&b.dead, b.names.dead}} {
		if *s.to, err = b.js.Stream(ctx, s.name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			b.log.Debug("NATS: a stream cannot be seen with these rights", "stream", s.name, "error", err)
		}
	}
	return nil
}

func (b *Bus) storage() jetstream.StorageType {
	if b.config.Memory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// setup makes or checks one thing after the other, and collects what went wrong.
type setup struct {
	b    *Bus
	errs []error
}

// The key under which a stream says how it was partitioned.
const partitionsKey = "rondo.partitions"

// inboxPartitions is how many partitions the inbox is to have. If nobody says so, how many it has stands in the stream.
func (s *setup) inboxPartitions(ctx context.Context) (int, error) {
	if n := s.b.config.Partitions; n > 0 {
		return n, nil
	}
	there, err := s.b.js.Stream(ctx, s.b.names.inbox)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return defaultPartitions, nil
	case err != nil:
		return 0, problem("look at stream "+s.b.names.inbox, err)
	}
	if n := partitionsOf(there.CachedInfo().Config); n > 0 {
		return n, nil
	}
	return defaultPartitions, nil
}

// inboxConfig is the inbox as it is to be.
func (b *Bus) inboxConfig(n int) jetstream.StreamConfig {
	c := b.streamConfig(b.names.inbox, "messages for instances", b.subject("*.*.*"), b.subject("later.*.*.*"))
	c.SubjectTransform = &jetstream.SubjectTransformConfig{
		Source:      b.subject("*.*.*"),
		Destination: b.subject("p.{{partition(" + strconv.Itoa(n) + ",3)}}.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}"),
	}
	c.Metadata = map[string]string{partitionsKey: strconv.Itoa(n)}
	return c
}

func (b *Bus) workConfig() jetstream.StreamConfig {
	return b.streamConfig(b.names.work, "work for workers", b.subject("work.*.*.*.*"), b.subject("later.work.*.*.*.*"))
}

func (b *Bus) streamConfig(name, description string, subjects ...string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Description: "Rondo: " + description, Subjects: subjects,
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardOld, Storage: b.storage(), Replicas: b.config.Replicas,
		Duplicates: dedupeWindow, AllowDirect: true, AllowMsgSchedules: true, AllowRollup: true,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1, MaxMsgsPerSubject: -1,
	}
}

func (b *Bus) deadConfig() jetstream.StreamConfig {
	c := b.streamConfig(b.names.dead, "dead letters", b.subject("dead.*.*.*"), b.subject("dead.work.*.*.*.*"))
	c.Retention, c.MaxAge = jetstream.LimitsPolicy, b.config.DeadFor
	c.AllowMsgSchedules, c.AllowRollup = false, false
	c.Duplicates = 2 * time.Minute
	return c
}

var partitionCall = regexp.MustCompile(`\{\{partition\((\d+),`)

// partitionsOf reads how many partitions a stream has.
func partitionsOf(c jetstream.StreamConfig) int {
	if c.SubjectTransform == nil {
		return 0
	}
	m := partitionCall.FindStringSubmatch(c.SubjectTransform.Destination)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// stream makes or checks a stream.
func (s *setup) stream(ctx context.Context, want jetstream.StreamConfig) jetstream.Stream {
	st, err := s.b.js.Stream(ctx, want.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.b.config.Setup == Verify:
		s.errs = append(s.errs, fmt.Errorf("stream %s is missing", want.Name))
		return nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		if want.Replicas == 0 {
			want.Replicas = 1
		}
		if st, err = s.b.js.CreateStream(ctx, want); err == nil {
			s.b.log.Info("NATS: made a stream", "stream", want.Name, "replicas", want.Replicas)
			return st
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody was faster, with other settings
			if st, err = s.b.js.Stream(ctx, want.Name); err == nil {
				return st
			}
		}
		s.errs = append(s.errs, fmt.Errorf("stream %s: %w", want.Name, err))
		return nil
	case err != nil:
		s.errs = append(s.errs, fmt.Errorf("stream %s: %w", want.Name, err))
		return nil
	}
	return s.adjust(ctx, st, want)
}

// adjust brings a stream that is there to what is wanted, and leaves alone what is nobody's business here, such as placement.
func (s *setup) adjust(ctx context.Context, st jetstream.Stream, want jetstream.StreamConfig) jetstream.Stream {
	have := st.CachedInfo().Config
	c := have
	c.Subjects, c.SubjectTransform, c.Duplicates, c.Retention = want.Subjects, want.SubjectTransform, want.Duplicates, want.Retention
	c.AllowDirect, c.AllowMsgSchedules, c.MaxAge = true, want.AllowMsgSchedules, want.MaxAge
	if want.Replicas > 0 {
		c.Replicas = want.Replicas
	}
	if n := want.Metadata[partitionsKey]; n != "" {
		c.Metadata = map[string]string{}
		for k, v := range have.Metadata {
			if !strings.HasPrefix(k, "_nats.") {
				c.Metadata[k] = v
			}
		}
		c.Metadata[partitionsKey] = n
	}
	differs := different(have, c)
	if len(differs) == 0 {
		return st
	}
	if s.b.config.Setup == Verify {
		s.errs = append(s.errs, fmt.Errorf("stream %s differs: %s", want.Name, strings.Join(differs, "; ")))
		return st
	}
	next, err := s.b.js.UpdateStream(ctx, c)
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("stream %s cannot be changed (%s): %w", want.Name, strings.Join(differs, "; "), err))
		return st
	}
	s.b.log.Info("NATS: changed a stream", "stream", want.Name, "changes", strings.Join(differs, "; "))
	return next
}

// different says in which ways a stream is not as wanted.
func different(have, want jetstream.StreamConfig) (out []string) {
	compare := func(what string, a, b any) {
		if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
			out = append(out, fmt.Sprintf("%s is %s, wanted is %s", what, x, y))
		}
	}
	transform := func(t *jetstream.SubjectTransformConfig) string {
		if t == nil {
			return "none"
		}
		return t.Source + " to " + t.Destination
	}
	compare("subjects", have.Subjects, want.Subjects)
	compare("transform", transform(have.SubjectTransform), transform(want.SubjectTransform))
	compare("retention", have.Retention, want.Retention)
	compare("window for duplicates", have.Duplicates, want.Duplicates)
	compare("direct reading", have.AllowDirect, want.AllowDirect)
	compare("message schedules", have.AllowMsgSchedules, want.AllowMsgSchedules)
	compare("replicas", have.Replicas, want.Replicas)
	compare("age", have.MaxAge, want.MaxAge)
	return out
}

// bucket makes or checks a bucket.
func (s *setup) bucket(ctx context.Context, want jetstream.KeyValueConfig) jetstream.KeyValue {
	kv, err := s.b.js.KeyValue(ctx, want.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) && s.b.config.Setup == Make {
		want.Description = "Rondo: " + want.Description
		want.Replicas = max(1, s.b.config.Replicas)
		if want.Replicas == 1 && s.b.inbox != nil {
			want.Replicas = max(1, s.b.inbox.CachedInfo().Config.Replicas)
		}
		if kv, err = s.b.js.CreateKeyValue(ctx, want); errors.Is(err, jetstream.ErrBucketExists) {
			kv, err = s.b.js.KeyValue(ctx, want.Bucket)
		}
	}
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("bucket %s: %w", want.Bucket, err))
		return nil
	}
	status, err := kv.Status(ctx)
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("bucket %s: %w", want.Bucket, err))
		return nil
	}
	if status.TTL() != want.TTL {
		if s.b.config.Setup == Make {
			kv, err = s.changeBucket(ctx, kv, want)
		} else {
			err = fmt.Errorf("keys live for %v, wanted is %v", status.TTL(), want.TTL)
		}
		if err != nil {
			s.errs = append(s.errs, fmt.Errorf("bucket %s: %w", want.Bucket, err))
		}
	}
	return kv
}

func (s *setup) changeBucket(ctx context.Context, kv jetstream.KeyValue, want jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	status, err := kv.Status(ctx)
	if err != nil {
		return kv, err
	}
	c := status.Config()
	c.TTL, c.LimitMarkerTTL = want.TTL, want.LimitMarkerTTL
	return s.b.js.UpdateKeyValue(ctx, c)
}

// partitions makes the consumers of the inbox.
func (s *setup) partitions(ctx context.Context) {
	for i := range partitionsOf(s.b.inbox.CachedInfo().Config) {
		s.consumer(ctx, s.b.inbox, s.b.partitionConsumer(i))
	}
}

func (b *Bus) partitionConsumer(partition int) jetstream.ConsumerConfig {
	p := strconv.Itoa(partition)
	return jetstream.ConsumerConfig{
		Durable: "p-" + p, Description: "Rondo: partition " + p, FilterSubject: b.subject("p", p, ">"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.config.InboxWait, MaxDeliver: -1, MaxAckPending: maxHeld, MaxWaiting: 512,
	}
}

func (b *Bus) workConsumer(q bus.Queue) jetstream.ConsumerConfig {
	tag, activity := tagToken(q.Tag), events.EncodeToken(q.Activity)
	return jetstream.ConsumerConfig{
		Durable: ConsumerOf(q), Description: "Rondo: activity " + activity + ", tag " + tag, FilterSubject: b.subject("work", tag, activity, ">"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.config.WorkWait, MaxDeliver: -1, MaxAckPending: maxHeld, MaxWaiting: 2048,
	}
}

// consumer makes or checks a consumer.
func (s *setup) consumer(ctx context.Context, st jetstream.Stream, want jetstream.ConsumerConfig) {
	if s.b.config.Setup == Verify {
		c, err := st.Consumer(ctx, want.Durable)
		if err == nil && c.CachedInfo().Config.FilterSubject != want.FilterSubject {
			err = fmt.Errorf("it is for %s, wanted is %s", c.CachedInfo().Config.FilterSubject, want.FilterSubject)
		}
		if err != nil {
			s.errs = append(s.errs, fmt.Errorf("consumer %s: %w", want.Durable, err))
		}
		return
	}
	if _, err := st.CreateOrUpdateConsumer(ctx, want); err != nil {
		s.errs = append(s.errs, fmt.Errorf("consumer %s: %w", want.Durable, err))
	}
}

// Partitions implements bus.Inbox. It also removes what is left of partitions that are no longer used and have been drained.
func (b *Bus) Partitions(ctx context.Context) (bus.Partitions, error) {
	st, err := b.js.Stream(ctx, b.names.inbox)
	if err != nil {
		return bus.Partitions{}, problem("look at stream "+b.names.inbox, err)
	}
	p := bus.Partitions{Count: partitionsOf(st.CachedInfo().Config)}
	names := st.ConsumerNames(ctx)
	have := make(map[int]bool)
	for name := range names.Name() {
		if i, err := strconv.Atoi(strings.TrimPrefix(name, "p-")); err == nil && strings.HasPrefix(name, "p-") {
			have[i] = true
		}
	}
	if err := names.Err(); err != nil {
		return bus.Partitions{}, problem("list the consumers of "+b.names.inbox, err)
	}
	for i := range p.Count {
		if !have[i] && b.config.Setup == Make { // somebody has raised their number, or the broker has lost one
			if _, err := st.CreateOrUpdateConsumer(ctx, b.partitionConsumer(i)); err != nil {
				return bus.Partitions{}, problem(fmt.Sprintf("make the consumer of partition %d", i), err)
			}
		}
		delete(have, i)
	}
	for i := range have {
		if !b.dropDrained(ctx, st, i) {
			p.Draining = append(p.Draining, i)
		}
	}
	slices.Sort(p.Draining)
	return p, nil
}

// dropDrained removes the consumer of a former partition if nothing is left in it.
func (b *Bus) dropDrained(ctx context.Context, st jetstream.Stream, partition int) bool {
	if b.config.Setup != Make {
		return false
	}
	name := "p-" + strconv.Itoa(partition)
	c, err := st.Consumer(ctx, name)
	if err != nil {
		return errors.Is(err, jetstream.ErrConsumerNotFound)
	}
	if i := c.CachedInfo(); i.NumPending > 0 || i.NumAckPending > 0 {
		return false
	}
	return st.DeleteConsumer(ctx, name) == nil
}

// SetPartitions changes how many partitions the inbox has. What is stored already stays where it is, and is taken from there.
func (b *Bus) SetPartitions(ctx context.Context, n int) error {
	if n < 1 || n > maxPartitions {
		return fmt.Errorf("nats: %d partitions; want 1 to %d", n, maxPartitions)
	}
	s := setup{b: b}
	for i := range n { // first somebody who takes from them, then messages
		s.consumer(ctx, b.inbox, b.partitionConsumer(i))
	}
	if len(s.errs) == 0 {
		s.stream(ctx, b.inboxConfig(n))
	}
	return problem("change the partitions", errors.Join(s.errs...))
}

const defaultTag = "_"

func tagToken(tag string) string {
	switch tag {
	case "":
		return defaultTag
	case defaultTag:
		return "%5F"
	}
	return events.EncodeToken(tag)
}
