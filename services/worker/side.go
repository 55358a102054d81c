package worker

import (
	"context"
	"sync"
)

// side runs goroutines besides the activities: short requests to the broker that nothing waits for.
type side struct {
	ctx context.Context // ends when the worker publishes no more

	mu      sync.Mutex
	running sync.WaitGroup
	ended   bool // no more goroutines may begin
}

// run runs a goroutine. It reports false if the worker is about to end.
func (s *side) run(do func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.running.Go(func() { do(s.ctx) })
	return true
}

// end refuses further goroutines, and waits for those that run.
func (s *side) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.running.Wait()
}
