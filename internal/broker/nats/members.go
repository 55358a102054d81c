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
)

// Join implements broker.Members. A member says that it is alive four times within the lease, to
// all who listen and into a bucket, where those who come later find it. Who has not been heard for
// a whole lease is taken for dead. What counts is when it was heard here, so clocks may differ. A
// member that joins again under its id, with other code for instance, takes its own place.
func (b *Bus) Join(ctx context.Context, self broker.Member) (broker.Membership, error) {
	if self.ID == "" {
		return nil, errors.New("nats: a member without an id")
	}
	said, err := json.Marshal(self)
	if err != nil {
		return nil, problem("join", err)
	}
	m := &membership{
		b: b, self: self, key: keyOf(self.ID), said: said, heard: make(map[string]heard),
		changed: make(chan struct{}, 1), left: make(chan struct{}), silent: make(chan struct{}),
	}
	sub, err := b.nc.Subscribe(b.subject(memberSays, "*"), m.hear)
	if err != nil {
		return nil, problem("join", err)
	}
	m.sub = sub
	b.mu.Lock()
	before := b.joined[self.ID]
	b.joined[self.ID] = m
	b.mu.Unlock()
	if before != nil {
		before.stop() // it speaks no more; what it hears goes on
	}
	if err := m.join(ctx); err != nil {
		m.stop()
		_ = sub.Unsubscribe() // it fails only if the connection is closed
		return nil, problem("join", err)
	}
	b.run(m.speak)
	return m, nil
}

// memberSays begins the subjects of what members say to all who listen.
const memberSays = "notice.member.says"

type membership struct {
	b       *Bus
	self    broker.Member
	key     string
	said    []byte
	sub     *nats.Subscription
	changed chan struct{}
	once    sync.Once
	left    chan struct{} // closed when it shall speak no more
	silent  chan struct{} // closed when it speaks no more

	mu    sync.Mutex
	heard map[string]heard // by key
}

type heard struct {
	member broker.Member
	at     time.Time
}

// join makes itself known, and finds the others.
func (m *membership) join(ctx context.Context) error {
	ctx, cancel := m.b.bounded(ctx)
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
		if _, known := m.heard[e.Key()]; !known && now.Sub(e.Created()) < m.b.config.MemberLease {
			m.note(e.Key(), e.Value())
		}
	}
	return nil
}

// entries are what the members have written into the bucket.
func (m *membership) entries(ctx context.Context) (entries []jetstream.KeyValueEntry, err error) {
	kv, err := m.bucket()
	if err != nil {
		return nil, err
	}
	st, err := m.b.js.Stream(ctx, "KV_"+m.b.names.members)
	if err != nil {
		return nil, err
	}
	begin := "$KV." + m.b.names.members + "."
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
	if kv := m.b.there.Load().members; kv != nil {
		return kv, nil
	}
	return nil, fmt.Errorf("bucket %s cannot be seen with these rights", m.b.names.members)
}

// say tells the others that it is alive.
func (m *membership) say(ctx context.Context) error {
	err := m.b.nc.Publish(m.b.subject(memberSays, m.key), m.said)
	kv, err2 := m.bucket()
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	_, err = kv.Put(ctx, m.key, m.said)
	if gone(err) && m.b.mend(ctx) == nil {
		_, err = kv.Put(ctx, m.key, m.said)
	}
	return err
}

// speak says so again and again.
func (m *membership) speak() {
	defer close(m.silent)
	tick := time.NewTicker(m.b.config.MemberLease / 4)
	defer tick.Stop()
	for {
		select {
		case <-m.left:
			return
		case <-m.b.ctx.Done():
			return
		case <-tick.C:
			ctx, cancel := context.WithTimeout(m.b.ctx, m.b.config.MemberLease/2)
			if err := m.say(ctx); err != nil && m.b.ctx.Err() == nil {
				m.b.log.Warn("NATS: those who come now cannot learn that this one is alive", "error", err)
			}
			cancel()
		}
	}
}

// hear takes what somebody says, itself included.
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

// note takes down that somebody is alive.
func (m *membership) note(key string, data []byte) {
	var member broker.Member
	if err := json.Unmarshal(data, &member); err != nil || keyOf(member.ID) != key {
		return // said by somebody else
	}
	now := time.Now()
	before, known := m.heard[key]
	if key == m.key && now.Sub(before.at) > m.b.config.MemberLease/2 {
		for k, h := range m.heard { // it was deaf: so the others have not been silent
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

// forget drops those who were not heard for three quarters of the lease, whenever the member hears
// itself: who does not hear itself knows nothing of the others.
func (m *membership) forget(now time.Time) {
	for key, h := range m.heard {
		if now.Sub(h.at) > m.b.config.MemberLease*3/4 {
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

func (m *membership) change() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

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
	m.b.mu.Lock()
	replaced := m.b.joined[m.self.ID] != m
	if !replaced {
		delete(m.b.joined, m.self.ID)
	}
	m.b.mu.Unlock()
	select { // what it is just saying would make it known again
	case <-m.silent:
	case <-ctx.Done():
	}
	_ = m.sub.Unsubscribe() // it fails only if the connection is closed
	if replaced {
		return nil // somebody else stands for the member now
	}
	kv, err := m.bucket()
	if err == nil {
		ctx, cancel := m.b.bounded(ctx)
		defer cancel()
		err = errors.Join(m.b.nc.Publish(m.b.subject(memberSays, m.key), nil), kv.Delete(ctx, m.key))
	}
	return problem("leave", err)
}
