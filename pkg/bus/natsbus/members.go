package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/pkg/bus"
)

// Join implements bus.Members. A member says that it is alive three times within the lease; who has not been heard for a whole lease is taken for dead.
// What counts is when it was heard here, so clocks may differ.
func (b *Bus) Join(ctx context.Context, self bus.Member) (bus.Membership, error) {
	if self.ID == "" || strings.ContainsAny(self.ID, " .*>/\\\t\r\n") {
		return nil, fmt.Errorf("nats: member id %q: want a word without blanks, dots, slashes and wildcards", self.ID)
	}
	m := &membership{b: b, self: self, heard: make(map[string]heard), changed: make(chan struct{}, 1), left: make(chan struct{})}
	if err := m.say(ctx); err != nil {
		return nil, problem("join", err)
	}
	m.heard[self.ID] = heard{member: self, at: time.Now()}
	ready := make(chan struct{})
	b.wait.Go(func() { m.speak() })
	b.wait.Go(func() { m.listen(ready) })
	select {
	case <-ready:
		return m, nil
	case <-ctx.Done():
		m.stop()
		return nil, problem("join", context.Cause(ctx))
	case <-b.ctx.Done():
		return nil, problem("join", b.ctx.Err())
	}
}

type membership struct {
	b       *Bus
	self    bus.Member
	changed chan struct{}
	once    sync.Once
	left    chan struct{}

	mu    sync.Mutex
	heard map[string]heard
}

type heard struct {
	member bus.Member
	at     time.Time
}

// say tells the others that it is alive.
func (m *membership) say(ctx context.Context) error {
	data, err := json.Marshal(m.self)
	if err != nil {
		return err
	}
	_, err = m.b.members.Put(ctx, m.self.ID, data)
	return err
}

// speak says so again and again.
func (m *membership) speak() {
	every := m.b.config.MemberLease / 3
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-m.left:
			return
		case <-m.b.ctx.Done():
			return
		case <-tick.C:
			ctx, cancel := context.WithTimeout(m.b.ctx, m.b.config.MemberLease)
			if err := m.say(ctx); err != nil && m.b.ctx.Err() == nil {
				m.b.log.Warn("NATS: the others could not be told that this one is alive", "error", err)
			}
			cancel()
			m.bury()
		}
	}
}

// listen hears the others, and listens anew when that ends.
func (m *membership) listen(ready chan struct{}) {
	for {
		err := m.watch(ready)
		select {
		case <-m.left:
			return
		case <-m.b.ctx.Done():
			return
		case <-time.After(m.b.config.MemberLease / 3):
			m.b.log.Warn("NATS: listening to the other orchestrators again", "error", err)
		}
	}
}

func (m *membership) watch(ready chan struct{}) error {
	ctx, cancel := context.WithCancel(m.b.ctx)
	defer cancel()
	w, err := m.b.members.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-m.left:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return errors.New("the watch ended")
			case e == nil: // all that was there has come
				select {
				case <-ready:
				default:
					close(ready)
				}
			default:
				m.hear(e)
			}
		}
	}
}

// hear takes what one of the others said.
func (m *membership) hear(e jetstream.KeyValueEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.heard[e.Key()]
	if e.Operation() != jetstream.KeyValuePut {
		if known && e.Key() != m.self.ID {
			delete(m.heard, e.Key())
			m.change()
		}
		return
	}
	var member bus.Member
	if err := json.Unmarshal(e.Value(), &member); err != nil || member.ID != e.Key() {
		return // written by somebody else
	}
	m.heard[e.Key()] = heard{member, time.Now()}
	if !known || !same(before.member, member) {
		m.change()
	}
}

func same(a, b bus.Member) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

// bury forgets those who were not heard for too long.
func (m *membership) bury() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, h := range m.heard {
		if id != m.self.ID && time.Since(h.at) > m.b.config.MemberLease {
			delete(m.heard, id)
			m.change()
		}
	}
}

func (m *membership) change() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// Members implements bus.Membership.
func (m *membership) Members() []bus.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]bus.Member, 0, len(m.heard))
	for _, h := range m.heard {
		out = append(out, h.member)
	}
	slices.SortFunc(out, func(a, b bus.Member) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Changed implements bus.Membership.
func (m *membership) Changed() <-chan struct{} { return m.changed }

func (m *membership) stop() { m.once.Do(func() { close(m.left) }) }

// Leave implements bus.Membership.
func (m *membership) Leave(ctx context.Context) error {
	m.stop()
	return problem("leave", m.b.members.Delete(ctx, m.self.ID))
}
