package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/semver"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

const (
	// minVersion is the first server that can publish messages later; from goodVersion on it is
	// known to do so reliably on several replicas.
	minVersion  = "2.12.0"
	goodVersion = "2.14.0"

	// dedupeWindow is how long the broker remembers ids. It only absorbs repeated publishing, three
	// times after publishWait; longer costs memory.
	dedupeWindow = 10 * time.Second
	notesFor     = 24 * time.Hour
	// markerFor is how long a bucket remembers that a key was removed.
	markerFor = time.Minute
	// settleFor is how long servers may take to agree on a change.
	settleFor = 30 * time.Second
	// answerWait is how long servers may take to answer the first time they are asked; each time
	// they get twice as long, up to maxAnswerWait.
	answerWait, maxAnswerWait = time.Second, 4 * time.Second
	askAttempts               = 5
	// maxHeld bounds what is handed out from one partition or queue and not settled.
	maxHeld = 100_000
)

// setUp makes or checks everything that is needed in the broker. Once that was done, the number of
// partitions is changed by SetPartitions only.
func (b *Bus) setUp(ctx context.Context) error {
	if b.config.Setup == Use {
		b.use(ctx)
		return nil
	}
	if err := b.checkServer(ctx); err != nil {
		return err
	}
	s := setup{b: b, replicas: b.config.Replicas}
	n, err := s.inboxPartitions(ctx)
	if err != nil {
		return err
	}
	var is there
	if is.inbox = s.stream(ctx, b.inboxConfig(n)); is.inbox != nil && s.replicas == 0 {
		s.replicas = is.inbox.CachedInfo().Config.Replicas // what has to be made is kept as often
	}
	is.later = s.stream(ctx, b.laterConfig())
	is.work = s.stream(ctx, b.workConfig())
	is.dead = s.stream(ctx, b.deadConfig())
	is.members = s.bucket(ctx, b.names.members, "which orchestrators are alive",
		max(time.Second, 2*b.config.MemberLease))
	is.sessions = s.bucket(ctx, b.names.sessions, "which worker has which session", b.config.SessionLease)
	is.notes = s.bucket(ctx, b.names.notes_, "attempts, and how far activities have got", notesFor)
	is.marks = s.bucket(ctx, b.names.marks, "what was done since the broker was made", 0)
	if is.inbox != nil {
		for i := range partitionsOf(is.inbox.CachedInfo().Config) {
			s.partition(ctx, is.inbox, i)
		}
	}
	if is.later != nil {
		s.consumer(ctx, is.later, b.dueConsumer())
	}
	if err := errors.Join(s.errs...); err != nil {
		if b.config.Setup == Verify {
			return fmt.Errorf("nats: what is there is not what is needed; run the setup with an account that may "+
				"make streams:\n%w", err)
		}
		return fmt.Errorf("nats: make what is needed:\n%w", err)
	}
	b.there.Store(&is)
	return nil
}

// checkServer tells whether the server can do what is needed.
func (b *Bus) checkServer(ctx context.Context) error {
	version := b.nc.ConnectedServerVersion()
	good, err := checkVersion(version)
	if err != nil {
		return err
	}
	if !good {
		b.log.Warn("NATS: the server works, but a newer one delays messages more reliably", "version", version,
			"wanted", goodVersion)
	}
	if most := b.nc.MaxPayload(); most < int64(b.config.MaxPayload) {
		return fmt.Errorf("nats: the server takes messages of at most %d bytes; %d are needed: set max_payload in "+
			"its configuration, or MaxPayload to less if all inputs and results are smaller",
			most, b.config.MaxPayload)
	}
	err = b.denied.during(ctx, func(ctx context.Context) error {
		_, err := b.js.AccountInfo(ctx)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return errors.New("nats: JetStream is off for this account; enable it for the account, or use another one")
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return errors.New("nats: JetStream is off on this server; start it with -js, or add `jetstream {}` to its " +
			"configuration")
	}
	return problem("ask for JetStream", err)
}

// checkVersion tells whether a server is new enough, and whether it is as new as one could wish.
func checkVersion(version string) (good bool, err error) {
	if version == "" {
		return false, nats.ErrConnectionReconnecting
	}
	if semver.Compare("v"+version, "v"+minVersion) < 0 {
		return false, fmt.Errorf("nats: server %s is too old: it has to be at least %s, better %s; upgrade nats-server",
			version, minVersion, goodVersion)
	}
	return semver.Compare("v"+version, "v"+goodVersion) >= 0, nil
}

// use looks what this connection may see.
func (b *Bus) use(ctx context.Context) {
	var is there
	see := func(what string, look func(context.Context) error) {
		if err := b.denied.during(ctx, look); err != nil {
			b.log.Debug("NATS: something cannot be seen with these rights, or is not there", "what", what, "error", err)
		}
	}
	for name, to := range map[string]*jetstream.Stream{b.names.inbox: &is.inbox, b.names.later: &is.later,
		b.names.work: &is.work, b.names.dead: &is.dead} {
		see("stream "+name, func(ctx context.Context) error {
			st, err := b.js.Stream(ctx, name)
			if err == nil {
				*to = st
			}
			return err
		})
	}
	for name, to := range map[string]*jetstream.KeyValue{b.names.members: &is.members, b.names.sessions: &is.sessions,
		b.names.notes_: &is.notes, b.names.marks: &is.marks} {
		see("bucket "+name, func(ctx context.Context) error {
			kv, err := b.js.KeyValue(ctx, name)
			if err == nil {
				*to = kv
			}
			return err
		})
	}
	b.there.Store(&is)
}

func (b *Bus) storage() jetstream.StorageType {
	if b.config.Memory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// setup makes or checks one thing after the other, and collects what went wrong.
type setup struct {
	b        *Bus
	replicas int // of what has to be made
	errs     []error
}

// failed notes what went wrong, if anything did.
func (s *setup) failed(what string, err error) bool {
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("%s: %w", what, err))
	}
	return err != nil
}

// askAgain asks the servers for something that may be asked for twice. It asks again if a server
// says that the fault is its own, as it may just be clearing up or waiting for the others, and if
// none says anything: when several ask for the same while it is being made, a cluster does not
// answer all of them.
func (b *Bus) askAgain(ctx context.Context, do func(context.Context) error) (err error) {
	for attempt := range askAttempts {
		answered, cancel := context.WithTimeout(ctx, min(answerWait<<attempt, maxAnswerWait))
		err = b.denied.during(answered, do)
		silent := errors.Is(err, nats.ErrTimeout) || answered.Err() != nil
		cancel()
		var api *jetstream.APIError
		if err == nil || ctx.Err() != nil || !silent && (!errors.As(err, &api) || api.Code < 500) {
			return err
		}
		if silent || attempt == askAttempts-1 {
			continue
		}
		select {
		case <-time.After(200 * time.Millisecond << attempt):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// The keys under which a stream says how it is partitioned, since when, and whose it is.
const (
	partitionsKey = "rondo.partitions"
	changedKey    = "rondo.changed"
	prefixKey     = "rondo.prefix"
)

// inboxPartitions is how many partitions the inbox is to have. If nobody says so, how many it has
// stands in the stream. A process that only verifies goes on with the number that it finds: any
// number works, and a process with the settings of an earlier deployment must be able to start
// beside newer ones.
func (s *setup) inboxPartitions(ctx context.Context) (int, error) {
	wanted, first := int(s.b.partitions.Load()), s.b.there.Load() == nil
	if wanted > 0 && first && s.b.config.Setup != Verify {
		return wanted, nil
	}
	there, err := s.look(ctx, s.b.names.inbox)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return cmp.Or(wanted, s.b.config.usualPartitions()), nil
	case err != nil:
		return 0, problem("look at stream "+s.b.names.inbox, err)
	}
	n := partitionsOf(there.CachedInfo().Config)
	if n == 0 {
		return cmp.Or(wanted, s.b.config.usualPartitions()), nil
	}
	if first && wanted > 0 && n != wanted {
		s.b.log.Warn("NATS: the stream has another number of partitions than the settings; continuing "+
			"with that of the stream", "stream", s.b.names.inbox, "partitions", n, "wanted", wanted)
	}
	return n, nil
}

// look finds a stream.
func (s *setup) look(ctx context.Context, name string) (st jetstream.Stream, err error) {
	err = s.b.askAgain(ctx, func(ctx context.Context) error {
		st, err = s.b.js.Stream(ctx, name)
		return err
	})
	return st, err
}

// lookFor finds a consumer.
func (b *Bus) lookFor(ctx context.Context, stream, name string) (c jetstream.Consumer, err error) {
	err = b.askAgain(ctx, func(ctx context.Context) error {
		c, err = b.js.Consumer(ctx, stream, name)
		return err
	})
	return c, err
}

// inboxConfig is the inbox as it is to be.
func (b *Bus) inboxConfig(n int) jetstream.StreamConfig {
	c := b.streamConfig(b.names.inbox, "messages for instances", b.subject("*.*.*"), b.subject(anchorWord))
	c.Retention = jetstream.WorkQueuePolicy
	c.SubjectTransform = b.partitionTransform(n)
	c.Metadata[partitionsKey] = strconv.Itoa(n)
	return c
}

// laterConfig is the stream of what waits for its time. Clients may not publish there.
func (b *Bus) laterConfig() jetstream.StreamConfig {
	return b.queueConfig(b.names.later, "what waits for its time", b.subject("later.*.*.*"),
		b.subject("later.schedule.*.*.*"), b.subject(dueVerb+".*.*.*"))
}

func (b *Bus) dueConsumer() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: dueConsumer, Description: "Rondo: what is due", FilterSubject: b.subject(dueVerb + ".>"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.config.InboxWait, MaxDeliver: -1, MaxAckPending: maxHeld,
		MaxWaiting: 512,
	}
}

func (b *Bus) workConfig() jetstream.StreamConfig {
	return b.queueConfig(b.names.work, "work for workers", b.subject("work.*.*.*.*"), b.subject("later.work.*.*.*.*"))
}

// queueConfig is a stream from which what was acknowledged is removed, and in which NATS publishes
// what is due.
func (b *Bus) queueConfig(name, description string, subjects ...string) jetstream.StreamConfig {
	c := b.streamConfig(name, description, subjects...)
	c.Retention, c.AllowMsgSchedules, c.AllowRollup = jetstream.WorkQueuePolicy, true, true
	return c
}

func (b *Bus) streamConfig(name, description string, subjects ...string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Description: "Rondo: " + description, Subjects: subjects,
		Metadata: map[string]string{prefixKey: b.names.prefix},
		Discard:  jetstream.DiscardOld, Storage: b.storage(), Replicas: b.config.Replicas, Duplicates: dedupeWindow,
		AllowDirect: true,
		MaxMsgs:     -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1, MaxMsgsPerSubject: -1,
	}
}

func (b *Bus) deadConfig() jetstream.StreamConfig {
	c := b.streamConfig(b.names.dead, "dead letters", b.subject("dead.*.*.*"), b.subject("dead.work.*.*.*.*"))
	c.MaxAge, c.Duplicates = b.config.DeadFor, 2*time.Minute
	return c
}

// bucketConfig is the stream of a bucket. What is read from it comes from its leader, so that who
// has written something reads just that.
func (b *Bus) bucketConfig(name, description string, ttl time.Duration) jetstream.StreamConfig {
	c := b.streamConfig("KV_"+name, description, "$KV."+name+".>")
	c.MaxAge, c.MaxMsgsPerSubject, c.Discard = ttl, 1, jetstream.DiscardNew
	if ttl > 0 {
		c.Duplicates = min(ttl, dedupeWindow)
	}
	c.AllowRollup, c.DenyDelete, c.AllowMsgTTL, c.SubjectDeleteMarkerTTL, c.AllowDirect = true, true, true,
		time.Second, false
	return c
}

// stream makes or checks a stream. It returns nil if there is none as it should be.
func (s *setup) stream(ctx context.Context, want jetstream.StreamConfig) jetstream.Stream {
	what := "stream " + want.Name
	st, err := s.look(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if s.b.config.Setup == Verify {
			s.failed(what, errors.New("it is missing"))
			return nil
		}
		create := want
		create.Replicas = max(1, s.replicas)
		err = s.b.askAgain(ctx, func(ctx context.Context) error {
			st, err = s.b.js.CreateStream(ctx, create)
			return err
		})
		if err == nil {
			s.b.log.Info("NATS: made a stream", "stream", want.Name, "replicas", create.Replicas)
			return st
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody was faster, with other settings
			st, err = s.look(ctx, want.Name)
		}
	}
	if s.failed(what, err) {
		return nil
	}
	return s.adjust(ctx, st, want)
}

// adjust brings a stream that is there to what is wanted, and leaves alone what is nobody's
// business here, such as placement.
func (s *setup) adjust(ctx context.Context, st jetstream.Stream, want jetstream.StreamConfig) jetstream.Stream {
	what := "stream " + want.Name
	have := st.CachedInfo().Config
	if whose := have.Metadata[prefixKey]; whose != "" && whose != s.b.names.prefix || whose == "" &&
		!slices.Equal(have.Subjects, want.Subjects) {
		s.failed(what, fmt.Errorf("it belongs to somebody else (%s): choose another prefix than %q",
			strings.Join(have.Subjects, ", "), s.b.names.prefix))
		return nil
	}
	if have.AllowMsgSchedules && !want.AllowMsgSchedules { // NATS cannot take that back
		s.failed(what, fmt.Errorf("it was made by an older version, which let clients delete what others have stored; "+
			"end all services once nothing waits in it, delete it (nats stream delete %s), and start them again",
			want.Name))
		return nil
	}
	c := have
	c.Subjects, c.SubjectTransform, c.Duplicates, c.Retention = want.Subjects, want.SubjectTransform, want.Duplicates,
		want.Retention
	c.AllowDirect, c.AllowMsgSchedules, c.AllowRollup, c.MaxAge = want.AllowDirect, want.AllowMsgSchedules,
		want.AllowRollup, want.MaxAge
	c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = want.AllowMsgTTL, want.SubjectDeleteMarkerTTL
	if want.Replicas > 0 {
		c.Replicas = want.Replicas
	}
	c.Metadata = make(map[string]string)
	for k, v := range have.Metadata {
		if !strings.HasPrefix(k, "_nats.") { // those are the server's own
			c.Metadata[k] = v
		}
	}
	maps.Copy(c.Metadata, want.Metadata)
	if have.Metadata[partitionsKey] != want.Metadata[partitionsKey] {
		c.Metadata[changedKey] = time.Now().UTC().Format(time.RFC3339)
	}
	differs := different(have, c)
	if len(differs) == 0 {
		return st
	}
	if s.b.config.Setup == Verify {
		s.failed(what, errors.New(strings.Join(differs, "; ")))
		return st
	}
	err := s.update(ctx, have, c)
	if s.failed(what+" cannot be changed ("+strings.Join(differs, "; ")+")", err) {
		return nil
	}
	s.b.log.Info("NATS: changed a stream", "stream", want.Name, "changes", strings.Join(differs, "; "))
	next, err := s.look(ctx, want.Name) // with what it is now, whoever else has changed it
	if s.failed(what, err) {
		return nil
	}
	return next
}

// update changes a stream.
//
// Each replica of a stream applies the transform when it stores a message, and learns of another
// transform at its own time. What travels just then would be in one partition here and in another
// one there, and nobody might be given it. So while the transform changes, there is one replica.
func (s *setup) update(ctx context.Context, have, want jetstream.StreamConfig) error {
	steps := []jetstream.StreamConfig{want}
	if have.Replicas > 1 && destination(have) != destination(want) {
		single, other := have, want
		single.Replicas, other.Replicas, single.Metadata = 1, 1, want.Metadata
		steps = []jetstream.StreamConfig{single, other, want}
	}
	for _, c := range steps {
		err := s.b.askAgain(ctx, func(ctx context.Context) error {
			_, err := s.b.js.UpdateStream(ctx, c)
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

// settled waits until a stream has as many replicas as it is to have.
func (s *setup) settled(ctx context.Context, c jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	for {
		st, err := s.b.js.Stream(ctx, c.Name)
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
	compare("rollups", have.AllowRollup, want.AllowRollup)
	compare("incarnation of single messages", have.AllowMsgTTL, want.AllowMsgTTL)
	compare("replicas", have.Replicas, want.Replicas)
	compare("age", have.MaxAge, want.MaxAge)
	compare("prefix", have.Metadata[prefixKey], want.Metadata[prefixKey])
	return out
}

// bucket makes or checks a bucket.
func (s *setup) bucket(ctx context.Context, name, description string, ttl time.Duration) jetstream.KeyValue {
	st := s.stream(ctx, s.b.bucketConfig(name, description, ttl))
	if st == nil {
		return nil
	}
	kv, err := s.b.js.KeyValue(ctx, name)
	s.failed("bucket "+name, err)
	return kv
}

func (b *Bus) workConsumer(q broker.Queue) jetstream.ConsumerConfig {
	tag, activity := tagToken(q.Tag), events.EncodeToken(q.Activity)
	return jetstream.ConsumerConfig{
		Durable: ConsumerOf(q), Description: "Rondo: work", FilterSubject: b.subject("work", tag, activity, ">"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.config.WorkWait, MaxDeliver: -1, MaxAckPending: maxHeld,
		MaxWaiting: 2048,
	}
}

// consumer makes or checks a consumer. It leaves alone what is as it should be: each change goes
// through the leader of the cluster.
func (s *setup) consumer(ctx context.Context, st jetstream.Stream, want jetstream.ConsumerConfig) {
	what := "consumer " + want.Durable
	c, err := s.b.lookFor(ctx, st.CachedInfo().Config.Name, want.Durable)
	missing := errors.Is(err, jetstream.ErrConsumerNotFound)
	if err != nil && !missing {
		s.failed(what, err)
		return
	}
	var differs []error
	if missing {
		differs = append(differs, errors.New("it is missing"))
	} else {
		have := c.CachedInfo().Config
		if have.FilterSubject != want.FilterSubject {
			differs = append(differs, fmt.Errorf("it is for %s, wanted is %s", have.FilterSubject, want.FilterSubject))
		}
		if have.AckWait != want.AckWait {
			differs = append(differs,
				fmt.Errorf("messages stay with who took them for %v, wanted is %v", have.AckWait, want.AckWait))
		}
		if have.MaxAckPending != want.MaxAckPending {
			differs = append(differs,
				fmt.Errorf("%d messages may be held, wanted is %d", have.MaxAckPending, want.MaxAckPending))
		}
	}
	switch {
	case len(differs) == 0:
	case s.b.config.Setup == Verify:
		for _, d := range differs {
			s.failed(what, d)
		}
	default:
		s.failed(what, s.b.askAgain(ctx, func(ctx context.Context) error {
			_, err := st.CreateOrUpdateConsumer(ctx, want)
			return err
		}))
	}
}

// gone reports whether an error says that something is not there.
func gone(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrBucketNotFound) ||
		errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrNoStreamResponse)
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
