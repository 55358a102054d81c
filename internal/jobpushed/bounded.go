package jobpushed

import (
	"context"
	"fmt"

	"github.com/rondo-run/rondo/internal/jobs"
)

// Bounded returns a store that refuses pushes of jobs with more than so many bytes, as the server
// of the queues does. Orchestrations cannot know that bound: it is a setting of the orchestrators.
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
	results := make([]jobs.Result, len(operations))
	var rest []jobs.Operation
	var at []int // where the results of the rest belong
	for n, o := range operations {
		if results[n].Refused = b.check(o); results[n].Refused == nil {
			rest, at = append(rest, o), append(at, n)
		}
	}
	if len(rest) == 0 {
		return results, nil
	}
	done, err := b.Store.Do(ctx, name, rest...)
	if err != nil {
		return nil, err
	}
	for n, r := range done {
		results[at[n]] = r
	}
	return results, nil
}

// check returns an error for a push of a job that is too large.
func (b bounded) check(o jobs.Operation) error {
	push, _ := o.(jobs.Push)
	for n, i := range push.Jobs {
		if len(i.Data) > b.most {
			return &jobs.InvalidError{Problem: fmt.Sprintf("item %d of %d has %d bytes, and may have %d "+
				"(--jobs-max-size of the orchestrators); keep the data in a store and push a reference to it",
				n+1, len(push.Jobs), len(i.Data), b.most)}
		}
	}
	return nil
}
