package query

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/jsonw"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// Topic says what a notification is about.
type Topic string

// The topics.
const (
	TopicEnded   Topic = "ended"
	TopicStatus  Topic = "status"
	TopicValues  Topic = "values"
	TopicSettled Topic = "settled"
	TopicDeleted Topic = "deleted"
)

// HeaderReceipt with the value "true" asks for a notification of the outcome of a message.
const HeaderReceipt = "Rondo-Receipt"

// maxNotification is the size from which notifications leave out payloads: subscribers request
// those.
const maxNotification = 64 << 10

// Notification says that an instance has changed. Topic decides which method decodes the body:
// Ended, Changed or Settled.
type Notification struct {
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
	Output       codec.Payload  `json:"output,omitempty"`
	Error        *failure.Error `json:"error,omitempty"`
	// Large means that output and error were left out; clients can request them.
	Large     bool      `json:"large,omitempty"`
	StartedAt time.Time `json:"started_at"` // the last execution
	EndedAt   time.Time `json:"ended_at"`
	// Replaced means that another incarnation of the same id began at the same moment.
	Replaced bool `json:"replaced,omitempty"`
}

// encode writes the same as [marshal], without reflection, because there are very many.
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
	Version int64         `json:"version,omitempty"`
	Data    codec.Payload `json:"data,omitempty"`
	Large   bool          `json:"large,omitempty"`
	// Keys are those of the values; all of them were removed before if Cleared.
	Keys    []string  `json:"keys,omitempty"`
	Cleared bool      `json:"cleared,omitempty"`
	At      time.Time `json:"at"`
}

// Settled is the receipt of a message.
type Settled struct {
	Instance string `json:"instance"`
	Message  string `json:"message"`
	// Verb is that of the message. Senders may give messages of several verbs the same id.
	Verb events.Verb `json:"verb"`
	// Verdict is accepted, ignored or dead; see [round.Reason] for the reasons.
	Verdict string       `json:"verdict"`
	Reason  round.Reason `json:"reason"`
	Detail  string       `json:"detail,omitempty"`
	// The state of the instance then, as far as the orchestrator that settled the message knew it.
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

// Taken reports whether the message has changed history, with this delivery or an earlier one.
func (s Settled) Taken() bool {
	return s.Verdict == VerdictAccepted || s.Verdict == VerdictIgnored &&
		(s.Reason == round.Duplicate || s.Reason == round.Woken)
}

// IsOf reports whether the receipt is that of a message to its instance.
func (s Settled) IsOf(id string, verb events.Verb) bool { return s.Message == id && s.Verb == verb }

// ---- Publish.

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

// NotifyTurn publishes the changes of a turn. Callers call it after the commit. It costs next to
// nothing for a turn without such changes. The error is for a log: a client that misses a
// notification polls.
func NotifyTurn(n broker.Notifications, t *round.Turn) error {
	if len(t.Executions) == 0 {
		return nil
	}
	var errs []error
	row := &t.Row
	for i := range t.Former {
		f := &t.Former[i]
		if f.Status != round.ContinuedAsNew && f.Incarnation != row.Incarnation &&
			f.LastEvent > lastBefore(t, f.Execution) {
			errs = append(errs, notifyEnded(n, t.Instance, f, true))
		}
	}
	newIncarnation := row.Incarnation != t.Expected.Incarnation
	if row.CustomStatusVersion != t.Expected.CustomStatusVersion || newIncarnation && row.CustomStatusVersion > 0 {
		errs = append(errs, notifyStatus(n, t.Instance, row))
	}
	if len(t.Values) > 0 || t.ClearValues {
		errs = append(errs, notifyValues(n, t))
	}
	if row.Status.Ended() {
		errs = append(errs, notifyEnded(n, t.Instance, row, false))
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

func notifyEnded(n broker.Notifications, instance string, row *round.Row, replaced bool) error {
	e := Ended{
		Instance: instance, Name: row.Name, Version: row.Version, Incarnation: row.Incarnation,
		Execution: row.Execution,
		Status:    row.Status, StartMessage: row.StartMessage,
		Parent: row.Parent, Output: row.Output, Error: row.Error, StartedAt: row.StartedAt, EndedAt: row.EndedAt,
		Replaced: replaced,
	}
	if len(e.Output) > maxNotification {
		e.Output, e.Error, e.Large = nil, nil, true
	}
	body, err := e.encode()
	if err == nil && len(body) > 2*maxNotification { // the error has many causes, or the output was no JSON
		e.Output, e.Error, e.Large = nil, nil, true
		body, err = e.encode()
	}
	if err != nil {
		return err
	}
	return n.Notify(words(TopicEnded, row.Name, instance), nil, body)
}

func notifyStatus(n broker.Notifications, instance string, row *round.Row) error {
	c := Changed{Instance: instance, Incarnation: row.Incarnation, Execution: row.Execution,
		Version: row.CustomStatusVersion,
		Data:    row.CustomStatus, At: row.UpdatedAt}
	if len(c.Data) > maxNotification {
		c.Data, c.Large = nil, true
	}
	body, err := marshal(c)
	if err != nil {
		return err
	}
	return n.Notify(words(TopicStatus, row.Name, instance), nil, body)
}

func notifyValues(n broker.Notifications, t *round.Turn) error {
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
	return n.Notify(words(TopicValues, t.Row.Name, t.Instance), nil, body)
}

// NotifyReceipt publishes the receipt of a message that wants one ([WantsReceipt]). Callers call it
// after the commit, and for messages that change nothing. It publishes nothing for a message that
// the broker will redeliver. The row is the state of the instance after the message, as far as it
// is known.
func NotifyReceipt(n broker.Notifications, row round.Row, m events.Message, r round.Receipt) error {
	s := Settled{
		Instance: m.Instance, Message: m.ID, Verb: m.Content.Verb(), Reason: r.Reason, Detail: r.Detail,
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
	return n.Notify(words(TopicSettled, shortID(m.ID), m.Instance), nil, body)
}

func notifyDeleted(n broker.Notifications, instance string) error {
	if events.CheckInstance(instance) != nil {
		//lint:ignore nilerr there is no subscriber to an instance without a valid id
		return nil
	}
	return n.Notify(words(TopicDeleted, "-", instance), nil, nil)
}

// words returns the words of a notification's subject. None may be empty.
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

// ---- Subscribe.

// Listen calls heard for each notification about an instance, or about all of them ([broker.Any]),
// until stop is called. When it returns, the subscription is active. Default: all topics.
func Listen(ctx context.Context, n broker.Notifications, instance string, heard func(Notification),
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
					heard(Notification{Topic: Topic(words[0]), Name: words[1], Instance: words[2], body: body})
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

// Ended reads a notification of [TopicEnded]. The second result is false for any other, and for one
// that is not valid: subscribers must not trust its sender.
func (n Notification) Ended() (e Ended, ok bool) {
	ok = n.Topic == TopicEnded && unmarshal(n.body, &e, false) == nil && e.Instance == n.Instance && e.Status.Ended()
	return e, ok
}

// Changed reads a notification of [TopicStatus] or [TopicValues].
func (n Notification) Changed() (c Changed, ok bool) {
	ok = (n.Topic == TopicStatus || n.Topic == TopicValues) && unmarshal(n.body, &c, false) == nil &&
		c.Instance == n.Instance
	return c, ok
}

// Settled reads a notification of [TopicSettled].
func (n Notification) Settled() (s Settled, ok bool) {
	ok = n.Topic == TopicSettled && unmarshal(n.body, &s, false) == nil && s.Instance == n.Instance &&
		slices.Contains([]string{VerdictAccepted, VerdictIgnored, VerdictDead}, s.Verdict)
	return s, ok
}
