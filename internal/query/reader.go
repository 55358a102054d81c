package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// Reader sends requests to the orchestrators. It is a [history.Reader] and a [history.Remover],
// except that it has nothing to tidy.
//
// A request that does not remove is repeated when no answer comes, for as long as the context
// allows: after a second it goes to an orchestrator that answers pings, too. After [patience], all
// of that is repeated, up to three times in all. Each part of a large answer may take as long. A
// request that removes is sent once. If its answer is lost, the outcome is [history.Ambiguous], and
// the caller may repeat it.
type Reader struct {
	broker            Requester
	patience, silence time.Duration
}

// Requester is the part of the broker that a Reader needs.
type Requester interface {
	broker.Requests
	broker.Discovery
}

var (
	_ history.Reader  = (*Reader)(nil)
	_ history.Remover = (*Reader)(nil)
)

const (
	// patience is how long the Reader waits for an answer before it repeats the request: the
	// orchestrators give up a little earlier.
	patience = 6 * time.Second
	tries    = 3
	// fetchWithin is how long all parts of a large answer may take: each has patience of its own.
	fetchWithin = 5 * time.Minute
)

// NewReader makes a Reader.
func NewReader(b Requester) *Reader { return &Reader{b, patience, silence} }

// ask sends a request, and repeats it if that may help.
func (r *Reader) ask(ctx context.Context, method string, q Question, answer any) error {
	if !q.fits() { // it may even be too large for a message
		return &history.Error{Class: history.Permanent, Op: "request " + method, Err: tooMany(method)}
	}
	question, err := marshal(q)
	if err != nil {
		return &history.Error{Class: history.Permanent, Op: "request " + method, Err: err}
	}
	for _, id := range append([]string{q.Instance}, q.Instances...) {
		if !utf8.ValidString(id) { // JSON cannot ask for it, and there is none
			return &history.Error{Class: history.Permanent, Op: "request " + method,
				Err: fmt.Errorf("instance %q: %w", id, history.ErrNoInstance)}
		}
	}
	if !utf8.ValidString(q.Cursor) {
		return &history.Error{Class: history.Permanent, Op: "request " + method, Err: history.ErrBadCursor}
	}
	for try := 1; ; try++ {
		data, ok, err := r.askOnce(ctx, method, question)
		switch {
		case err == nil && ok:
			if err := unmarshal(data, answer, false); err != nil {
				return &history.Error{Class: history.Permanent, Op: "request " + method, Err: badAnswer(err)}
			}
			return nil
		case err == nil:
			err = errors.New("the answer is large, and was gone before it was fetched")
		}
		var told *broker.ResponseError
		last := removes(method) || errors.As(err, &told) || errors.Is(err, broker.ErrNoResponders) ||
			ctx.Err() != nil || try == tries
		if last {
			if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w (%w)", ctx.Err(), err)
			}
			return readError(removes(method), err)
		}
	}
}

func (r *Reader) askOnce(ctx context.Context, method string, question []byte) ([]byte, bool, error) {
	first, cancel := context.WithTimeout(ctx, r.patience)
	data, err := r.request(first, method, question)
	cancel()
	if err != nil {
		return nil, false, err
	}
	ctx, cancel = context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	return unwrap(ctx, r.broker, data, r.patience)
}

// fitsNothing tells that a filter wants what no instance can have, and JSON cannot say. Ids of that
// kind are taken out of it.
func fitsNothing(f *history.Filter) bool {
	texts := []string{f.IDPrefix, f.Name, f.Version, f.Parent}
	for k, v := range f.Attributes {
		texts = append(texts, k, v)
	}
	if len(f.IDs) > 0 {
		f.IDs = slices.DeleteFunc(slices.Clone(f.IDs), func(id string) bool { return !utf8.ValidString(id) })
		if len(f.IDs) == 0 {
			return true
		}
	}
	return slices.ContainsFunc(texts, func(t string) bool { return !utf8.ValidString(t) })
}

func filterOf(f history.Filter) *Filter {
	w := Filter(f)
	return &w
}

// List implements [history.Reader]. A page may be shorter than asked for, because it is large; it
// then has a Next all the same.
func (r *Reader) List(ctx context.Context, filter history.Filter, page history.Page) (history.InstanceList, error) {
	var a List
	if fitsNothing(&filter) {
		return history.InstanceList{}, nil
	}
	if err := r.ask(ctx, MethodList, Question{Filter: filterOf(filter), Limit: int64(page.Size()), Cursor: page.Cursor},
		&a); err != nil {
		return history.InstanceList{}, err
	}
	out := history.InstanceList{Next: a.Next}
	for _, i := range a.Instances {
		out.Instances = append(out.Instances, i.Info())
	}
	return out, nil
}

// Count implements [history.Reader].
func (r *Reader) Count(ctx context.Context, filter history.Filter, limit int64) (int64, error) {
	var a Count
	if fitsNothing(&filter) {
		return 0, nil
	}
	err := r.ask(ctx, MethodCount, Question{Filter: filterOf(filter), Limit: max(limit, 0)}, &a)
	return a.Count, err
}

// Instance implements [history.Reader].
func (r *Reader) Instance(ctx context.Context, instance string) (history.Info, error) {
	var a Instance
	if err := r.ask(ctx, MethodInstance, Question{Instance: instance}, &a); err != nil {
		return history.Info{}, err
	}
	return a.Info(), nil
}

// Executions implements [history.Reader].
func (r *Reader) Executions(ctx context.Context, instance string, after int64,
	limit int) ([]history.ExecutionInfo, error) {
	var out []history.ExecutionInfo
	for want := (history.Page{Limit: limit}).Size(); len(out) < want; {
		var a Executions
		q := Question{Instance: instance, After: max(after, 0), Limit: int64(want - len(out))}
		if err := r.ask(ctx, MethodExecutions, q, &a); err != nil {
			return nil, err
		}
		for _, x := range a.Executions {
			out, after = append(out, history.ExecutionInfo(x)), x.Execution
		}
		if !a.More || len(a.Executions) == 0 {
			break
		}
	}
	return out, nil
}

// Events implements [history.Reader].
func (r *Reader) Events(ctx context.Context, instance string, execution, after int64,
	limit int) ([]events.Event, error) {
	var out []events.Event
	for want := (history.Page{Limit: limit}).Size(); len(out) < want; {
		var a Events
		q := Question{Instance: instance, Execution: execution, After: max(after, 0), Limit: int64(want - len(out))}
		if err := r.ask(ctx, MethodEvents, q, &a); err != nil {
			return nil, err
		}
		for _, data := range a.Events {
			e, err := events.DecodeEvent(data)
			if err != nil {
				return nil, &history.Error{Class: history.Permanent, Op: "request " + MethodEvents, Err: err}
			}
			out, after = append(out, e), e.ID
		}
		if execution = a.Execution; !a.More || len(a.Events) == 0 {
			break
		}
	}
	return out, nil
}

// Stats implements [history.Reader].
func (r *Reader) Stats(ctx context.Context, instance string) (history.Stats, error) {
	var a Stats
	err := r.ask(ctx, MethodStats, Question{Instance: instance}, &a)
	return history.Stats(a), err
}

// Values implements [history.Reader].
func (r *Reader) Values(ctx context.Context, instance string) (map[string]history.Value, error) {
	var a Values
	if instance == "" || !utf8.ValidString(instance) {
		return map[string]history.Value{}, nil
	}
	if err := r.ask(ctx, MethodValues, Question{Instance: instance}, &a); err != nil {
		return nil, err
	}
	out := make(map[string]history.Value, len(a.Values))
	for k, v := range a.Values {
		out[k] = history.Value(v)
	}
	return out, nil
}

// Value implements [history.Reader].
func (r *Reader) Value(ctx context.Context, instance, key string) (value history.Value, ok bool, err error) {
	var a Values
	if instance == "" || !utf8.ValidString(instance) || !utf8.ValidString(key) {
		return value, false, nil
	}
	err = r.ask(ctx, MethodValue, Question{Instance: instance, Key: key}, &a)
	v, ok := a.Values[key]
	return history.Value(v), ok, err
}

// CustomStatus implements [history.Reader].
func (r *Reader) CustomStatus(ctx context.Context, instance string, known int64) (history.CustomStatus, error) {
	var a Status
	if !utf8.ValidString(instance) {
		return history.CustomStatus{Changed: known != 0}, nil
	}
	err := r.ask(ctx, MethodStatus, Question{Instance: instance, Known: known}, &a)
	return history.CustomStatus(a), err
}

// Tree implements [history.Reader].
func (r *Reader) Tree(ctx context.Context, instance string) ([]history.Node, error) {
	var a Tree
	if err := r.ask(ctx, MethodTree, Question{Instance: instance}, &a); err != nil {
		return nil, err
	}
	out := make([]history.Node, 0, len(a.Nodes))
	for _, n := range a.Nodes {
		out = append(out, history.Node(n))
	}
	return out, nil
}

// Metrics implements [history.Reader].
func (r *Reader) Metrics(ctx context.Context) (history.Metrics, error) {
	var a Metrics
	err := r.ask(ctx, MethodMetrics, Question{}, &a)
	return history.Metrics(a), err
}

// Waiting returns the operations that an instance waits for, and explains its state.
func (r *Reader) Waiting(ctx context.Context, instance string) (Waiting, error) {
	var a Waiting
	err := r.ask(ctx, MethodWaiting, Question{Instance: instance}, &a)
	return a, err
}

// Delete implements [history.Remover].
func (r *Reader) Delete(ctx context.Context, instances []string, how history.Deletion) (history.DeleteResult, error) {
	d, err := r.Remove(ctx, instances, how)
	return d.deleted(), err
}

// Remove is Delete, and counts the messages withdrawn before.
func (r *Reader) Remove(ctx context.Context, instances []string, how history.Deletion) (d Deleted, err error) {
	if len(instances) == 0 {
		return d, nil
	}
	deletion := Deletion{Force: how.Force, Alone: how.Alone, Children: how.Children}
	err = r.ask(ctx, MethodDelete, Question{Instances: instances, Deletion: &deletion}, &d)
	return d, err
}

// DeleteEnded implements [history.Remover].
func (r *Reader) DeleteEnded(ctx context.Context, filter history.Filter,
	page history.Page) (history.DeleteResultPage, error) {
	var a Deleted
	if fitsNothing(&filter) {
		return history.DeleteResultPage{}, nil
	}
	err := r.ask(ctx, MethodDeleteEnded,
		Question{Filter: filterOf(filter), Limit: int64(page.Size()), Cursor: page.Cursor}, &a)
	return a.page(), err
}

// Prune implements [history.Remover].
func (r *Reader) Prune(ctx context.Context, instance string, keep history.Keep) (history.DeleteResult, error) {
	var a Deleted
	k := Keep(keep)
	err := r.ask(ctx, MethodPrune, Question{Instance: instance, Keep: &k}, &a)
	return a.deleted(), err
}

// PruneAll implements [history.Remover].
func (r *Reader) PruneAll(ctx context.Context, filter history.Filter, keep history.Keep,
	page history.Page) (history.DeleteResultPage, error) {
	var a Deleted
	if fitsNothing(&filter) {
		return history.DeleteResultPage{}, nil
	}
	k := Keep(keep)
	err := r.ask(ctx, MethodPruneAll,
		Question{Filter: filterOf(filter), Keep: &k, Limit: int64(page.Size()), Cursor: page.Cursor}, &a)
	return a.page(), err
}

// Tidy implements [history.Remover]: the orchestrators tidy up by themselves, so there is nothing
// left to do.
func (r *Reader) Tidy(context.Context) (more bool, err error) { return false, nil }
