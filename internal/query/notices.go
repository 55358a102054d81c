package query

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/jsonw"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// Topic says what a notice is about.
type Topic string

// The topics.
const (
	TopicEnded   Topic = "ended"
	TopicStatus  Topic = "status"
	TopicValues  Topic = "values"
	TopicSettled Topic = "settled"
	TopicDeleted Topic = "deleted"
)

// HeaderReceipt, if it says "true", asks that whoever listens be told what became of a message.
const HeaderReceipt = "Rondo-Receipt"

// maxNotice is the size from which payloads are left out of notices: whoever wants them asks.
const maxNotice = 64 << 10

// Notice says what has happened to an instance. What Body gives is told by its type: an [Ended], a
// [Changed], a [Settled].
type Notice struct {
	Topic Topic
	// Name is that of the orchestration, or in a receipt the id of the message, as far as it fits:
	// see [Settled].
	Name     string
	Instance string
	body     []byte
}

// Ended says that an incarnation of an instance has ended.
type Ended struct {
	Instance     string         `json:"instance"`
	Name         string         `json:"name"`
	Version      string         `json:"version"`
	Incarnation  string         `json:"incarnation"`
	Execution    int64          `json:"execution"`
	Status       round.Status   `json:"status"`
	StartMessage string         `json:"start_message,omitempty"`
	Parent       *events.Parent `json:"parent,omitempty"`
	Output       events.Payload `json:"output,omitempty"`
	Error        *events.Error  `json:"error,omitempty"`
	// Large says that output and error were left out; they can be asked for.
	Large     bool      `json:"large,omitempty"`
	StartedAt time.Time `json:"started_at"` // the last execution
	EndedAt   time.Time `json:"ended_at"`
	// Replaced says that another incarnation of the same id has begun in the same moment.
	Replaced bool `json:"replaced,omitempty"`
}

// encode writes it as [marshal] would, without reflection, as there are very many.
func (e *Ended) encode() ([]byte, error) {
	w := jsonw.Begin(make([]byte, 0, len(e.Output)+512))
	w.Text("instance", e.Instance)
	w.Text("name", e.Name)
	w.Text("version", e.Version)
	w.Text("incarnation", e.Incarnation)
	w.Number("execution", e.Execution)
	w.Text("status", string(e.Status))
	w.TextIf("start_message", e.StartMessage)
	w.OtherIf("parent", e.Parent, e.Parent != nil)
	if len(e.Output) > 0 {
		output, err := e.Output.MarshalJSON()
		w.Raw("output", output, err)
	}
	w.OtherIf("error", e.Error, e.Error != nil)
	w.TrueIf("large", e.Large)
	w.Time("started_at", e.StartedAt)
	w.Time("ended_at", e.EndedAt)
	w.TrueIf("replaced", e.Replaced)
	return w.End()
}

// Changed says that the custom status, or values, have changed.
type Changed struct {
	Instance    string `json:"instance"`
	Incarnation string `json:"incarnation"`
	Execution   int64  `json:"execution"`
	// Version and Data are those of the custom status. Large says that Data was left out.
	Version int64          `json:"version,omitempty"`
	Data    events.Payload `json:"data,omitempty"`
	Large   bool           `json:"large,omitempty"`
	// Keys are those of the values; all of them were removed before if Cleared.
	Keys    []string  `json:"keys,omitempty"`
	Cleared bool      `json:"cleared,omitempty"`
	At      time.Time `json:"at"`
}

// Settled says what became of a message.
type Settled struct {
	Instance string `json:"instance"`
	Message  string `json:"message"`
	// Verdict is accepted, ignored or dead; see [round.Reason] for the reasons.
	Verdict string       `json:"verdict"`
	Reason  round.Reason `json:"reason"`
	Detail  string       `json:"detail,omitempty"`
	// How the instance stood then, as far as the one who said so knew.
	Incarnation  string       `json:"incarnation,omitempty"`
	Execution    int64        `json:"execution,omitempty"`
	Status       round.Status `json:"status,omitempty"`
	StartMessage string       `json:"start_message,omitempty"`
}

// The verdicts of a receipt.
const (
	VerdictAccepted = "accepted"
	VerdictIgnored  = "ignored"
	VerdictDead     = "dead"
)

// Taken reports whether the message has changed history, now or when it came before.
func (s Settled) Taken() bool {
	return s.Verdict == VerdictAccepted || s.Verdict == VerdictIgnored &&
		(s.Reason == round.Duplicate || s.Reason == round.Woken)
}

// ---- Announcing.

// WantsReceipt reports whether a message asks for a receipt.
func WantsReceipt(h events.Header) bool {
	v := h[HeaderReceipt]
	return len(v) > 0 && v[0] == "true"
}

// AskReceipt makes a message ask for a receipt.
func AskReceipt(w *events.Wire) {
	if w.Header == nil {
		w.Header = events.Header{}
	}
	w.Header[HeaderReceipt] = []string{"true"}
}

// AnnounceTurn tells what a turn has changed. It is for after the commit, and does next to nothing
// for a turn of which there is nothing to tell. The error is for a log: who has not heard it asks.
func AnnounceTurn(n broker.Notices, t *round.Turn) error {
	if len(t.Executions) == 0 {
		return nil
	}
	var errs []error
	row := &t.Row
	for i := range t.Former {
		f := &t.Former[i]
		if f.Status != round.ContinuedAsNew && f.Incarnation != row.Incarnation &&
			f.LastEvent > lastBefore(t, f.Execution) {
			errs = append(errs, announceEnded(n, t.Instance, f, true))
		}
	}
	newIncarnation := row.Incarnation != t.Expected.Incarnation
	if row.CustomStatusVersion != t.Expected.CustomStatusVersion || newIncarnation && row.CustomStatusVersion > 0 {
		errs = append(errs, announceStatus(n, t.Instance, row))
	}
	if len(t.Values) > 0 || t.ClearValues {
		errs = append(errs, announceValues(n, t))
	}
	if row.Status.Ended() {
		errs = append(errs, announceEnded(n, t.Instance, row, false))
	}
	return errors.Join(errs...)
}

// lastBefore is the last event that an execution had before a turn.
func lastBefore(t *round.Turn, execution int64) int64 {
	if execution == t.Expected.Execution {
		return t.Expected.LastEvent
	}
	return 0
}

func announceEnded(n broker.Notices, instance string, row *round.Row, replaced bool) error {
	e := Ended{
		Instance: instance, Name: row.Name, Version: row.Version, Incarnation: row.Incarnation,
		Execution: row.Execution,
		Status:    row.Status, StartMessage: row.StartMessage,
		Parent: row.Parent, Output: row.Output, Error: row.Error, StartedAt: row.StartedAt, EndedAt: row.EndedAt,
		Replaced: replaced,
	}
	if len(e.Output) > maxNotice {
		e.Output, e.Error, e.Large = nil, nil, true
	}
	body, err := e.encode()
	if err == nil && len(body) > 2*maxNotice { // the error has many causes, or the output was no JSON
		e.Output, e.Error, e.Large = nil, nil, true
		body, err = e.encode()
	}
	if err != nil {
		return err
	}
	return n.Announce(words(TopicEnded, row.Name, instance), nil, body)
}

func announceStatus(n broker.Notices, instance string, row *round.Row) error {
	c := Changed{Instance: instance, Incarnation: row.Incarnation, Execution: row.Execution,
		Version: row.CustomStatusVersion,
		Data:    row.CustomStatus, At: row.UpdatedAt}
	if len(c.Data) > maxNotice {
		c.Data, c.Large = nil, true
	}
	body, err := marshal(c)
	if err != nil {
		return err
	}
	return n.Announce(words(TopicStatus, row.Name, instance), nil, body)
}

func announceValues(n broker.Notices, t *round.Turn) error {
	c := Changed{Instance: t.Instance, Incarnation: t.Row.Incarnation, Execution: t.Row.Execution,
		Cleared: t.ClearValues,
		At:      t.Row.UpdatedAt}
	for _, v := range t.Values {
		c.Keys = append(c.Keys, v.Key)
	}
	body, err := marshal(c)
	if err != nil {
		return err
	}
	return n.Announce(words(TopicValues, t.Row.Name, t.Instance), nil, body)
}

// AnnounceReceipt tells what became of a message that wants a receipt ([WantsReceipt]). It is for
// after the commit, and for messages that change nothing; what will come again is not announced.
// The row is how the instance stands after it, as far as that is known.
func AnnounceReceipt(n broker.Notices, instance string, row round.Row, message string, r round.Receipt) error {
	s := Settled{
		Instance: instance, Message: message, Reason: r.Reason, Detail: r.Detail,
		Incarnation: row.Incarnation, Execution: row.Execution, Status: row.Status, StartMessage: row.StartMessage,
	}
	switch r.Verdict {
	case round.Accepted:
		s.Verdict = VerdictAccepted
	case round.Ignored:
		s.Verdict = VerdictIgnored
	case round.Dead:
		s.Verdict = VerdictDead
	default:
		return nil
	}
	body, err := marshal(s)
	if err != nil {
		return err
	}
	return n.Announce(words(TopicSettled, shortID(message), instance), nil, body)
}

func announceDeleted(n broker.Notices, instance string) error {
	if events.CheckInstance(instance) != nil {
		return nil
	}
	return n.Announce(words(TopicDeleted, "-", instance), nil, nil)
}

// words are those that a notice is announced under. None may be empty.
func words(t Topic, name, instance string) []string {
	if name == "" {
		name = "-"
	}
	return []string{string(t), name, instance}
}

// shortID is a message id as a word of a subject, which the server bounds.
func shortID(id string) string {
	const most = 128
	if len(id) <= most {
		return id
	}
	return "…" + strconv.FormatUint(events.SeenHash(id), 16)
}

// ---- Listening.

// Listen calls heard for each notice about an instance, or about all of them ([broker.Any]), until
// stop is called. It returns when it is sure to hear what is announced from then on. Topics are
// those that are wanted; none stands for all.
func Listen(ctx context.Context, n broker.Notices, instance string, heard func(Notice),
	topics ...Topic) (stop func(), err error) {
	if len(topics) == 0 {
		topics = []Topic{broker.Any}
	}
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for _, t := range topics {
		s, err := n.Listen(ctx, []string{string(t), broker.Any, instance},
			func(words []string, _ events.Header, body []byte) {
				if len(words) == 3 && slices.Contains(allTopics, Topic(words[0])) {
					heard(Notice{Topic: Topic(words[0]), Name: words[1], Instance: words[2], body: body})
				}
			})
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, s)
	}
	return stop, nil
}

var allTopics = []Topic{TopicEnded, TopicStatus, TopicValues, TopicSettled, TopicDeleted}

// Ended reads a notice of [TopicEnded]. The second result is false for any other, and for one that
// cannot be read: who listens must not believe what comes.
func (n Notice) Ended() (e Ended, ok bool) {
	ok = n.Topic == TopicEnded && unmarshal(n.body, &e, false) == nil && e.Instance == n.Instance && e.Status.Ended()
	return e, ok
}

// Changed reads a notice of [TopicStatus] or [TopicValues].
func (n Notice) Changed() (c Changed, ok bool) {
	ok = (n.Topic == TopicStatus || n.Topic == TopicValues) && unmarshal(n.body, &c, false) == nil &&
		c.Instance == n.Instance
	return c, ok
}

// Settled reads a notice of [TopicSettled].
func (n Notice) Settled() (s Settled, ok bool) {
	ok = n.Topic == TopicSettled && unmarshal(n.body, &s, false) == nil && s.Instance == n.Instance &&
		slices.Contains([]string{VerdictAccepted, VerdictIgnored, VerdictDead}, s.Verdict)
	return s, ok
}
