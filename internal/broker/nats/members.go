package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/signal"
)

// members are the memberships of this process.
type members struct {
	*resources
	lease time.Duration // of a member

	mu     sync.Mutex
	joined map[string]*membership // by the id of the member
}

func newMembers(r *resources) *members {
	return &members{resources: r, lease: r.plan.config.MemberLease, joined: make(map[string]*membership)}
}

// Join implements broker.Members. Four times within the lease, a member publishes that it is alive:
// to all subscribers, and into a bucket for members that join later. Others count it as dead within
// one lease after its last message. They compare the times at which they received messages, so that
// clocks may differ. A member that joins again under its id, with other code for instance, replaces
// itself.
func (ms *members) Join(ctx context.Context, self broker.Member) (broker.Membership, error) {
	if self.ID == "" {
		return nil, errors.New("nats: a member without an id")
	}
	said, err := json.Marshal(self)
	if err != nil {
		return nil, problem("join", err)
	}
	m := &membership{
		members: ms, self: self, key: keyOf(self.ID), said: said, heard: make(map[string]heard),
		changed: signal.New(), left: make(chan struct{}), silent: make(chan struct{}),
	}
	sub, err := ms.nc.Subscribe(ms.subject(memberSays, "*"), m.hear)
	if err != nil {
		return nil, problem("join", err)
	}
	m.sub = sub
	ms.mu.Lock()
	before := ms.joined[self.ID]
	ms.joined[self.ID] = m
	ms.mu.Unlock()
	if before != nil {
		before.stop() // it publishes no more, but still hears the others
	}
	join, bucket := m.join, "KV_"+ms.names.members
	for _, subject := range []string{"$KV." + ms.names.members + "." + m.key, ms.api + "STREAM.INFO." + bucket,
		ms.api + "STREAM.MSG.GET." + bucket} {
		inner := join
		join = func(ctx context.Context) error { return ms.denied.requesting(ctx, subject, inner) }
	}
	if err := join(ctx); err != nil {
		m.stop()
		_ = sub.Unsubscribe() // it fails only if the connection is closed
		return nil, problem("join", err)
	}
	ms.run(m.speak)
	return m, nil
}

// memberSays begins the subjects on which members publish that they are alive.
const memberSays = "notification.member.says"

type membership struct {
	members *members
	self    broker.Member
	key     string
	said    []byte
	sub     *nats.Subscription
	changed signal.Signal
	once    sync.Once
	left    chan struct{} // closed when it must publish no more
	silent  chan struct{} // closed when it publishes no more

	mu     sync.Mutex
	heard  map[string]heard // by key
	stored time.Time        // when the bucket has stored the last message
	fault  error            // since then
}

type heard struct {
	member broker.Member
	at     time.Time
}

// join publishes that the member is alive, and finds the others.
func (m *membership) join(ctx context.Context) error {
	ctx, cancel := m.members.bounded(ctx)
	defer cancel()
	m.mu.Lock()
	m.heard[m.key] = heard{m.self, time.Now()}
	m.mu.Unlock()
	if err := m.say(ctx); err != nil {
		return err
	}
	entries, err := m.entries(ctx)
	if err != nil {
		return err
	}
	var now time.Time // by the broker's clock
	for _, e := range entries {
		if e.Key() == m.key {
			now = e.Created()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		if _, known := m.heard[e.Key()]; !known && now.Sub(e.Created()) < m.members.lease {
			m.note(e.Key(), e.Value())
		}
	}
	return nil
}

// entries returns the entries of the members in the bucket.
func (m *membership) entries(ctx context.Context) (entries []jetstream.KeyValueEntry, err error) {
	kv, err := m.bucket()
	if err != nil {
		return nil, err
	}
	st, err := m.members.js.Stream(ctx, "KV_"+m.members.names.members)
	if err != nil {
		return nil, err
	}
	begin := "$KV." + m.members.names.members + "."
	info, err := st.Info(ctx, jetstream.WithSubjectFilter(begin+">"))
	if err != nil {
		return nil, err
	}
	for subject := range info.State.Subjects {
		e, err := kv.Get(ctx, strings.TrimPrefix(subject, begin))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (m *membership) bucket() (jetstream.KeyValue, error) {
	if kv := m.members.there.Load().members; kv != nil {
		return kv, nil
	}
	return nil, fmt.Errorf("bucket %s cannot be seen with these rights", m.members.names.members)
}

// say publishes that the member is alive.
func (m *membership) say(ctx context.Context) error {
	err := m.publish(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault = err; err == nil {
		m.stored = time.Now()
	}
	return err
}

// Fault implements broker.Membership.
func (m *membership) Fault() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault == nil || time.Since(m.stored) < m.members.lease {
		return nil
	}
	return fmt.Errorf("NATS does not store in bucket %s since %s (if its disk was full, restart nats-server): %w",
		m.members.names.members, m.stored.UTC().Format(time.RFC3339), m.fault)
}

func (m *membership) publish(ctx context.Context) error {
	err := m.members.nc.Publish(m.members.subject(memberSays, m.key), m.said)
	kv, err2 := m.bucket()
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	_, err = kv.Put(ctx, m.key, m.said)
	if gone(err) && m.members.mend(ctx) == nil {
		_, err = kv.Put(ctx, m.key, m.said)
	}
	return err
}

// speak calls say until the member leaves.
func (m *membership) speak() {
	defer close(m.silent)
	tick := time.NewTicker(m.members.lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-m.left:
			return
		case <-m.members.ctx.Done():
			return
		case <-tick.C:
			ctx, cancel := context.WithTimeout(m.members.ctx, m.members.lease/2)
			if err := m.say(ctx); err != nil && m.members.ctx.Err() == nil {
				m.members.log.Warn("NATS: membership could not be renewed; new members do not see this one",
					"error", err)
			}
			cancel()
		}
	}
}

// hear handles a message of a member, this one included.
func (m *membership) hear(said *nats.Msg) {
	key := lastWord(said.Subject)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(said.Data) > 0 {
		m.note(key, said.Data)
		return
	}
	if _, known := m.heard[key]; known && key != m.key {
		delete(m.heard, key)
		m.change()
	}
}

// note records that a member is alive.
func (m *membership) note(key string, data []byte) {
	var member broker.Member
	if err := json.Unmarshal(data, &member); err != nil || keyOf(member.ID) != key {
		return // not a message of that member
	}
	now := time.Now()
	before, known := m.heard[key]
	if key == m.key && now.Sub(before.at) > m.members.lease/2 {
		for k, h := range m.heard { // it has received nothing, so that the others were not silent
			m.heard[k] = heard{h.member, now}
		}
	}
	m.heard[key] = heard{member, now}
	if !known || !same(before.member, member) {
		m.change()
	}
	if key == m.key {
		m.forget(now)
	}
}

// forget drops members that were not heard for three quarters of the lease. It is called whenever
// the member hears itself: a member that does not hear itself knows nothing of the others.
func (m *membership) forget(now time.Time) {
	for key, h := range m.heard {
		if now.Sub(h.at) > m.members.lease*3/4 {
			delete(m.heard, key)
			m.change()
		}
	}
}

func same(a, b broker.Member) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

func (m *membership) change() { m.changed.Set() }

// Members implements broker.Membership.
func (m *membership) Members() []broker.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]broker.Member, 0, len(m.heard))
	for _, h := range m.heard {
		out = append(out, h.member)
	}
	slices.SortFunc(out, func(a, b broker.Member) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Changed implements broker.Membership.
func (m *membership) Changed() <-chan struct{} { return m.changed }

func (m *membership) stop() { m.once.Do(func() { close(m.left) }) }

// Leave implements broker.Membership.
func (m *membership) Leave(ctx context.Context) error {
	m.stop()
	m.members.mu.Lock()
	replaced := m.members.joined[m.self.ID] != m
	if !replaced {
		delete(m.members.joined, m.self.ID)
	}
	m.members.mu.Unlock()
	select { // a running say would add the member again
	case <-m.silent:
	case <-ctx.Done():
	}
	_ = m.sub.Unsubscribe() // it fails only if the connection is closed
	if replaced {
		return nil // another membership has replaced this one
	}
	kv, err := m.bucket()
	if err == nil {
		ctx, cancel := m.members.bounded(ctx)
		defer cancel()
		err = errors.Join(m.members.nc.Publish(m.members.subject(memberSays, m.key), nil), kv.Delete(ctx, m.key))
	}
	return problem("leave", err)
}
