package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/x/jsonw"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Wire is a message as the broker takes it. The body is the user's value and nothing else;
// everything the engine adds stands in the subject and in headers, so that operators can read and
// write these messages with any NATS tool.
type Wire struct {
	Subject string
	Header  Header
	Body    []byte
	// NotBefore delays the message; zero means at once.
	NotBefore time.Time
	// Purge asks the broker to remove the message that is stored under the subject, instead of
	// publishing.
	Purge bool
	// DirectTo is the subject to which a result may be delivered directly, as the task said in
	// HeaderDirectReply. A broker without direct delivery publishes it under its subject.
	DirectTo string
	// Direct says that a task may be delivered directly to a worker that has room for it, instead
	// of being stored. A broker without direct delivery stores it.
	Direct bool
}

// Header has the shape of NATS and HTTP headers.
type Header map[string][]string

// The headers.
const (
	// HeaderMsgID is the id of the message: two messages to one instance that have the same id are
	// one.
	HeaderMsgID = "Rondo-Id"
	// HeaderNATSMsgID does as message id where a client sends no HeaderMsgID. NATS itself compares
	// it with those of all messages in the stream, whichever instance they are for.
	HeaderNATSMsgID = "Nats-Msg-Id"
	HeaderTrace     = "traceparent"

	HeaderTraceState = "tracestate"
	HeaderBaggage    = "baggage"

	// A CloudEvents id (with its source) does as message id, too.
	HeaderCloudEventID     = "ce-id"
	HeaderCloudEventSource = "ce-source"

	// HeaderSent says when a message was sent first, however often it is published again.
	HeaderSent = "Rondo-Sent"

	// HeaderDirectReply is the subject to which results of a task may be delivered directly.
	HeaderDirectReply = "Rondo-Direct-Reply"
	// HeaderHeld says which worker has had work since before it was stored.
	HeaderHeld = "Rondo-Held"

	HeaderVersion    = "Rondo-Version"
	HeaderConflict   = "Rondo-Conflict"
	HeaderParent     = "Rondo-Parent"
	HeaderAttributes = "Rondo-Attributes"
	HeaderMessages   = "Rondo-Messages"
	// HeaderUnknownFields says what becomes of fields of an input, of an event or of a mailbox
	// message that the orchestration does not know.
	HeaderUnknownFields = "Rondo-Unknown-Fields"

	HeaderIncarnation = "Rondo-Incarnation"
	HeaderWorker      = "Rondo-Worker"
	HeaderPending     = "Rondo-Pending"
	HeaderHeartbeat   = "Rondo-Heartbeat"
	HeaderDue         = "Rondo-Due"
	HeaderOutcome     = "Rondo-Outcome"

	HeaderOrchestration    = "Rondo-Orchestration"
	HeaderSession          = "Rondo-Session"
	HeaderAttempt          = "Rondo-Attempt"
	HeaderIdempotencyKey   = "Rondo-Idempotency-Key"
	HeaderStartBy          = "Rondo-Start-By"
	HeaderDeadline         = "Rondo-Deadline"
	HeaderStartToClose     = "Rondo-Start-To-Close"
	HeaderHeartbeatTimeout = "Rondo-Heartbeat-Timeout"
)

// DefaultPrefix begins every subject unless a namespace says otherwise.
const DefaultPrefix = "rondo"

// defaultTag stands in a work subject for "no tag". A tag of that name is percent-encoded.
const defaultTag = "_"

func (h Header) get(key string) string {
	if v := h[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// set leaves empty values out.
func (h Header) set(key, value string) {
	if value != "" {
		h[key] = []string{value}
	}
}

// ofClients leaves out what only the services may say.
func (h Header) ofClients() Header {
	_, parent := h[HeaderParent]
	if _, incarnation := h[HeaderIncarnation]; !parent && !incarnation {
		return h
	}
	h = maps.Clone(h)
	delete(h, HeaderParent)
	delete(h, HeaderIncarnation)
	return h
}

func (h Header) refuseUnknown(is bool) {
	if is {
		h.set(HeaderUnknownFields, refuseFields)
	}
}

func (h Header) setTime(key string, t time.Time) {
	if !t.IsZero() {
		h.set(key, t.UTC().Format(time.RFC3339Nano))
	}
}

func (h Header) setDuration(key string, d time.Duration) {
	if d != 0 {
		h.set(key, d.String())
	}
}

func (h Header) setHeartbeat(p codec.Payload) error {
	if len(p) == 0 {
		return nil
	}
	b, err := jsonw.Marshal(p)
	if err == nil {
		h.set(HeaderHeartbeat, string(b))
	}
	return err
}

// Encode writes a message for the broker.
func Encode(prefix string, m Message) (Wire, error) {
	w := Wire{Header: Header{}, NotBefore: m.NotBefore}
	w.Header.set(HeaderMsgID, m.ID)
	w.Header.setTime(HeaderSent, m.Sent)
	w.Header.set(HeaderTrace, m.Trace)
	w.Header.set(HeaderTraceState, m.TraceState)
	w.Header.set(HeaderBaggage, m.Baggage)
	to := func(verb Verb, tokens ...string) {
		if m.Internal && verb.fromClients() {
			verb = internal + verb
		}
		w.Subject = prefix + "." + string(verb) + "." + strings.Join(tokens, ".") + "." + EncodeToken(m.Instance)
	}
	ref := func(r Ref) string {
		w.Header.set(HeaderIncarnation, r.Incarnation)
		return r.Place()
	}
	// A message that is stored until a moment, or until a worker takes it, may be withdrawn by its
	// subject. So that names the incarnation, too: an id that is used again counts its events from
	// 1 again.
	only := func(r Ref) string {
		w.Header.set(HeaderIncarnation, r.Incarnation)
		return r.token()
	}
	if m.Instance == "" {
		return Wire{}, errors.New("a message to nobody")
	}
	if err := checkOrigin(m); err != nil {
		return Wire{}, fmt.Errorf("message to %q: %w", m.Instance, err)
	}
	var err error
	switch c := m.Content.(type) {
	case *Start:
		to(VerbStart, EncodeToken(c.Orchestration))
		err = encodeStart(c, &w)
	case *EventRaised:
		to(VerbEvent, EncodeToken(c.Name))
		w.Body = c.Data
		w.Header.refuseUnknown(c.RefuseUnknown)
	case *MailboxMessage:
		to(VerbMailbox, EncodeToken(c.Mailbox))
		w.Body = c.Data
		w.Header.refuseUnknown(c.RefuseUnknown)
	case *Control:
		to(VerbControl, EncodeToken(string(c.How)))
		w.Body, err = encodeReason(c.Reason)
		if c.Parent != nil {
			w.Header.set(HeaderParent, encodeParent(*c.Parent))
		}
		w.Header.set(HeaderIncarnation, c.Incarnation)
	case *Wake:
		to(VerbWake, EncodeToken(c.Reason))
	case *TaskBegun:
		to(VerbBegun, ref(c.Ref))
		w.Header.set(HeaderWorker, c.Worker)
		if c.Pending {
			w.Header.set(HeaderPending, "true")
		}
	case *TaskDone:
		to(VerbDone, ref(c.Ref))
		w.Header.set(HeaderWorker, c.Worker)
		w.Body = c.Result
	case *TaskFailed:
		to(VerbFail, ref(c.Ref))
		w.Header.set(HeaderWorker, c.Worker)
		if err = w.Header.setHeartbeat(c.Heartbeat); err == nil {
			w.Body, err = encodeError(c.Error)
		}
	case *TimerDue:
		to(VerbTimer, only(c.Ref))
		w.Header.setTime(HeaderDue, c.Due)
	case *ChildDone:
		to(VerbChild, ref(c.Ref))
		w.Header.set(HeaderOutcome, "done")
		w.Body = c.Output
	case *ChildError:
		to(VerbChild, ref(c.Ref))
		w.Header.set(HeaderOutcome, "failed")
		w.Body, err = encodeError(c.Error)
	case *Task:
		to(VerbTask, encodeTag(c.Tag), EncodeToken(c.Activity), only(c.Ref))
		err = encodeTask(c, &w)
	case *WithdrawTask:
		to(VerbTask, encodeTag(c.Tag), EncodeToken(c.Activity), only(c.Ref))
		w.Purge, w.Header = true, nil
	case *WithdrawTimer:
		to(VerbTimer, only(c.Ref))
		w.Purge, w.Header = true, nil
	default:
		return Wire{}, fmt.Errorf("a message that says %T does not travel", m.Content)
	}
	if err == nil && strings.Contains(w.Subject, "..") {
		err = fmt.Errorf("subject %q has an empty word", w.Subject)
	}
	if err != nil {
		return Wire{}, fmt.Errorf("message to %q: %w", m.Instance, err)
	}
	return w, nil
}

func encodeStart(c *Start, w *Wire) error {
	w.Body = c.Input
	h := w.Header
	h.set(HeaderVersion, c.Version)
	h.set(HeaderConflict, string(c.Conflict))
	if c.IgnoreUnknown {
		h.set(HeaderUnknownFields, ignoreFields)
	}
	if c.Parent != nil {
		h.set(HeaderParent, encodeParent(*c.Parent))
	}
	if len(c.Attributes) > 0 {
		b, err := jsonw.Marshal(c.Attributes)
		if err != nil {
			return err
		}
		h.set(HeaderAttributes, string(b))
	}
	if len(c.Messages) > 0 {
		b, err := jsonw.Marshal(c.Messages)
		if err != nil {
			return err
		}
		h.set(HeaderMessages, string(b))
	}
	return nil
}

func encodeTask(c *Task, w *Wire) error {
	w.Body = c.Input
	h := w.Header
	h.set(HeaderOrchestration, EncodeToken(c.Orchestration))
	h.set(HeaderVersion, c.Version)
	h.set(HeaderSession, EncodeToken(c.Session))
	h.set(HeaderAttempt, strconv.Itoa(c.Attempt))
	h.set(HeaderIdempotencyKey, c.IdempotencyKey)
	h.setTime(HeaderStartBy, c.StartBy)
	h.setTime(HeaderDeadline, c.Deadline)
	h.setDuration(HeaderStartToClose, c.StartToClose)
	h.setDuration(HeaderHeartbeatTimeout, c.HeartbeatTimeout)
	return h.setHeartbeat(c.Heartbeat)
}

func encodeTag(tag string) string {
	switch tag {
	case "":
		return defaultTag
	case defaultTag:
		return "%5F"
	}
	return EncodeToken(tag)
}

func encodeParent(p Parent) string {
	return Ref{Execution: p.Execution, Event: p.Event}.Place() + "." + p.Incarnation + "." + EncodeToken(p.Instance)
}

func decodeParent(s string) (*Parent, error) {
	tokens := strings.SplitN(s, ".", 3)
	if len(tokens) != 3 {
		return nil, fmt.Errorf("header %s: %q is not <execution>-<event>.<incarnation>.<instance>", HeaderParent, s)
	}
	execution, event, err := decodePlace(tokens[0])
	if err != nil {
		return nil, err
	}
	instance, err := DecodeToken(tokens[2])
	if err != nil {
		return nil, err
	}
	p := &Parent{Instance: instance, Incarnation: tokens[1], Execution: execution, Event: event}
	if err := errors.Join(CheckInstance(instance), checkText("incarnation", p.Incarnation, MaxName)); err != nil {
		return nil, fmt.Errorf("header %s: %w", HeaderParent, err)
	}
	return p, nil
}

func encodeError(e *failure.Error) ([]byte, error) {
	if err := checkError(e); err != nil {
		return nil, err
	}
	return jsonw.Marshal(Bounded(e))
}

// decodeError reads an error as other languages write it: the JSON of an [failure.Error], in which
// only the message is needed, or plain words.
func decodeError(body []byte) *failure.Error {
	var e failure.Error
	if err := json.Unmarshal(body, &e); err == nil && (e.Message != "" || e.Kind != "") {
		if e.Kind == "" {
			e.Kind = failure.Application
		}
		if checkOptional(e.Cause) != nil {
			e.Cause = nil
		}
		return Bounded(&e)
	}
	var text string
	if json.Unmarshal(body, &text) != nil {
		text = strings.ToValidUTF8(string(body), "?")
	}
	if text == "" {
		text = "failed without saying why"
	}
	return Bounded(failure.Errorf(failure.Application, "%s", text))
}
