package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Store is the part of a store that a check reads. The check writes nothing.
type Store interface {
	history.Audit
	Load(ctx context.Context, instances []string,
		admit func(instance string, row round.Row) bool) ([]round.Known, error)
	List(ctx context.Context, filter history.Filter, page history.Page) (history.InstanceList, error)
	Executions(ctx context.Context, instance string, after int64, limit int) ([]history.ExecutionInfo, error)
	Events(ctx context.Context, instance string, execution, after int64, limit int) ([]events.Event, error)
	// Clock returns the time on the clock of the database; zero if the store has no clock.
	Clock(ctx context.Context) (time.Time, error)
}

// Broker answers whether the broker has a message.
type Broker interface {
	Has(ctx context.Context, message events.Wire) (bool, error)
	broker.Stock
}

// DeadLetters lists the dead letters.
type DeadLetters interface {
	DeadLetters(ctx context.Context, after uint64, limit int) ([]broker.DeadLetter, error)
}

// Acknowledgements is the acknowledgement log of one client, as [ReadLog] reads it.
type Acknowledgements struct {
	// Name is the name of the log in errors.
	Name string
	// Each yields one line after the other.
	Each func(yield func(Acknowledged, error) bool)
}

// Options select the checks. The zero value checks all instances of a store, and no
// acknowledgements.
type Options struct {
	// Filter selects the instances. The check uses all lines of the logs, or those whose instance
	// has the filter's prefix.
	Filter history.Filter
	// Acknowledgements are the acknowledgement logs, one for each client.
	Acknowledgements []Acknowledgements
	// NothingRemoved says that no instance was deleted, that no execution was pruned, and that the
	// exported histories are complete: then missing data are lost.
	NothingRemoved bool
	// Quiescent demands that nothing is in flight.
	Quiescent bool
	// Overdue is how long a message may be in flight. Default: [Overdue]. Less than 0: forever.
	Overdue time.Duration
	// Broker, if set, is asked for messages in flight, and Dead for dead letters. Prefix is the
	// first token of the subjects.
	Broker Broker
	Dead   DeadLetters
	Prefix string
	// DeadLetterTTL is how long dead letters are kept. Default: 30 days.
	DeadLetterTTL time.Duration
	// Most is how many findings the report keeps; others are only counted. Default: 100.
	Most int
	// Dir is the directory for sorting. Default: the one for temporary files.
	Dir string
	// Now is the clock of this machine; nil means [time.Now]. The check compares times with the
	// clock of the database.
	Now func() time.Time
	// Progress is called from time to time with the report so far.
	Progress func(Report)
}

// Overdue is the default for how long a message may be in flight: recovery finds a lost message
// after 77 seconds at most.
const Overdue = 2 * time.Minute

// MaxClockDifference is the difference of two clocks from which the report has it.
const MaxClockDifference = time.Second

// Report has the counts of a check, and its findings.
type Report struct {
	Instances  int64 `json:"instances"`
	Executions int64 `json:"executions"`
	Events     int64 `json:"events"`
	// Acknowledgements counts the acknowledgements of clients, Said the starts and messages that an
	// instance sent to another one without waiting for an answer.
	Acknowledgements int64 `json:"acknowledgements"`
	Said             int64 `json:"said"`
	// InFlight counts acknowledged messages that are in flight, Refused starts of instances that
	// another start had begun, DeadLetters acknowledged messages that are dead letters.
	InFlight    int64 `json:"in_flight"`
	Refused     int64 `json:"refused"`
	DeadLetters int64 `json:"dead_letters"`
	// NotJudged counts data that the check cannot judge, by reason.
	NotJudged map[Reason]int64 `json:"not_judged,omitempty"`
	// ClockAhead is by how many seconds the clock of this machine is ahead of the clock of the
	// database, if they differ by more than [MaxClockDifference].
	ClockAhead float64 `json:"clock_ahead_seconds,omitempty"`
	// AskedBroker says whether the check asked the broker for messages in flight.
	AskedBroker bool `json:"asked_broker"`
	// Found counts all findings, by rule; Findings are those that were kept.
	Found    map[Rule]int64 `json:"found,omitempty"`
	Findings []Finding      `json:"findings"`
}

// Total counts all findings.
func (r Report) Total() (n int64) {
	for _, k := range r.Found {
		n += k
	}
	return n
}

// Err lists the findings, nil if there are none.
func (r Report) Err() error {
	var errs []error
	for _, f := range r.Findings {
		errs = append(errs, f)
	}
	if more := r.Total() - int64(len(r.Findings)); more > 0 {
		errs = append(errs, fmt.Errorf("and %s", plural.Count(more, "other")))
	}
	return errors.Join(errs...)
}

// Reason is why something cannot be judged. The words are stable.
type Reason string

// The reasons.
const (
	NotKept   Reason = "not_kept"
	NotAsked  Reason = "not_asked"
	MovedOn   Reason = "moved_on"
	TooNew    Reason = "too_new"
	NoMessage Reason = "no_message"
	Replaced  Reason = "replaced"
	TooMany   Reason = "too_many"
)

// Text is the reason as `rondo check` prints it.
func (r Reason) Text() string {
	switch r {
	case NotKept:
		return "it was deleted, pruned or not exported, or may have been"
	case NotAsked:
		return "NATS was not asked whether it is in flight or a dead letter"
	case MovedOn:
		return "its values changed each time they were read"
	case TooNew:
		return "a newer engine has written it, or it cannot be read"
	case NoMessage:
		return "the acknowledgement does not say which message it is"
	case Replaced:
		return "another delayed start of the same id is stored, which may have replaced it"
	case TooMany:
		return "NATS has more messages on its subject than the check reads"
	}
	return string(r)
}

// system is one check.
type system struct {
	clock
	store Store
	// only histories are there, and no rows
	exported bool
	o        Options
	report   Report
	missing  []lost
	told     time.Time
	sorted   sorter // acknowledgements, and messages between instances
}

const (
	// page is how many instances are listed at once, portion how many bytes of their histories are
	// read at once.
	page    = 200
	portion = 8 << 20
	// pageEvents is how many events of a former execution are read at once.
	pageEvents = 1000
	// retries is how often an instance is read again that changes meanwhile.
	retries = 5
)

// System checks the instances of a store. It returns an error if it cannot read something; findings
// are in the report. Services may write to the store meanwhile: System reads an instance again
// before it reports a finding.
func System(ctx context.Context, store Store, o Options) (Report, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Overdue, o.Most, o.Prefix = cmp.Or(o.Overdue, Overdue), cmp.Or(o.Most, 100),
		cmp.Or(o.Prefix, events.DefaultPrefix)
	o.DeadLetterTTL = cmp.Or(o.DeadLetterTTL, 30*24*time.Hour)
	_, exported := store.(*Exports)
	s := &system{clock: clock{here: o.Now}, store: store, exported: exported, o: o}
	s.report = Report{NotJudged: make(map[Reason]int64), Found: make(map[Rule]int64), AskedBroker: o.Broker != nil,
		Findings: []Finding{}}
	s.sorted.dir = o.Dir
	differs, err := s.compare(ctx, store)
	if err != nil {
		return s.report, err
	}
	s.report.ClockAhead = differs.Seconds()
	parts := []func(context.Context) error{s.instances, s.sortAcknowledgements, s.acknowledgements,
		s.deadLettered, s.outbox}
	for _, part := range parts {
		if err = part(ctx); err != nil {
			break
		}
	}
	return s.report, errors.Join(err, s.sorted.close())
}

func (s *system) found(f Finding) {
	s.report.Found[f.Rule]++
	if len(s.report.Findings) < s.o.Most {
		s.report.Findings = append(s.report.Findings, f)
	}
}

func (s *system) notJudged(why Reason) { s.report.NotJudged[why]++ }

// progress reports the counts so far, now and then.
func (s *system) progress() {
	if at := s.o.Now(); s.o.Progress != nil && at.Sub(s.told) >= 200*time.Millisecond {
		s.told = at
		s.o.Progress(s.report)
	}
}

// overdue reports whether a state that began at a moment has lasted for too long.
func (s *system) overdue(since time.Time) bool {
	return s.o.Overdue >= 0 && s.now().Sub(since) > s.o.Overdue
}

// leavesTombstone reports whether an instance that existed at a moment or later would have a
// tombstone if it had been deleted.
func (s *system) leavesTombstone(at time.Time) bool {
	const slack = 10 * time.Minute // clocks differ
	return !s.exported && !at.IsZero() && s.now().Sub(at) < history.TombstoneTTL-slack
}

// ---- The instances.

// instances judges all instances that fit the filter.
func (s *system) instances(ctx context.Context) error {
	for p := (history.Page{Limit: page}); ; {
		list, err := s.store.List(ctx, s.o.Filter, p)
		if err != nil {
			return fmt.Errorf("list the instances: %w", err)
		}
		var ids []string
		size := int64(0)
		for _, info := range list.Instances {
			if size += info.HistoryBytes; size > portion && len(ids) > 0 {
				if err := s.judgeAll(ctx, ids); err != nil {
					return err
				}
				ids, size = nil, info.HistoryBytes
			}
			ids = append(ids, info.Instance)
		}
		if err := s.judgeAll(ctx, ids); err != nil {
			return err
		}
		if p.Cursor = list.Next; list.Next == "" {
			return nil
		}
	}
}

// judgeAll judges some instances. It reads an instance again before it reports a finding, because
// instances change while they are read.
func (s *system) judgeAll(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	findings, err := s.judge(ctx, ids, true)
	if err != nil {
		return err
	}
	again := make(map[string][]Finding)
	for _, f := range findings {
		if _, ok := again[f.Instance]; !ok {
			if again[f.Instance], err = s.judge(ctx, []string{f.Instance}, false); err != nil {
				return err
			}
		}
		if i := slices.IndexFunc(again[f.Instance], f.same); i >= 0 {
			s.found(again[f.Instance][i])
		}
	}
	s.progress()
	return nil
}

// judge lists the findings about some instances after one reading.
func (s *system) judge(ctx context.Context, ids []string, count bool) ([]Finding, error) {
	f := family{system: s, count: count, running: make(map[string]int64)}
	incarnations, err := s.read(ctx, ids, func(x *execution) error { return f.former(ctx, x) })
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, r := range incarnations {
		if count {
			s.report.Instances++
			s.report.Executions += r.lineage.executions
			s.report.Events += r.lineage.events
			if r.not != "" {
				s.notJudged(r.not)
			}
		}
		findings = append(findings, r.lineage.findings...)
		if err := f.add(r); err != nil {
			return nil, err
		}
		under, err := s.inFlight(ctx, r)
		if err != nil {
			return nil, err
		}
		findings = append(findings, under...)
	}
	related, err := f.judge(ctx)
	return append(findings, related...), err
}

// reading is an instance as it was read.
type reading struct {
	lineage *lineage
	row     round.Row
	not     Reason // why part of it cannot be judged
}

// running reports whether there is a current execution that goes on.
func (r reading) running() bool {
	return !r.row.Status.Ended() && r.lineage.now != nil && r.lineage.now.number == r.row.Execution &&
		r.lineage.now.end.Fact == nil
}

// read reads instances, those that exist, and judges their histories. The row, the history and the
// values of each are as of one moment. former is called with each execution that has a successor.
func (s *system) read(ctx context.Context, ids []string, former func(*execution) error) (all []reading, err error) {
	for try := 0; len(ids) > 0; try++ {
		known, err := s.store.Load(ctx, ids, func(_ string, row round.Row) bool { return round.CanRead(row) })
		if err != nil {
			return nil, fmt.Errorf("read instances: %w", err)
		}
		values, err := s.store.ValuesOf(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("read values: %w", err)
		}
		after, err := s.store.Load(ctx, ids, func(string, round.Row) bool { return false })
		if err != nil {
			return nil, fmt.Errorf("read instances: %w", err)
		}
		ids = nil
		for i, k := range known {
			steady := after[i].Row.RowVersion() == k.Row.RowVersion()
			switch {
			case k.Row.Execution == 0: // it was deleted meanwhile
				continue
			case !steady && try < retries:
				ids = append(ids, k.Instance)
				continue
			}
			r, err := s.follow(ctx, k, former)
			if err != nil {
				return nil, err
			}
			switch {
			case !steady:
				r.not = MovedOn
			case r.not == "" && r.lineage.now != nil && !s.exported:
				r.lineage.compareValues(payloads(values[k.Instance]))
			}
			all = append(all, r)
		}
	}
	return all, nil
}

func payloads(values map[string]history.Value) map[string]codec.Payload {
	out := make(map[string]codec.Payload, len(values))
	for k, v := range values {
		out[k] = v.Data
	}
	return out
}

// follow judges the histories of an instance, one execution after the other. former is called with
// each that has a successor.
func (s *system) follow(ctx context.Context, k round.Known, former func(*execution) error) (reading, error) {
	r := reading{lineage: newLineage(k.Instance), row: k.Row}
	l := r.lineage
	if k.Row.Execution > 1 {
		if err := s.formerExecutions(ctx, l, k.Row.Execution, former); err != nil {
			return r, err
		}
	}
	l.now = nil
	switch {
	case !round.CanRead(k.Row):
		r.not = TooNew
	case k.Unreadable != nil:
		l.bad(Finding{Rule: HistoryUnread, Execution: k.Row.Execution, Expected: "a history that can be read",
			Found: k.Unreadable.Error()})
	default:
		l.begin(k.Row.Execution)
		l.take(k.History)
		l.finish()
		if !s.exported {
			l.compareRow(k.Row)
		}
	}
	return r, nil
}

// formerExecutions follows the executions before one. It skips those that are pruned meanwhile.
func (s *system) formerExecutions(ctx context.Context, l *lineage, before int64, former func(*execution) error) error {
	for after := int64(0); ; {
		list, err := s.store.Executions(ctx, l.id, after, 100)
		if gone(err) || err == nil && len(list) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list the executions of %q: %w", l.id, err)
		}
		for _, info := range list {
			if after = info.Execution; after >= before {
				return nil
			}
			switch err := s.formerExecution(ctx, l, info); {
			case gone(err):
				l.former, l.now = nil, nil
			case history.ClassOf(err) == history.Corrupt:
				l.bad(Finding{Rule: HistoryUnread, Execution: info.Execution, Expected: "a history that can be read",
					Found: err.Error()})
				l.former, l.now = nil, nil
			case err != nil:
				return fmt.Errorf("read execution %d of %q: %w", info.Execution, l.id, err)
			default:
				if err := former(l.now); err != nil {
					return err
				}
				l.finish()
			}
		}
	}
}

func gone(err error) bool {
	return errors.Is(err, history.ErrNoInstance) || errors.Is(err, history.ErrNoExecution)
}

func (s *system) formerExecution(ctx context.Context, l *lineage, info history.ExecutionInfo) error {
	l.begin(info.Execution)
	for got := int64(0); got < info.Events; {
		list, err := s.store.Events(ctx, l.id, info.Execution, got, pageEvents)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			break
		}
		l.take(list)
		got += int64(len(list))
	}
	if !s.exported {
		l.compareExecution(info)
	}
	return nil
}

// rows reads the rows of instances; those that do not exist are left out.
func (s *system) rows(ctx context.Context, ids []string) (map[string]round.Row, error) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	rows := make(map[string]round.Row, len(ids))
	for part := range slices.Chunk(ids, page) {
		known, err := s.store.Load(ctx, part, func(string, round.Row) bool { return false })
		if err != nil {
			return nil, fmt.Errorf("read how instances stand: %w", err)
		}
		for _, k := range known {
			if k.Row.Execution > 0 {
				rows[k.Instance] = k.Row
			}
		}
	}
	return rows, nil
}

// tombstones reports which of some instances were deleted not long ago.
func (s *system) tombstones(ctx context.Context, ids []string) (map[string]bool, error) {
	list, err := s.store.Tombstones(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("look for what was deleted: %w", err)
	}
	tombstones := make(map[string]bool, len(list))
	for _, id := range list {
		tombstones[id] = true
	}
	return tombstones, nil
}
