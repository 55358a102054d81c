package natsbroker

import "github.com/rondo-run/rondo/internal/broker"

var _ broker.Connection = (*Bus)(nil)

// Reconnected implements broker.Connection.
func (b *Bus) Reconnected(told func()) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reconnected == nil {
		b.reconnected = make(map[*func()]bool)
	}
	b.reconnected[&told] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.reconnected, &told)
	}
}

// tellReconnected tells those who want to know.
func (b *Bus) tellReconnected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for told := range b.reconnected {
		(*told)()
	}
}
