package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

const (
	// maxQuestion bounds a request: the longest are those with many ids.
	maxQuestion = 1 << 20
	// maxPage is the size from which a page gets no more rows, whatever the limit of the request.
	maxPage = 384 << 10
	// wholeAtOnce bounds the answers for which all of a history or all values are read.
	wholeAtOnce = 2
)

// answerer answers requests.
type answerer struct {
	store  Store
	broker Broker
	o      Options
	slots  chan struct{}
	whole  chan struct{} // for the methods that read all of something
	// deletions are bounded, because they may wait for instances to end.
	deletions chan struct{}
	deletes   *Deletions
	parts     *parts
}

type method func(context.Context, Question) (any, error)

// methods returns the handler of each method.
func (a *answerer) methods() map[string]method {
	all := map[string]method{
		MethodList: a.list, MethodCount: a.count, MethodInstance: a.instance, MethodExecutions: a.executions,
		MethodEvents: a.events,
		MethodStats:  a.stats, MethodValues: a.values, MethodValue: a.value, MethodStatus: a.status, MethodTree: a.tree,
		MethodMetrics: a.metrics,
		MethodWaiting: a.waiting,
	}
	if a.o.System != nil {
		all[MethodSystem] = func(ctx context.Context, _ Question) (any, error) { return a.o.System(ctx) }
	}
	if a.o.Schedules != nil {
		maps.Copy(all, a.scheduleMethods())
	}
	if a.o.Pending != nil {
		all[MethodPending] = a.pending
	}
	if a.o.CheckStart != nil {
		all[MethodCheckStart] = func(_ context.Context, q Question) (any, error) { return a.checkStart(q) }
	}
	if a.o.Recover != nil && !a.o.ReadOnly {
		all[MethodRecover] = func(ctx context.Context, _ Question) (any, error) { return a.o.Recover(ctx) }
	}
	for name, m := range map[string]method{MethodDelete: a.delete, MethodDeleteEnded: a.deleteEnded,
		MethodPrune: a.prune, MethodPruneAll: a.pruneAll, MethodWithdraw: a.withdraw} {
		if name == MethodWithdraw && a.o.Pending == nil {
			continue
		}
		if a.o.ReadOnly {
			m = func(context.Context, Question) (any, error) { return nil, ErrReadOnly }
		}
		all[name] = m
	}
	return all
}

// answer turns a method into a handler for the broker.
func (a *answerer) answer(name string, m method) func(context.Context, []byte) ([]byte, error) {
	return func(ctx context.Context, question []byte) ([]byte, error) {
		if a.o.Await != nil && usesDatabase(name) {
			if err := a.o.Await(ctx); err != nil {
				return nil, answerError(&history.Error{Class: history.Retry, Op: "answer " + name, Err: err})
			}
		}
		slots := []chan struct{}{a.slots}
		if readsWhole(name) { // such a request waits without a slot that others could use
			slots = []chan struct{}{a.whole, a.slots}
		}
		if name == MethodDelete {
			slots = []chan struct{}{a.deletions, a.slots}
		}
		for _, s := range slots {
			select {
			case s <- struct{}{}:
				defer func() { <-s }()
			case <-ctx.Done():
				return nil, answerError(ctx.Err())
			}
		}
		q, err := readQuestion(name, question)
		if err != nil {
			return nil, err
		}
		v, err := m(ctx, q)
		if err != nil {
			return nil, answerError(err)
		}
		data, err := marshal(v)
		if err == nil {
			data, err = a.parts.wrap(broker.Requester(ctx), data, time.Now())
		}
		if err != nil {
			a.o.Logger.Error("query: an answer could not be written", "method", name, "error", err)
		}
		return data, answerError(err)
	}
}

// readsWhole reports whether a method reads all of a history, or all values of an instance, into
// memory.
func readsWhole(name string) bool { return name == MethodWaiting || name == MethodValues }

// usesDatabase reports whether a method reads or changes the database, or lets others do so.
func usesDatabase(name string) bool {
	return name != MethodSystem && name != MethodCheckStart && name != MethodPending
}

// readQuestion decodes a request. An empty request stands for an empty JSON object.
func readQuestion(name string, data []byte) (q Question, err error) {
	switch {
	case len(data) > maxQuestion:
		return q, badQuestion("question for %s: it has %d bytes, which is too much", name, len(data))
	case len(data) == 0:
		data = []byte("{}")
	}
	var into any = &q
	switch name { // an input may have any number of values, and there are no lists
	case MethodCheckStart:
		into = &struct {
			Start **Start `json:"start"`
		}{&q.Start}
	case MethodPutSchedule:
		into = &struct {
			Put **PutSchedule `json:"put"`
		}{&q.Put}
	}
	if into == any(&q) && commas(data) > maxCommas {
		return q, tooMany(name)
	}
	if err := unmarshal(data, into, true); err != nil {
		return q, badQuestion(`question for %s: %v; it is a JSON object like %s`, name, err, exampleOf(name))
	}
	if !q.fits() {
		return q, tooMany(name)
	}
	if needsInstance(name) && q.Instance == "" {
		return q, badQuestion(`question for %s: which instance? It is a JSON object like %s`, name, exampleOf(name))
	}
	if needsSchedule(name) && q.Schedule == "" {
		return q, badQuestion(`question for %s: which schedule? It is a JSON object like %s`, name, exampleOf(name))
	}
	if q.Limit < 0 || q.After < 0 || q.Limit > math.MaxInt32 && name != MethodCount {
		return q, badQuestion("question for %s: a number in it is out of range", name)
	}
	return q, nil
}

// MaxIDs is the maximum number of ids, and of instances, in a request. An instance has no more than
// maxOthers attributes, and there are fewer statuses.
const (
	MaxIDs    = 1000
	maxOthers = events.MaxAttributes
	// maxCommas bounds a request before it is decoded: with the lists, and with all fields.
	maxCommas = 2*MaxIDs + 2*maxOthers + 100
)

// fits reports whether the lists of a request are within their bounds.
func (q Question) fits() bool {
	f := q.filter()
	return len(q.Instances) <= MaxIDs && len(f.IDs) <= MaxIDs && len(f.Statuses) <= maxOthers &&
		len(f.Attributes) <= maxOthers
}

func tooMany(name string) error {
	return badQuestion("question for %s: a list in it is too long; send several requests, with at most %d ids or "+
		"instances each, %d statuses and %d attributes", name, MaxIDs, maxOthers, maxOthers)
}

// commas counts the commas of JSON outside of strings.
func commas(data []byte) (n int) {
	inside := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inside = !inside
		case c == '\\':
			i++
		case c == ',' && !inside:
			n++
		}
	}
	return n
}

// needsInstance reports whether a method is about one instance.
func needsInstance(name string) bool {
	switch name {
	case MethodInstance, MethodExecutions, MethodEvents, MethodStats, MethodValues, MethodValue, MethodStatus,
		MethodTree, MethodWaiting, MethodWithdraw:
		return true
	}
	return false
}

// needsSchedule reports whether a method is about one schedule, by its id.
func needsSchedule(name string) bool {
	return name == MethodSchedule || name == MethodChangeSchedule || name == MethodDropSchedule
}

// exampleOf returns a request that a method takes.
func exampleOf(name string) string {
	switch name {
	case MethodList, MethodCount:
		return `{"filter":{"name":"fulfil","statuses":["failed"],"attributes":{"region":"eu"}},"limit":10}`
	case MethodPending:
		return `{"filter":{"name":"fulfil","id_prefix":"order-"},"limit":10}`
	case MethodDelete:
		return `{"instances":["order-7"]}`
	case MethodDeleteEnded:
		return `{"filter":{"ended_before":"2026-01-01T00:00:00Z"}}`
	case MethodPrune:
		return `{"instance":"order-7","keep":{"last":3}}`
	case MethodPruneAll:
		return `{"filter":{"name":"fulfil"},"keep":{"last":3}}`
	case MethodSystem, MethodRecover, MethodMetrics:
		return `{}`
	case MethodCheckStart:
		return `{"start":{"orchestration":"fulfil","input":{"sku":"chair"}}}`
	case MethodValue:
		return `{"instance":"order-7","key":"total"}`
	case MethodSchedules:
		return `{"filter":{"id_prefix":"report-"},"limit":10}`
	case MethodSchedule, MethodDropSchedule:
		return `{"schedule":"nightly"}`
	case MethodPutSchedule:
		return `{"put":{"schedule":{"id":"nightly","run":{"orchestration":"report"},"cron":"30 6 * * *"}}}`
	case MethodChangeSchedule:
		return `{"schedule":"nightly","change":{"trigger":true}}`
	}
	return `{"instance":"order-7"}`
}

func (q Question) filter() history.Filter {
	if q.Filter == nil {
		return history.Filter{}
	}
	return history.Filter(*q.Filter)
}

func (q Question) page() history.Page { return history.Page{Limit: int(q.Limit), Cursor: q.Cursor} }

func (q Question) keep() history.Keep {
	if q.Keep == nil {
		return history.Keep{}
	}
	return history.Keep(*q.Keep)
}

// size measures what a row of a page needs.
func size(v any) (int, error) {
	data, err := marshal(v)
	return len(data), err
}

// ---- Methods that read.

// list reads instances until the page has as many as the request asks for, or is large enough.
func (a *answerer) list(ctx context.Context, q Question) (any, error) {
	out := List{Instances: []Instance{}, Next: q.Cursor}
	want, bytes := q.page().Size(), 0
	for {
		got, err := a.store.Within(maxPage-bytes).List(ctx, q.filter(),
			history.Page{Limit: want - len(out.Instances), Cursor: out.Next})
		if err != nil {
			return nil, err
		}
		for _, i := range got.Instances {
			w := InstanceOf(i)
			n, err := size(w)
			if err != nil {
				return nil, err
			}
			out.Instances, bytes = append(out.Instances, w), bytes+n
		}
		if out.Next = got.Next; out.Next == "" || len(out.Instances) >= want || bytes >= maxPage {
			return out, nil
		}
	}
}

func (a *answerer) count(ctx context.Context, q Question) (any, error) {
	n, err := a.store.Count(ctx, q.filter(), q.Limit)
	return Count{n}, err
}

func (a *answerer) instance(ctx context.Context, q Question) (any, error) {
	i, err := a.store.Instance(ctx, q.Instance)
	return InstanceOf(i), err
}

func (a *answerer) executions(ctx context.Context, q Question) (any, error) {
	out := Executions{Executions: []Execution{}}
	want, bytes := q.page().Size(), 0
	for {
		got, err := a.store.Within(maxPage-bytes).Executions(ctx, q.Instance, q.After, want-len(out.Executions))
		if err != nil {
			return nil, err
		}
		for _, x := range got {
			w := Execution(x)
			n, err := size(w)
			if err != nil {
				return nil, err
			}
			out.Executions, bytes, q.After = append(out.Executions, w), bytes+n, x.Execution
		}
		out.More = len(got) > 0
		if !out.More || len(out.Executions) >= want || bytes >= maxPage {
			return out, nil
		}
	}
}

// events reads a part of the history of one execution, also when another one begins meanwhile.
func (a *answerer) events(ctx context.Context, q Question) (any, error) {
	out := Events{Execution: q.Execution, Events: []json.RawMessage{}}
	if out.Execution == 0 {
		info, err := a.store.Instance(ctx, q.Instance)
		if err != nil {
			return nil, err
		}
		out.Execution = info.Execution
	}
	want, bytes := q.page().Size(), 0
	for {
		got, err := a.store.Within(maxPage-bytes).Events(ctx, q.Instance, out.Execution, q.After, want-len(out.Events))
		if err != nil {
			return nil, err
		}
		for _, e := range got {
			data, err := events.EncodeEvent(e)
			if err != nil {
				return nil, err
			}
			out.Events, bytes, q.After = append(out.Events, data), bytes+len(data), e.ID
		}
		out.More = len(got) > 0
		if !out.More || len(out.Events) >= want || bytes >= maxPage {
			return out, nil
		}
	}
}

func (a *answerer) stats(ctx context.Context, q Question) (any, error) {
	s, err := a.store.Stats(ctx, q.Instance)
	return Stats(s), err
}

func (a *answerer) values(ctx context.Context, q Question) (any, error) {
	got, err := a.store.Values(ctx, q.Instance)
	if err != nil {
		return nil, err
	}
	out := Values{Values: make(map[string]Value, len(got))}
	for k, v := range got {
		out.Values[k] = Value(v)
	}
	return out, nil
}

func (a *answerer) value(ctx context.Context, q Question) (any, error) {
	v, ok, err := a.store.Value(ctx, q.Instance, q.Key)
	out := Values{Values: map[string]Value{}}
	if ok {
		out.Values[q.Key] = Value(v)
	}
	return out, err
}

func (a *answerer) status(ctx context.Context, q Question) (any, error) {
	s, err := a.store.CustomStatus(ctx, q.Instance, q.Known)
	return Status(s), err
}

func (a *answerer) tree(ctx context.Context, q Question) (any, error) {
	got, err := a.store.Tree(ctx, q.Instance)
	if err != nil {
		return nil, err
	}
	out := Tree{Nodes: make([]Node, 0, len(got))}
	for _, n := range got {
		out.Nodes = append(out.Nodes, Node(n))
	}
	return out, nil
}

func (a *answerer) metrics(ctx context.Context, _ Question) (any, error) {
	m, err := a.store.Metrics(ctx)
	return Metrics(m), err
}

func (a *answerer) waiting(ctx context.Context, q Question) (any, error) {
	w, err := WaitingOf(ctx, a.store, q.Instance)
	if err == nil && a.o.Explain != nil {
		a.o.Explain(ctx, &w)
	}
	return w, err
}

// ---- Methods that remove.

func (a *answerer) delete(ctx context.Context, q Question) (any, error) {
	ids := q.Instances
	if q.Instance != "" {
		ids = append(slices.Clone(ids), q.Instance)
	}
	if len(ids) == 0 {
		return nil, badQuestion(`question for %s: which? It is a JSON object like {"instances":["order-7"]}`,
			MethodDelete)
	}
	how := history.Deletion{Prefix: a.o.Prefix}
	if d := q.Deletion; d != nil {
		how.Force, how.Alone, how.Children = d.Force, d.Alone, d.Children
	}
	d, err := a.deletes.Delete(ctx, ids, how)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		err = errors.Join(err, notifyDeleted(a.broker, id))
	}
	if err != nil {
		a.o.Logger.Warn("query: notification of a deletion could not be published", "error", err)
	}
	return d, nil
}

func (a *answerer) deleteEnded(ctx context.Context, q Question) (any, error) {
	if q.Filter == nil { // not by mistake
		return nil, badQuestion(
			`question for %s: which? It is a JSON object like {"filter":{"ended_before":"2026-01-01T00:00:00Z"}}; an empty filter stands for all`, MethodDeleteEnded)
	}
	d, err := a.store.DeleteEnded(ctx, q.filter(), q.page())
	return deletedPageOf(d), err
}

func (a *answerer) prune(ctx context.Context, q Question) (any, error) {
	d, err := a.store.Prune(ctx, q.Instance, q.keep())
	return deletedOf(d), err
}

func (a *answerer) pruneAll(ctx context.Context, q Question) (any, error) {
	if q.Filter == nil {
		return nil, badQuestion(
			`question for %s: which? It is a JSON object like {"filter":{"name":"fulfil"},"keep":{"last":3}}; an empty filter stands for all`, MethodPruneAll)
	}
	d, err := a.store.PruneAll(ctx, q.filter(), q.keep(), q.page())
	return deletedPageOf(d), err
}

func deletedOf(d history.DeleteResult) Deleted {
	return Deleted{Instances: d.Instances, Executions: d.Executions, Events: d.Events, Values: d.Values}
}

func deletedPageOf(d history.DeleteResultPage) Deleted {
	out := deletedOf(d.DeleteResult)
	out.Skipped, out.Next = d.Skipped, d.Next
	return out
}

func (d Deleted) deleted() history.DeleteResult {
	return history.DeleteResult{Instances: d.Instances, Executions: d.Executions, Events: d.Events, Values: d.Values}
}

func (d Deleted) page() history.DeleteResultPage {
	return history.DeleteResultPage{DeleteResult: d.deleted(), Skipped: d.Skipped, Next: d.Next}
}

var errTwoMoments = fmt.Errorf("the instance moves on too fast to be looked at; try again")
