package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/semver"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/backoff"
	"github.com/rondo-run/rondo/pkg/events"
)

const (
	// minVersion is the first server version that can delay messages; from goodVersion on, servers
	// do so reliably on several replicas.
	minVersion  = "2.12.0"
	goodVersion = "2.14.0"

	// dedupeWindow is how long the broker remembers ids. It only absorbs repeated publishing, three
	// times after publishWait; longer costs memory.
	dedupeWindow = 10 * time.Second
	// markerFor is how long a bucket remembers a removed key: the minimum of NATS, because the
	// marker counts for the bound of the bucket.
	markerFor = time.Second
	// settleFor is how long servers may take to agree on a change.
	settleFor = 30 * time.Second
	// askAttempts is how often a request to the servers is sent.
	askAttempts = 5
	// maxHeld is the maximum number of unsettled deliveries of a partition or a task queue.
	maxHeld = 100_000
)

// answerPauses are the delays between the attempts of a request to the servers.
var answerPauses = backoff.Backoff{First: 200 * time.Millisecond, Most: 4 * time.Second}

// setUp creates or verifies all streams, consumers and buckets. After the first call, only
// SetPartitions changes the number of partitions.
func (r *resources) setUp(ctx context.Context) error {
	if r.plan.config.Setup == Use {
		r.use(ctx)
		return nil
	}
	if err := r.checkServer(ctx); err != nil {
		return err
	}
	s := setup{r: r, replicas: r.plan.config.Replicas, repairs: r.there.Load() != nil}
	n, err := s.inboxPartitions(ctx)
	if err != nil {
		return err
	}
	var is there
	if is.inbox = s.stream(ctx, r.plan.inboxConfig(n)); is.inbox != nil && s.replicas == 0 {
		s.replicas = is.inbox.CachedInfo().Config.Replicas // the other streams get as many replicas
	}
	if errors.Is(errors.Join(s.errs...), ErrOneServer) { // the other streams would fail, too
		return fmt.Errorf("nats: %d replicas: %w", r.plan.config.Replicas, ErrOneServer)
	}
	for _, step := range []func(){
		func() { is.later = s.stream(ctx, r.plan.laterConfig()) },
		func() { is.work = s.stream(ctx, r.plan.tasksConfig()) },
		func() { is.dead = s.stream(ctx, r.plan.deadConfig()) },
		func() { is.members = s.bucket(ctx, r.names.members, r.plan.membersConfig()) },
		func() { is.sessions = s.bucket(ctx, r.names.sessions, r.plan.sessionsConfig()) },
		func() { is.kv = s.stream(ctx, r.plan.kvConfig()) },
		func() { is.progress = s.stream(ctx, r.plan.progressConfig()) },
		func() { s.bound(ctx, &is) },
		func() { s.consumers(ctx, &is) },
	} {
		if !s.ends() {
			step()
		}
	}
	if err := errors.Join(s.errs...); err != nil {
		if s.ends() {
			return fmt.Errorf("nats: look for what is needed:\n%w", err)
		}
		if r.plan.config.Setup == Verify {
			return fmt.Errorf("nats: what is there is not what is needed: it is of another version of Rondo, or of "+
				"other settings; run the setup of this version with an account that may make streams:\n%w", err)
		}
		return fmt.Errorf("nats: make what is needed:\n%w", err)
	}
	r.there.Store(&is)
	return nil
}

// checkServer returns an error if the server lacks a feature that Rondo needs.
func (r *resources) checkServer(ctx context.Context) error {
	version := r.nc.ConnectedServerVersion()
	good, err := checkVersion(version)
	if err != nil {
		return err
	}
	if !good {
		r.log.Warn("NATS: the server works, but a newer one delays messages more reliably", "version", version,
			"wanted", goodVersion)
	}
	if most := r.nc.MaxPayload(); most < int64(r.plan.config.MaxPayload) {
		return fmt.Errorf("nats: the server takes messages of at most %d bytes; %d are needed: set max_payload in "+
			"its configuration, or MaxPayload to less if all inputs and results are smaller",
			most, r.plan.config.MaxPayload)
	}
	err = r.denied.during(ctx, func(ctx context.Context) error {
		_, err := r.js.AccountInfo(ctx)
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

// checkVersion returns an error if a server is too old, and reports whether it is a recommended
// one.
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

// SeesStreams returns [broker.ErrNoStream] if this user saw none of the streams when it connected:
// there are none with its prefix, or it may look at none.
func (r *resources) SeesStreams() error {
	if t := r.there.Load(); t.inbox == nil && t.later == nil && t.work == nil && t.dead == nil {
		return problem("look at stream "+r.names.inbox, broker.ErrNoStream)
	}
	return nil
}

// use finds the streams and buckets that this connection may see.
func (r *resources) use(ctx context.Context) {
	var is there
	see := func(what string, look func(context.Context) error) {
		if err := r.denied.during(ctx, look); err != nil {
			r.log.Debug("NATS: something cannot be seen with these rights, or is not there", "what", what, "error", err)
		}
	}
	for name, to := range map[string]*jetstream.Stream{r.names.inbox: &is.inbox, r.names.later: &is.later,
		r.names.work: &is.work, r.names.dead: &is.dead, "KV_" + r.names.kv: &is.kv,
		"KV_" + r.names.progress: &is.progress} {
		see("stream "+name, func(ctx context.Context) error {
			st, err := r.js.Stream(ctx, name)
			if err == nil {
				*to = st
			}
			return err
		})
	}
	for name, to := range map[string]*jetstream.KeyValue{r.names.members: &is.members, r.names.sessions: &is.sessions} {
		see("bucket "+name, func(ctx context.Context) error {
			kv, err := r.js.KeyValue(ctx, name)
			if err == nil {
				*to = kv
			}
			return err
		})
	}
	r.there.Store(&is)
}

// plan is the wanted configuration of streams, consumers and buckets.
type plan struct {
	*names
	config Config
}

func (p *plan) storage() jetstream.StorageType {
	if p.config.Memory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// setup creates or verifies one thing after the other, and collects the errors.
type setup struct {
	r        *resources
	replicas int // of new streams
	errs     []error
	silent   bool // NATS did not answer a request, although it was sent several times
	repairs  bool // it has been whole before
}

// ends reports whether it is no use to look for the rest. NATS may leave each request unanswered
// for as long, and a process that starts tries again and logs why. A repair goes on: a stream
// without a leader may come before a missing one.
func (s *setup) ends() bool { return s.silent && !s.repairs }

// failed collects an error, and reports whether there is one.
func (s *setup) failed(what string, err error) bool {
	if errors.Is(err, nats.ErrNoResponders) {
		err = fmt.Errorf("%w: the account of this user does not import the request, or JetStream is off", err)
	}
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		s.silent = true
		err = fmt.Errorf("NATS does not answer; the stream or consumer may have no leader: %w", err)
	}
	if isOneServer(err) {
		err = ErrOneServer
	}
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("%s: %w", what, err))
	}
	return err != nil
}

// ErrOneServer means that streams must have replicas, and that NATS has one server. More time does
// not help.
var ErrOneServer = errors.New("this NATS server is in no cluster, so its streams have no replicas; connect to a " +
	"cluster, or set --replicas 1")

// isOneServer reports whether a server refuses replicas, because it is in no cluster.
func isOneServer(err error) bool {
	const replicasNotSupported = 10074 // as in the source of the server
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == replicasNotSupported
}

// The metadata keys of a stream: the number of partitions, the largest number so far, when the
// number changed, the replicas that the stream has again after the change, the prefix of the
// system, and the fingerprint of what setup made, which consumers have, too.
const (
	partitionsKey = "rondo.partitions"
	mostKey       = "rondo.most-partitions"
	replicasKey   = "rondo.replicas"
	madeKey       = "rondo.made"
	changedKey    = "rondo.changed"
	prefixKey     = "rondo.prefix"
)

// inboxPartitions returns the number of partitions that the inbox must have. If none is configured,
// it is the number of the stream. A process that only verifies continues with the number of the
// stream: any number works, and a process with the settings of an earlier deployment must be able
// to start beside newer ones.
func (s *setup) inboxPartitions(ctx context.Context) (int, error) {
	wanted, first := int(s.r.partitions.Load()), s.r.there.Load() == nil
	if wanted > 0 && first && s.r.plan.config.Setup != Verify {
		return wanted, nil
	}
	there, err := s.r.streamCalled(ctx, s.r.names.inbox)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return cmp.Or(wanted, s.r.plan.config.usualPartitions()), nil
	case err != nil:
		return 0, problem("look at stream "+s.r.names.inbox, err)
	}
	n := partitionsOf(there.CachedInfo().Config)
	if n == 0 {
		return cmp.Or(wanted, s.r.plan.config.usualPartitions()), nil
	}
	if first && wanted > 0 && n != wanted {
		s.r.log.Warn("NATS: the stream has another number of partitions than the settings; continuing "+
			"with that of the stream", "stream", s.r.names.inbox, "partitions", n, "wanted", wanted)
	}
	return n, nil
}

// inboxConfig is the wanted configuration of the inbox.
func (p *plan) inboxConfig(n int) jetstream.StreamConfig {
	c := p.streamConfig(p.inbox, "messages for instances", p.subject("*.*.*"), p.subject(anchorWord))
	c.Retention = jetstream.WorkQueuePolicy
	c.Discard = jetstream.DiscardNew
	c.SubjectTransform = p.partitionTransform(n)
	c.Metadata[partitionsKey] = strconv.Itoa(n)
	return c
}

// laterConfig is that of the stream of delayed messages. Clients may not publish there.
func (p *plan) laterConfig() jetstream.StreamConfig {
	return p.queueConfig(p.later, "what waits for its time", p.subject("later.*.*.*"),
		p.subject(dueVerb+".*.*.*"))
}

func (p *plan) dueConsumer() jetstream.ConsumerConfig {
	return marked(jetstream.ConsumerConfig{
		Durable: dueConsumer, Description: "Rondo: what is due", FilterSubject: p.subject(dueVerb + ".>"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: p.config.InboxAckWait, MaxDeliver: -1, MaxAckPending: maxHeld,
		MaxWaiting: 512,
	})
}

func (p *plan) tasksConfig() jetstream.StreamConfig {
	return p.queueConfig(p.work, "activity tasks", p.subject("task.*.*.*.*"), p.subject("later.task.*.*.*.*"))
}

// queueConfig is that of a stream with WorkQueue retention in which NATS publishes due messages.
func (p *plan) queueConfig(name, description string, subjects ...string) jetstream.StreamConfig {
	c := p.streamConfig(name, description, subjects...)
	c.Retention, c.AllowMsgSchedules, c.AllowRollup = jetstream.WorkQueuePolicy, true, true
	return c
}

func (p *plan) streamConfig(name, description string, subjects ...string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Description: "Rondo: " + description, Subjects: subjects,
		Metadata: map[string]string{prefixKey: p.prefix},
		Discard:  jetstream.DiscardOld, Storage: p.storage(), Replicas: p.config.Replicas, Duplicates: dedupeWindow,
		AllowDirect: true,
		MaxMsgs:     -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1, MaxMsgsPerSubject: -1,
	}
}

func (p *plan) deadConfig() jetstream.StreamConfig {
	c := p.streamConfig(p.dead, "dead letters", p.subject("dead.*.*.*"), p.subject("dead.task.*.*.*.*"))
	c.MaxAge, c.Duplicates = p.config.DeadLetterTTL, 2*time.Minute
	return c
}

// bucketConfig is that of the stream of a bucket. The leader of the stream answers all reads, so
// that a process reads its own writes.
func (p *plan) bucketConfig(name, description string, ttl time.Duration) jetstream.StreamConfig {
	c := p.streamConfig("KV_"+name, description, "$KV."+name+".>")
	c.MaxAge, c.MaxMsgsPerSubject, c.Discard = ttl, 1, jetstream.DiscardNew
	if ttl > 0 {
		c.Duplicates = min(ttl, dedupeWindow)
	}
	c.AllowRollup, c.DenyDelete, c.AllowMsgTTL, c.SubjectDeleteMarkerTTL, c.AllowDirect = true, true, true,
		time.Second, false
	return c
}

func (p *plan) membersConfig() jetstream.StreamConfig {
	return p.bucketConfig(p.members, "which orchestrators are alive", max(time.Second, 2*p.config.MemberLease))
}

// sessionsConfig is that of the stream of the bucket of sessions. Workers write it: see bounds.go.
// It takes no TTLs, so that each lease expires, and no rollups, so that a message of one session
// cannot remove the others. Beyond its bound, it refuses sessions: the oldest lease is in use.
func (p *plan) sessionsConfig() jetstream.StreamConfig {
	c := p.bucketConfig(p.sessions, "which worker has which session", p.config.SessionLease)
	c.AllowRollup, c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = false, false, 0
	c.MaxMsgs, c.MaxMsgSize = maxSessions, maxSessionSize
	return c
}

// kvConfig is that of the stream of the bucket of small values. It has no maximum age, because a
// server that starts removes all older messages, also those that never expire; each message has a
// TTL or none. It takes no rollups, so that an acknowledgement or a value under one key cannot
// remove the others. Only orchestrators write it.
func (p *plan) kvConfig() jetstream.StreamConfig {
	c := p.bucketConfig(p.kv, "flags, and counts of attempts", 0)
	c.AllowRollup, c.SubjectDeleteMarkerTTL = false, 0
	return c
}

// progressConfig is that of the stream of the bucket of the progress of activities. Workers write
// it: see bounds.go. Beyond its bound, it drops the oldest progress.
func (p *plan) progressConfig() jetstream.StreamConfig {
	c := p.bucketConfig(p.progress, "the progress of activities", broker.KeyTTL)
	c.AllowRollup, c.SubjectDeleteMarkerTTL = false, 0
	c.Discard, c.MaxMsgs, c.MaxMsgSize = jetstream.DiscardOld, maxProgress, maxProgressSize
	return c
}

// stream creates or verifies a stream. It returns nil if there is none as wanted.
func (s *setup) stream(ctx context.Context, want jetstream.StreamConfig) jetstream.Stream {
	what := "stream " + want.Name
	want.Metadata[madeKey] = fingerprint(want)
	st, err := s.r.streamCalled(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if s.r.plan.config.Setup == Verify {
			s.failed(what, errors.New(isMissing))
			return nil
		}
		create := want
		create.Replicas = max(1, s.replicas)
		err = s.r.askAgain(ctx, func(ctx context.Context) error {
			st, err = s.r.js.CreateStream(ctx, create)
			return err
		})
		if err == nil {
			s.r.log.Info("NATS: made a stream", "stream", want.Name, "replicas", create.Replicas)
			return st
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster, with other settings
			st, err = s.r.streamCalled(ctx, want.Name)
		}
	}
	if s.failed(what, err) {
		return nil
	}
	return s.adjust(ctx, st, want)
}

// adjust changes a stream to the wanted configuration. It keeps settings that Rondo does not care
// about, such as placement.
func (s *setup) adjust(ctx context.Context, st jetstream.Stream, want jetstream.StreamConfig) jetstream.Stream {
	what := "stream " + want.Name
	have := st.CachedInfo().Config
	if whose := have.Metadata[prefixKey]; whose != "" && whose != s.r.names.prefix || whose == "" &&
		!slices.Equal(have.Subjects, want.Subjects) {
		s.failed(what, fmt.Errorf("it belongs to somebody else (%s): choose another prefix than %q",
			strings.Join(have.Subjects, ", "), s.r.names.prefix))
		return nil
	}
	if have.AllowMsgSchedules && !want.AllowMsgSchedules { // NATS cannot disable them again
		s.failed(what, fmt.Errorf("it was made by an older version, which let clients delete what others have stored; "+
			"end all services once nothing waits in it, delete it (nats stream delete %s), and start them again",
			want.Name))
		return nil
	}
	if have.AllowMsgTTL && !want.AllowMsgTTL { // NATS cannot disable them again
		s.failed(what, fmt.Errorf("a message may have a TTL of its own in it, so a worker can fill it for good; end "+
			"all workers, delete it (nats stream delete %s), and start them again", want.Name))
		return nil
	}
	c := merged(have, want)
	if have.Metadata[partitionsKey] != want.Metadata[partitionsKey] {
		changing(c.Metadata, max(most(have), partitionsOf(want)))
	}
	verify := s.r.plan.config.Setup == Verify
	if n := replicasBefore(have); n > 0 && want.Replicas == 0 && !verify {
		c.Replicas = n
	}
	differs := different(have, c)
	if len(differs) == 0 && (verify || maps.Equal(userMetadata(have.Metadata), c.Metadata)) {
		return st
	}
	if verify {
		s.failed(what, errors.New(strings.Join(differs, "; ")))
		return st
	}
	if n := partitionsOf(want); n > partitionsOf(have) && !s.prepare(ctx, st, n) {
		return nil
	}
	err := s.update(ctx, have, c)
	if s.failed(what+" cannot be changed ("+strings.Join(differs, "; ")+")", err) {
		return nil
	}
	if len(differs) > 0 {
		s.r.log.Info("NATS: changed a stream", "stream", want.Name, "changes", strings.Join(differs, "; "))
	}
	// Its present configuration: another process may have changed it.
	next, err := s.r.streamCalled(ctx, want.Name)
	if s.failed(what, err) {
		return nil
	}
	return next
}

// merged is the configuration of a stream with the settings that Rondo cares about.
func merged(have, want jetstream.StreamConfig) jetstream.StreamConfig {
	c := have
	c.Subjects, c.SubjectTransform, c.Duplicates, c.Retention = want.Subjects, want.SubjectTransform, want.Duplicates,
		want.Retention
	c.AllowDirect, c.AllowMsgSchedules, c.AllowRollup, c.MaxAge = want.AllowDirect, want.AllowMsgSchedules,
		want.AllowRollup, want.MaxAge
	c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = want.AllowMsgTTL, want.SubjectDeleteMarkerTTL
	c.MaxMsgs, c.MaxMsgsPerSubject, c.MaxMsgSize, c.NoAck = want.MaxMsgs, want.MaxMsgsPerSubject, want.MaxMsgSize,
		want.NoAck
	c.Discard, c.DiscardNewPerSubject = want.Discard, want.DiscardNewPerSubject
	if !mayBeBounded(want) {
		c.MaxBytes = want.MaxBytes
	}
	if want.Replicas > 0 {
		c.Replicas = want.Replicas
	}
	c.Metadata = userMetadata(have.Metadata)
	delete(c.Metadata, replicasKey)
	maps.Copy(c.Metadata, want.Metadata)
	return c
}

// mayBeBounded reports whether a stream may have a bound: a stream that loses nothing that it needs
// by it. See bounds.go.
func mayBeBounded(c jetstream.StreamConfig) bool {
	isInbox := c.Retention == jetstream.WorkQueuePolicy && c.Discard == jetstream.DiscardNew
	isDead := c.Retention == jetstream.LimitsPolicy && c.Discard == jetstream.DiscardOld && c.MaxMsgsPerSubject < 0
	return isInbox || isDead
}

// madeVersion begins fingerprints. A version of Rondo that compares other settings has another one.
const madeVersion = "1"

// fingerprint is a hash of all settings that Rondo cares about, but for the bound and the replicas,
// which operators may change. Setup stores it in the metadata of what it makes.
func fingerprint(c jetstream.StreamConfig) string {
	h := fnv.New64a()
	c.Replicas = 0
	h.Write([]byte(fmt.Sprint(different(jetstream.StreamConfig{}, c))))
	return madeVersion + "-" + strconv.FormatUint(h.Sum64(), 16)
}

// userMetadata copies metadata without that of the server.
func userMetadata(have map[string]string) map[string]string {
	out := make(map[string]string)
	for k, v := range have {
		if !strings.HasPrefix(k, "_nats.") {
			out[k] = v
		}
	}
	return out
}

// different lists the differences between a stream and the wanted one.
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
	compare("discard policy", have.Discard, want.Discard)
	compare("retention", have.Retention, want.Retention)
	compare("window for duplicates", have.Duplicates, want.Duplicates)
	compare("direct reading", have.AllowDirect, want.AllowDirect)
	compare("message schedules", have.AllowMsgSchedules, want.AllowMsgSchedules)
	compare("rollups", have.AllowRollup, want.AllowRollup)
	compare("TTL of single messages", have.AllowMsgTTL, want.AllowMsgTTL)
	compare("replicas", have.Replicas, want.Replicas)
	compare("age", have.MaxAge, want.MaxAge)
	compare("maximum number of messages", have.MaxMsgs, want.MaxMsgs)
	compare("messages for each subject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject)
	compare("size of messages", have.MaxMsgSize, want.MaxMsgSize)
	compare("discarding by subject", have.DiscardNewPerSubject, want.DiscardNewPerSubject)
	compare("storing without acknowledgements", have.NoAck, want.NoAck)
	compare("TTL of markers", have.SubjectDeleteMarkerTTL, want.SubjectDeleteMarkerTTL)
	if !mayBeBounded(want) {
		compare("bound in bytes", have.MaxBytes, want.MaxBytes)
	}
	compare("prefix", have.Metadata[prefixKey], want.Metadata[prefixKey])
	return out
}

// bucket creates or verifies a bucket.
func (s *setup) bucket(ctx context.Context, name string, want jetstream.StreamConfig) jetstream.KeyValue {
	if st := s.stream(ctx, want); st == nil {
		return nil
	}
	kv, err := s.r.js.KeyValue(ctx, name)
	s.failed("bucket "+name, err)
	return kv
}

func (p *plan) taskConsumer(q broker.TaskQueueName) jetstream.ConsumerConfig {
	tag, activity := tagToken(q.Tag), events.EncodeToken(q.Activity)
	return marked(jetstream.ConsumerConfig{
		Durable: ConsumerOf(q), Description: "Rondo: tasks", FilterSubject: p.subject("task", tag, activity, ">"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: p.config.TaskAckWait, MaxDeliver: -1, MaxAckPending: maxHeld,
		MaxWaiting: 2048,
	})
}

// consumers creates or verifies the consumers of the partitions and of due messages.
func (s *setup) consumers(ctx context.Context, is *there) {
	if is.inbox != nil {
		for i := range partitionsOf(is.inbox.CachedInfo().Config) {
			if s.ends() {
				return
			}
			s.partition(ctx, is.inbox, i)
		}
	}
	if is.later != nil && !s.ends() {
		s.consumer(ctx, is.later, s.r.plan.dueConsumer())
	}
}

// consumer creates or verifies a consumer. It does not touch a consumer that is as wanted, because
// each change goes through the leader of the cluster.
func (s *setup) consumer(ctx context.Context, st jetstream.Stream, want jetstream.ConsumerConfig) {
	what := "consumer " + want.Durable
	c, err := s.r.lookFor(ctx, st.CachedInfo().Config.Name, want.Durable)
	missing := errors.Is(err, jetstream.ErrConsumerNotFound)
	if err != nil && !missing {
		s.failed(what, err)
		return
	}
	var differs []string
	made := false
	if missing {
		differs = append(differs, isMissing)
	} else {
		have := c.CachedInfo().Config
		differs, made = differentConsumer(have, want), have.Metadata[madeKey] == want.Metadata[madeKey]
		want.PauseUntil = have.PauseUntil
	}
	verify := s.r.plan.config.Setup == Verify
	switch {
	case len(differs) == 0 && (made || verify):
	case verify:
		for _, d := range differs {
			s.failed(what, errors.New(d))
		}
	default:
		s.failed(what, s.r.askAgain(ctx, func(ctx context.Context) error {
			_, err := st.CreateOrUpdateConsumer(ctx, want)
			return err
		}))
	}
}

// differentConsumer lists the differences between a consumer and the wanted one.
func differentConsumer(have, want jetstream.ConsumerConfig) (out []string) {
	if filters := append(have.FilterSubjects[:len(have.FilterSubjects):len(have.FilterSubjects)],
		have.FilterSubject); !slices.Contains(filters, want.FilterSubject) || len(have.FilterSubjects) > 1 {
		out = append(out, fmt.Sprintf("it is for %s, wanted is %s",
			strings.TrimLeft(strings.Join(filters, ", "), ", "), want.FilterSubject))
	}
	if have.AckWait != want.AckWait {
		out = append(out,
			fmt.Sprintf("ack_wait is %v, wanted is %v", have.AckWait, want.AckWait))
	}
	if have.MaxAckPending != want.MaxAckPending {
		out = append(out, fmt.Sprintf("max_ack_pending is %d, wanted is %d", have.MaxAckPending, want.MaxAckPending))
	}
	if have.MaxDeliver > 0 {
		out = append(out, fmt.Sprintf("max_deliver is %d, wanted is no limit", have.MaxDeliver))
	}
	if have.AckPolicy != want.AckPolicy {
		out = append(out, fmt.Sprintf("acknowledgements are %v, wanted is %v", have.AckPolicy, want.AckPolicy))
	}
	if have.MaxWaiting != want.MaxWaiting {
		out = append(out, fmt.Sprintf("max_waiting is %d, wanted is %d", have.MaxWaiting, want.MaxWaiting))
	}
	if have.HeadersOnly || have.RateLimit > 0 || have.MaxRequestBatch > 0 || have.MaxRequestExpires > 0 ||
		have.MaxRequestMaxBytes > 0 || have.InactiveThreshold > 0 || len(have.BackOff) > 0 {
		out = append(out, "it has limits (headers only, rate, requests, inactivity or backoff), wanted are none")
	}
	return out
}

// marked adds the fingerprint of a wanted consumer to it.
func marked(c jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	c.Metadata = map[string]string{madeKey: consumerFingerprint(c)}
	return c
}

// consumerFingerprint is as [fingerprint].
func consumerFingerprint(c jetstream.ConsumerConfig) string {
	h := fnv.New64a()
	h.Write([]byte(fmt.Sprint(differentConsumer(jetstream.ConsumerConfig{}, c), c.FilterSubjects, c.HeadersOnly,
		c.RateLimit, c.MaxRequestBatch, c.MaxRequestExpires, c.MaxRequestMaxBytes, c.InactiveThreshold, c.BackOff,
		max(0, c.MaxDeliver))))
	return madeVersion + "-" + strconv.FormatUint(h.Sum64(), 16)
}

// gone reports whether an error says that a stream, a consumer or a bucket is missing.
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
