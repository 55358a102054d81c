package brokersim

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// leases implements broker.Leases.
type leases struct{ *link }

type claim struct {
	worker string
	until  time.Time
}

// Acquire implements broker.Leases.
func (c *leases) Acquire(ctx context.Context, session, worker string) (owner string, err error) {
	err = c.do(ctx, "claim "+session, func() error {
		now := c.b.now()
		x := c.b.sessions[session]
		if x.worker == "" || x.worker == worker || !x.until.After(now) {
			x = claim{worker, now.Add(c.b.sessionLease)}
			c.b.sessions[session] = x
		}
		owner = x.worker
		return nil
	})
	return owner, err
}

// Release implements broker.Leases.
func (c *leases) Release(ctx context.Context, session, worker string) error {
	return c.do(ctx, "release "+session, func() error {
		if c.b.sessions[session].worker == worker {
			delete(c.b.sessions, session)
		}
		return nil
	})
}

// Owner implements broker.Leases.
func (c *leases) Owner(ctx context.Context, session string) (owner string, err error) {
	err = c.do(ctx, "owner of "+session, func() error {
		if x := c.b.sessions[session]; x.until.After(c.b.now()) {
			owner = x.worker
		}
		return nil
	})
	return owner, err
}

// keyValue implements broker.KV.
type keyValue struct{ *link }

// value is the value of a key.
type value struct {
	data  []byte
	until time.Time // zero: it does not expire
}

// valueOf returns a copy of the value of a key, nil if it has none.
func (b *Broker) valueOf(key string) []byte {
	if v, ok := b.values[key]; ok && (v.until.IsZero() || v.until.After(b.now())) {
		return append([]byte{}, v.data...)
	}
	return nil
}

// Get implements broker.KV.
func (c *keyValue) Get(ctx context.Context, key string) (data []byte, err error) {
	err = c.do(ctx, "get "+key, func() error {
		data = c.b.valueOf(key)
		return nil
	})
	return data, err
}

// Put implements broker.KV.
func (c *keyValue) Put(ctx context.Context, key string, data []byte, ttl time.Duration) error {
	if err := broker.CheckValue(key, data); err != nil {
		return err
	}
	return c.do(ctx, "put "+key, func() error {
		v := value{data: slices.Clone(data)}
		if ttl > 0 {
			v.until = c.b.now().Add(ttl)
		}
		c.b.values[key] = v
		return nil
	})
}

// Create implements broker.KV.
func (c *keyValue) Create(ctx context.Context, key string, data []byte) (ok bool, err error) {
	return c.putIf(ctx, "create "+key, key, data, func(there []byte) bool { return there == nil })
}

// Replace implements broker.KV.
func (c *keyValue) Replace(ctx context.Context, key string, read, data []byte) (ok bool, err error) {
	return c.putIf(ctx, "replace "+key, key, data, func(there []byte) bool {
		return there != nil && bytes.Equal(there, read)
	})
}

func (c *keyValue) putIf(ctx context.Context, what, key string, data []byte,
	may func(there []byte) bool) (ok bool, err error) {
	if err := broker.CheckValue(key, data); err != nil {
		return false, err
	}
	err = c.do(ctx, what, func() error {
		if ok = may(c.b.valueOf(key)); ok {
			c.b.values[key] = value{data: slices.Clone(data)}
		}
		return nil
	})
	return ok, err
}

// Delete implements broker.KV.
func (c *keyValue) Delete(ctx context.Context, key string) error {
	return c.do(ctx, "delete "+key, func() error { delete(c.b.values, key); return nil })
}

// Flaws implements broker.Repairer.
func (*Bus) Flaws() []broker.Flaw { return nil }

// Repair implements broker.Repairer. The simulated broker loses contents, never streams or buckets.
func (c *keyValue) Repair(ctx context.Context) error {
	return c.do(ctx, "repair", func() error { return nil })
}
