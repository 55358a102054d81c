package jobpushed

import (
	"context"
	"slices"

	"github.com/rondo-run/rondo/internal/jobs"
)

// Bounded returns a store that refuses pushes of jobs with more than so many bytes, as the server
// of the queues does. Orchestrations cannot know that bound: it is a setting of the orchestrators.
// A push that the queue has taken before, with another bound, is a duplicate all the same.
func Bounded(store jobs.Store, most int) jobs.Store {
	if store == nil {
		return nil
	}
	return bounded{store, most}
}

type bounded struct {
	jobs.Store
	most int
}

// Do implements [jobs.Store].
func (b bounded) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	operations = slices.Clone(operations)
	for n, o := range operations {
		if push, ok := o.(jobs.Push); ok {
			push.MaxJob = b.most
			operations[n] = push
		}
	}
	return b.Store.Do(ctx, name, operations...)
}
