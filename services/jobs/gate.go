package jobserver

import (
	"context"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
)

// Gated returns a store that does no operations while may returns an error. The caller may retry
// them: the error has the class [history.Retry].
func Gated(store jobs.Store, may func() error) jobs.Store { return gated{store, may} }

type gated struct {
	jobs.Store
	may func() error
}

// Do implements [jobs.Store].
func (g gated) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	if err := g.may(); err != nil {
		return nil, &history.Error{Class: history.Retry, Op: "change queue " + name, Err: err}
	}
	return g.Store.Do(ctx, name, operations...)
}
