package natsbus

import "context"

// Repair implements bus.Marks.
func (b *Bus) Repair(ctx context.Context) error { return b.setUp(ctx) }
