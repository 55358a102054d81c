package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Wire is a message as the broker takes it. The body is the user's value and nothing else; everything the engine adds stands in
// the subject and in headers, so that people can read and write these messages with any NATS tool.
type Wire struct {
	Subject string
	Header  Header
	Body    []byte
	// NotBefore delays the message; zero means at once.
	NotBefore time.Time
	// Purge asks the broker to remove what is stored under the subject, instead of publishing.
	Purge bool
	// Back is where a result may go to be there sooner, as the work said in HeaderBack. A broker that knows no such way publishes it under its subject.
	Back string
	// Pass says that work may be passed to a worker that has room for it, instead of being stored. A broker that knows no such way stores it.
	Pass bool
}

// Header has the shape of NATS and HTTP headers.
type Header map[string][]string

// The headers.
const (
	// HeaderMsgID is the id of the message: two messages to one instance that have the same id are one.
	HeaderMsgID = "Rondo-Id"
	// HeaderNATSMsgID does as message id where a client sends no HeaderMsgID. NATS itself compares it with those of all
	// messages in the stream, whichever instance they are for.
	HeaderNATSMsgID = "Nats-Msg-Id"
	HeaderTrace     = "traceparent"

	HeaderTraceState = "tracestate"
	HeaderBaggage    = "baggage"

	// A CloudEvents id (with its source) does as message id, too.
	HeaderCloudEventID     = "ce-id"
	HeaderCloudEventSource = "ce-source"

	// HeaderSent says when a message was sent first, however often it is published again.
	HeaderSent = "Rondo-Sent"

	// HeaderBack says where results of work may go to be there sooner.
	HeaderBack = "Rondo-Back"
	// HeaderHeld says which worker has had work since before it was stored.
	HeaderHeld = "Rondo-Held"

	HeaderVersion    = "Rondo-Version"
	HeaderConflict   = "Rondo-Conflict"
	HeaderParent     = "Rondo-Parent"
	HeaderAttributes = "Rondo-Attributes"
	HeaderMessages   = "Rondo-Messages"
	// HeaderUnknownFields says what becomes of fields of an input that the orchestration does not know.
	HeaderUnknownFields = "Rondo-Unknown-Fields"

	HeaderLife      = "Rondo-Life"
	HeaderWorker    = "Rondo-Worker"
	HeaderPending   = "Rondo-Pending"
	HeaderHeartbeat = "Rondo-Heartbeat"
	HeaderDue       = "Rondo-Due"
	HeaderOutcome   = "Rondo-Outcome"

	HeaderOrchestration    = "Rondo-Orchestration"
	HeaderSession          = "Rondo-Session"
	HeaderPriority         = "Rondo-Priority"
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
	if _, says := h[HeaderParent]; !says {
		return h
	}
	h = maps.Clone(h)
	delete(h, HeaderParent)
	return h
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
		w.Header.set(HeaderLife, r.Life)
		return r.Place()
	}
	// What is stored until a moment, or until a worker takes it, may be withdrawn by its subject. So that names the
	// incarnation, too: an id that is used again counts its events from 1 again.
	only := func(r Ref) string {
		w.Header.set(HeaderLife, r.Life)
		return r.token()
	}
	if m.Instance == "" {
		return Wire{}, errors.New("a message to nobody")
	}
	var err error
	switch c := m.Content.(type) {
	case *Start:
		to(VerbStart, EncodeToken(c.Orchestration))
		w.Body = c.Input
		w.Header.set(HeaderVersion, c.Version)
		w.Header.set(HeaderConflict, string(c.Conflict))
		if c.IgnoreUnknown {
			w.Header.set(HeaderUnknownFields, ignoreFields)
		}
		if c.Parent != nil {
			w.Header.set(HeaderParent, encodeParent(*c.Parent))
		}
		if len(c.Attributes) > 0 {
			var b []byte
			b, err = marshal(c.Attributes)
			w.Header.set(HeaderAttributes, string(b))
		}
		if err == nil && len(c.Messages) > 0 {
			var b []byte
			b, err = marshal(c.Messages)
			w.Header.set(HeaderMessages, string(b))
		}
	case *EventRaised:
		to(VerbEvent, EncodeToken(c.Name))
		w.Body = c.Data
	case *QueueSent:
		to(VerbQueue, EncodeToken(c.Queue))
		w.Body = c.Data
	case *Control:
		to(VerbControl, EncodeToken(string(c.How)))
		w.Body, err = encodeReason(c.Reason)
		if c.Parent != nil {
			w.Header.set(HeaderParent, encodeParent(*c.Parent))
		}
	case *Wake:
		to(VerbWake, EncodeToken(c.Reason))
	case *WorkBegun:
		to(VerbBegun, ref(c.Ref))
		w.Header.set(HeaderWorker, c.Worker)
		if c.Pending {
			w.Header.set(HeaderPending, "true")
		}
	case *WorkDone:
		to(VerbDone, ref(c.Ref))
		w.Header.set(HeaderWorker, c.Worker)
		w.Body = c.Result
	case *WorkFailed:
		to(VerbFail, ref(c.Ref))
		w.Header.set(HeaderWorker, c.Worker)
		if len(c.Heartbeat) > 0 {
			var b []byte
			b, err = marshal(c.Heartbeat)
			w.Header.set(HeaderHeartbeat, string(b))
		}
		if err == nil {
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
	case *Work:
		to(VerbWork, encodeTag(c.Tag), EncodeToken(c.Activity), only(c.Ref))
		err = encodeWork(c, &w)
	case *WithdrawWork:
		to(VerbWork, encodeTag(c.Tag), EncodeToken(c.Activity), only(c.Ref))
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

func encodeWork(c *Work, w *Wire) error {
	w.Body = c.Input
	h := w.Header
	h.set(HeaderOrchestration, EncodeToken(c.Orchestration))
	h.set(HeaderVersion, c.Version)
	h.set(HeaderSession, EncodeToken(c.Session))
	if c.Priority != 0 {
		h.set(HeaderPriority, strconv.Itoa(c.Priority))
	}
	h.set(HeaderAttempt, strconv.Itoa(c.Attempt))
	h.set(HeaderIdempotencyKey, c.IdempotencyKey)
	h.setTime(HeaderStartBy, c.StartBy)
	h.setTime(HeaderDeadline, c.Deadline)
	h.setDuration(HeaderStartToClose, c.StartToClose)
	h.setDuration(HeaderHeartbeatTimeout, c.HeartbeatTimeout)
	if len(c.Heartbeat) > 0 {
		b, err := marshal(c.Heartbeat)
		if err != nil {
			return err
		}
		h.set(HeaderHeartbeat, string(b))
	}
	return nil
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
	return Ref{Execution: p.Execution, Event: p.Event}.Place() + "." + p.Life + "." + EncodeToken(p.Instance)
}

func decodeParent(s string) (*Parent, error) {
	tokens := strings.SplitN(s, ".", 3)
	if len(tokens) != 3 {
		return nil, fmt.Errorf("header %s: %q is not <execution>-<event>.<life>.<instance>", HeaderParent, s)
	}
	execution, event, err := decodePlace(tokens[0])
	if err != nil {
		return nil, err
	}
	instance, err := DecodeToken(tokens[2])
	if err != nil {
		return nil, err
	}
	p := &Parent{Instance: instance, Life: tokens[1], Execution: execution, Event: event}
	if err := errors.Join(CheckInstance(instance), checkText("life", p.Life, MaxName)); err != nil {
		return nil, fmt.Errorf("header %s: %w", HeaderParent, err)
	}
	return p, nil
}

func encodeError(e *Error) ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	return marshal(e.Bounded())
}

// decodeError reads an error as people write it: the JSON of an [Error], in which only the message is needed, or plain words.
func decodeError(body []byte) *Error {
	var e Error
	if err := json.Unmarshal(body, &e); err == nil && (e.Message != "" || e.Kind != "") {
		if e.Kind == "" {
			e.Kind = Application
		}
		if e.Cause.checkOptional() != nil {
			e.Cause = nil
		}
		return e.Bounded()
	}
	var text string
	if json.Unmarshal(body, &text) != nil {
		text = strings.ToValidUTF8(string(body), "?")
	}
	if text == "" {
		text = "failed without saying why"
	}
	return Errorf(Application, "%s", text).Bounded()
}

// Decode reads a message. The fallback is its id when it brings none; it must be the same each time the message is delivered. Anything that does not follow the
// protocol is an error that says what is wrong with it, for the dead letter.
func Decode(prefix, subject string, h Header, body []byte, fallback string) (Message, error) {
	m, err := decode(prefix, subject, h, body, fallback)
	if err != nil {
		return Message{}, fmt.Errorf("message on %q: %w", cut(strings.ToValidUTF8(subject, "?"), 256), err)
	}
	return m, nil
}

func decode(prefix, subject string, h Header, body []byte, fallback string) (Message, error) {
	rest, ok := strings.CutPrefix(subject, prefix+".")
	if !ok {
		return Message{}, fmt.Errorf("it does not begin with %q", prefix+".")
	}
	tokens := strings.Split(rest, ".")
	if len(tokens) < 3 || tokens[0] == string(VerbWork) && len(tokens) != 5 || tokens[0] != string(VerbWork) && len(tokens) != 3 {
		return Message{}, fmt.Errorf("it has %d words after the prefix; expected <verb>.<name>.<instance>, dots inside a name or an id written as %%2E", len(tokens))
	}
	if slices.Contains(tokens, "") {
		return Message{}, errors.New("it has an empty word; expected <verb>.<name>.<instance>")
	}
	if len(body) > MaxPayload {
		return Message{}, CheckPayload("body", body)
	}
	instance, err := DecodeToken(tokens[len(tokens)-1])
	if err != nil {
		return Message{}, err
	}
	if err := CheckInstance(instance); err != nil {
		return Message{}, err
	}
	m := Message{ID: messageID(h, fallback), Instance: instance, Trace: cut(strings.ToValidUTF8(h.get(HeaderTrace), "?"), MaxAttribute)}
	m.TraceState, m.Baggage = upTo(MaxTraceState, h.get(HeaderTraceState)), upTo(MaxBaggage, h.get(HeaderBaggage))
	if m.Sent, err = decodeTime(h, HeaderSent); err != nil {
		return Message{}, err
	}
	verb, internally := Origin(tokens[0])
	m.Internal = internally && verb.fromClients()
	if !internally {
		h = h.ofClients()
	}
	m.Content, err = decodeContent(verb, tokens[1:len(tokens)-1], h, body)
	if err != nil {
		return Message{}, err
	}
	if start, ok := m.Content.(*Start); ok && start.Parent == nil && !launched(m) {
		err = CheckChosenInstance(instance)
	}
	return m, err
}

// upTo leaves out what is longer than it may be, or no text: half of it would say something else.
func upTo(most int, s string) string {
	if len(s) > most || !utf8.ValidString(s) {
		return ""
	}
	return s
}

// launched reports whether the engine made both the id of a start and that of the instance it starts: nobody waits for such an instance,
// but nobody chose its id either.
func launched(m Message) bool {
	if !m.Internal {
		return false
	}
	parts := strings.SplitN(m.ID, "/", 4) // see MessageID
	if len(parts) != 4 || parts[0] != string(VerbStart) {
		return false
	}
	execution, event, err := decodePlace(parts[1])
	if err != nil {
		return false
	}
	launcher, err := DecodeToken(parts[3])
	return err == nil && ChildID(launcher, execution, event) == m.Instance
}

// messageID is what the publisher said it is, as far as that can be kept.
func messageID(h Header, fallback string) string {
	for _, name := range []string{HeaderMsgID, HeaderNATSMsgID} {
		if id := h.get(name); id != "" {
			return boundedID(id)
		}
	}
	if id := h.get(HeaderCloudEventID); id != "" {
		return boundedID("ce:" + h.get(HeaderCloudEventSource) + "/" + id)
	}
	return fallback
}

// boundedID keeps ids short and printable, and different ones different.
func boundedID(id string) string {
	if checkText("message id", id, MaxInstanceID*4) == nil {
		return id
	}
	return fmt.Sprintf("%s…%016x", EncodeToken(cut(strings.ToValidUTF8(id, "?"), 64)), SeenHash(id))
}

func decodeContent(verb Verb, tokens []string, h Header, body []byte) (Content, error) {
	name, err := DecodeToken(tokens[0])
	if err != nil {
		return nil, err
	}
	switch verb {
	case VerbStart:
		if err := CheckName("orchestration", name); err != nil {
			return nil, err
		}
		return decodeStart(name, h, body)
	case VerbEvent:
		if err := CheckName("event", name); err != nil {
			return nil, err
		}
		return &EventRaised{Name: name, Data: Canonical(body)}, nil
	case VerbQueue:
		if err := CheckName("queue", name); err != nil {
			return nil, err
		}
		return &QueueSent{Queue: name, Data: Canonical(body)}, nil
	case VerbControl:
		switch how := How(name); how {
		case Cancel, Terminate, Suspend, Resume:
			c := &Control{How: how, Reason: decodeReason(body)}
			if v := h.get(HeaderParent); v != "" {
				if c.Parent, err = decodeParent(v); err != nil {
					return nil, err
				}
			}
			return c, nil
		}
		return nil, fmt.Errorf("unknown control %q; known are cancel, terminate, suspend and resume", name)
	case VerbWake:
		return &Wake{Reason: cut(strings.ToValidUTF8(name, "?"), MaxName)}, nil
	case VerbWork:
		return decodeWork(tokens, h, body)
	case VerbBegun, VerbDone, VerbFail, VerbTimer, VerbChild:
		return decodeAnswer(verb, tokens[0], h, body)
	}
	return nil, fmt.Errorf("unknown verb %q; people may use start, event, queue and control", verb)
}

// encodeReason writes plain words, unless they would be read as JSON.
func encodeReason(reason string) ([]byte, error) {
	if decodeReason([]byte(reason)) == reason {
		return []byte(reason), nil
	}
	return marshal(cut(strings.ToValidUTF8(reason, "?"), MaxReason))
}

// decodeReason takes plain words or a JSON string.
func decodeReason(body []byte) string {
	var text string
	if json.Unmarshal(body, &text) != nil {
		text = string(body)
	}
	return cut(strings.ToValidUTF8(text, "?"), MaxReason)
}

// The values of HeaderUnknownFields.
const refuseFields, ignoreFields = "refuse", "ignore"

func decodeStart(name string, h Header, body []byte) (Content, error) {
	s := &Start{Orchestration: name, Version: h.get(HeaderVersion), Input: Canonical(body), Conflict: StartConflict(h.get(HeaderConflict))}
	switch s.Conflict {
	case KeepExisting, RestartFinished, ReplaceRunning, RejectExisting:
	default:
		return nil, fmt.Errorf("header %s: %q is none of %q, %q and %q", HeaderConflict, s.Conflict, RejectExisting, RestartFinished, ReplaceRunning)
	}
	switch v := h.get(HeaderUnknownFields); v {
	case "", refuseFields:
	case ignoreFields:
		s.IgnoreUnknown = true
	default:
		return nil, fmt.Errorf("header %s: %q is neither %q nor %q", HeaderUnknownFields, v, refuseFields, ignoreFields)
	}
	if len(s.Version) > MaxName || !utf8.ValidString(s.Version) {
		return nil, fmt.Errorf("header %s: not a version", HeaderVersion)
	}
	if v := h.get(HeaderParent); v != "" {
		parent, err := decodeParent(v)
		if err != nil {
			return nil, err
		}
		s.Parent = parent
	}
	if v := h.get(HeaderAttributes); v != "" {
		if err := json.Unmarshal([]byte(v), &s.Attributes); err != nil {
			return nil, fmt.Errorf("header %s: want a JSON object of strings: %w", HeaderAttributes, err)
		}
		if err := CheckAttributes(s.Attributes); err != nil {
			return nil, err
		}
	}
	return s, decodeMessages(s, h)
}

// decodeMessages reads the messages that a start brings along.
func decodeMessages(s *Start, h Header) error {
	v := h.get(HeaderMessages)
	if v == "" {
		return nil
	}
	if err := unmarshalStrict([]byte(v), &s.Messages); err != nil {
		return fmt.Errorf("header %s: want a JSON array of {\"queue\":…,\"data\":…}: %w", HeaderMessages, err)
	}
	return CheckStartMessages(s.Input, s.Messages)
}

// CheckStartMessages tells what is wrong with the messages that a start with this input brings along, if anything.
func CheckStartMessages(input Payload, messages []StartMessage) error {
	size := len(input)
	for _, m := range messages {
		if err := CheckName("queue", m.Queue); err != nil {
			return err
		}
		size += len(m.Data) + len(m.Queue) + startMessageRoom
	}
	const cure = "send some of them by themselves, or keep the data in a store and pass references"
	switch {
	case len(messages) > MaxStartMessages:
		return Limit("messages of a start", int64(len(messages)), MaxStartMessages, cure)
	case len(messages) > 0 && size > MaxPayload:
		return Limit("input and messages of a start (bytes)", int64(size), MaxPayload, cure)
	}
	return nil
}

// startMessageRoom is what each message takes in the header beside its data.
const startMessageRoom = 32

// CheckAttributes tells what is wrong with the attributes of a start, if anything.
func CheckAttributes(attributes map[string]string) error {
	if len(attributes) > MaxAttributes {
		return Limit("attributes", int64(len(attributes)), MaxAttributes, "keep to what instances are searched by")
	}
	for k, v := range attributes {
		if err := checkText("attribute name", k, MaxAttribute); err != nil {
			return err
		}
		if v != "" && checkText("value", v, MaxAttribute) != nil {
			return fmt.Errorf("attribute %q: its value must be printable text of at most %d bytes", k, MaxAttribute)
		}
	}
	return nil
}

func decodeAnswer(verb Verb, place string, h Header, body []byte) (Content, error) {
	ref, err := decodeRef(place, h)
	if err != nil {
		return nil, err
	}
	worker := cut(strings.ToValidUTF8(h.get(HeaderWorker), "?"), MaxName)
	switch verb {
	case VerbBegun:
		return decodeBegun(ref, worker, h)
	case VerbDone:
		return &WorkDone{Ref: ref, Worker: worker, Result: Canonical(body)}, nil
	case VerbFail:
		heartbeat, err := decodeHeartbeat(h)
		if err != nil {
			return nil, err
		}
		return &WorkFailed{Ref: ref, Worker: worker, Error: decodeError(body), Heartbeat: heartbeat}, nil
	case VerbTimer:
		due, err := decodeTime(h, HeaderDue)
		if err != nil {
			return nil, err
		}
		return &TimerDue{Ref: ref, Due: due}, nil
	default:
		switch outcome := h.get(HeaderOutcome); outcome {
		case "done":
			return &ChildDone{Ref: ref, Output: Canonical(body)}, nil
		case "failed":
			return &ChildError{Ref: ref, Error: decodeError(body)}, nil
		default:
			return nil, fmt.Errorf("header %s: %q is neither done nor failed", HeaderOutcome, outcome)
		}
	}
}

func decodeBegun(ref Ref, worker string, h Header) (Content, error) {
	c := &WorkBegun{Ref: ref, Worker: worker}
	if v := h.get(HeaderPending); v != "" {
		var err error
		if c.Pending, err = strconv.ParseBool(v); err != nil {
			return nil, fmt.Errorf("header %s: %q is neither true nor false", HeaderPending, cut(strings.ToValidUTF8(v, "?"), 64))
		}
	}
	return c, nil
}

func decodeWork(tokens []string, h Header, body []byte) (Content, error) {
	c := &Work{Input: Canonical(body), Version: h.get(HeaderVersion), IdempotencyKey: h.get(HeaderIdempotencyKey)}
	var errs []error
	keep := func(dst *string, s string, err error) {
		*dst = s
		errs = append(errs, err)
	}
	if tokens[0] != defaultTag {
		tag, err := DecodeToken(tokens[0])
		keep(&c.Tag, tag, err)
	}
	activity, err := DecodeToken(tokens[1])
	keep(&c.Activity, activity, err)
	session, err := DecodeToken(h.get(HeaderSession))
	keep(&c.Session, session, err)
	orchestration, err := DecodeToken(h.get(HeaderOrchestration))
	keep(&c.Orchestration, orchestration, err)
	if c.Ref, err = decodeRef(tokens[2], h); err != nil {
		errs = append(errs, err)
	}
	if c.Attempt, err = strconv.Atoi(h.get(HeaderAttempt)); err != nil || c.Attempt < 1 {
		errs = append(errs, fmt.Errorf("header %s: %q is not a count from 1", HeaderAttempt, h.get(HeaderAttempt)))
	}
	if v := h.get(HeaderPriority); v != "" {
		if c.Priority, err = strconv.Atoi(v); err != nil {
			errs = append(errs, fmt.Errorf("header %s: %q is not a number", HeaderPriority, v))
		}
	}
	times := []struct {
		key string
		dst *time.Time
	}{{HeaderStartBy, &c.StartBy}, {HeaderDeadline, &c.Deadline}}
	for _, t := range times {
		if *t.dst, err = decodeTime(h, t.key); err != nil {
			errs = append(errs, err)
		}
	}
	durations := []struct {
		key string
		dst *time.Duration
	}{{HeaderStartToClose, &c.StartToClose}, {HeaderHeartbeatTimeout, &c.HeartbeatTimeout}}
	for _, d := range durations {
		if v := h.get(d.key); v != "" {
			if *d.dst, err = time.ParseDuration(v); err != nil {
				errs = append(errs, fmt.Errorf("header %s: %w", d.key, err))
			}
		}
	}
	if c.Heartbeat, err = decodeHeartbeat(h); err != nil {
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}

func decodeHeartbeat(h Header) (Payload, error) {
	v := h.get(HeaderHeartbeat)
	if v == "" {
		return nil, nil
	}
	var p Payload
	if err := json.Unmarshal([]byte(v), &p); err != nil {
		return nil, fmt.Errorf("header %s: %w", HeaderHeartbeat, err)
	}
	if len(p) > MaxHeartbeat {
		return nil, nil
	}
	return p, nil
}

func decodeTime(h Header, key string) (time.Time, error) {
	v := h.get(key)
	if v == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		return time.Time{}, fmt.Errorf("header %s: %q is not a time like 2006-01-02T15:04:05.999Z", key, v)
	}
	t = t.UTC()
	if t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}, fmt.Errorf("header %s: %q is not a usable time", key, v)
	}
	return t, nil
}

// decodeRef reads what a message is about. The header is needed even where the subject names the incarnation, too: NATS
// sends the acknowledgement of what a client has published to any subject that the client names, but with no header.
func decodeRef(place string, h Header) (Ref, error) {
	life := h.get(HeaderLife)
	if short, named := strings.CutSuffix(place, "-"+EncodeToken(life)); named && life != "" {
		place = short
	}
	execution, event, err := decodePlace(place)
	if life == "" {
		err = errors.Join(err, fmt.Errorf("no header %s; copy it from the work item", HeaderLife))
	}
	if err != nil {
		return Ref{}, err
	}
	return Ref{Life: cut(strings.ToValidUTF8(life, "?"), MaxName), Execution: execution, Event: event}, nil
}

func decodePlace(s string) (execution, event int64, err error) {
	a, b, ok := strings.Cut(s, "-")
	if ok && isNumber(a) && isNumber(b) {
		var errA, errB error
		execution, errA = strconv.ParseInt(a, 10, 64)
		event, errB = strconv.ParseInt(b, 10, 64)
		if errA == nil && errB == nil && execution > 0 && event > 0 {
			return execution, event, nil
		}
	}
	return 0, 0, fmt.Errorf("%q is not <execution>-<event>", cut(strings.ToValidUTF8(s, "?"), 64))
}
