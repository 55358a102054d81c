package brokersim

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// members implements broker.Members.
type members struct{ *link }

type membership struct {
	c       *link
	self    broker.Member
	heard   time.Time // when it last renewed its lease
	changed chan struct{}

	mu   sync.Mutex
	seen []broker.Member
}

// Join implements broker.Members.
func (c *members) Join(ctx context.Context, self broker.Member) (broker.Membership, error) {
	if self.ID == "" {
		return nil, errors.New("a member without an id")
	}
	m := &membership{c: c.link, self: self, changed: make(chan struct{}, 1)}
	err := c.insist(ctx, "join as "+self.ID, func() error {
		m.heard = m.c.b.now()
		c.b.members[self.ID] = m
		c.b.change()
		m.look()
		return nil
	})
	if err != nil {
		return nil, err
	}
	go m.live()
	return m, nil
}

// live renews the member's lease from time to time, and looks at the other members.
func (m *membership) live() {
	tick := time.NewTicker(m.c.b.lease / 4)
	defer tick.Stop()
	for {
		m.c.b.mu.Lock()
		changed := m.c.b.changed
		m.look()
		m.c.b.mu.Unlock()
		select {
		case <-m.c.ctx.Done():
			return
		case <-changed:
		case <-tick.C:
			m.c.tells("alive "+m.self.ID, func() {
				m.c.b.mu.Lock()
				m.heard = m.c.b.now()
				m.c.b.mu.Unlock()
			})
		}
	}
}

// look updates the live members. The broker's mu is held.
func (m *membership) look() {
	var all []broker.Member
	for _, id := range slices.Sorted(maps.Keys(m.c.b.members)) {
		x := m.c.b.members[id]
		if m.c.b.now().Sub(x.heard) < m.c.b.lease {
			all = append(all, x.self)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !reflect.DeepEqual(all, m.seen) {
		m.seen = all
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
}

// Members implements broker.Membership.
func (m *membership) Members() []broker.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

// Changed implements broker.Membership.
func (m *membership) Changed() <-chan struct{} { return m.changed }

// Fault implements broker.Membership.
func (m *membership) Fault() error { return nil }

// Leave implements broker.Membership.
func (m *membership) Leave(ctx context.Context) error {
	return m.c.do(ctx, "leave as "+m.self.ID, func() error {
		if m.c.b.members[m.self.ID] == m {
			delete(m.c.b.members, m.self.ID)
			m.c.b.change()
		}
		return nil
	})
}
