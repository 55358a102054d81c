package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rondo-run/rondo/internal/x/jsonw"
	"github.com/rondo-run/rondo/pkg/codec"
)

// Decode reads a message. The fallback is the id of a message without one; it must be the same at
// each delivery. A message that does not follow the protocol is an error, whose text goes into the
// dead letter.
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
	if len(tokens) < 3 || tokens[0] == string(VerbTask) && len(tokens) != 5 || tokens[0] != string(VerbTask) &&
		len(tokens) != 3 {
		return Message{}, fmt.Errorf(
			"it has %d words after the prefix; expected <verb>.<name>.<instance>, dots inside a name or an id "+
				"written as %%2E", len(tokens))
	}
	if slices.Contains(tokens, "") {
		return Message{}, errors.New("it has an empty word; expected <verb>.<name>.<instance>")
	}
	if err := checkWords(tokens); err != nil {
		return Message{}, err
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
	m := Message{ID: messageID(h, fallback), Instance: instance,
		Trace: cut(strings.ToValidUTF8(h.get(HeaderTrace), "?"), MaxAttribute)}
	m.TraceState, m.Baggage = upTo(MaxTraceState, h.get(HeaderTraceState)), upTo(MaxBaggage, h.get(HeaderBaggage))
	if m.Sent, err = decodeTime(h, HeaderSent); err != nil {
		return Message{}, err
	}
	if len(h) == 0 && (isAcknowledgement(body) || isAPIResponse(body)) {
		return Message{}, fmt.Errorf(
			"it is an acknowledgement that NATS sent here because a publisher named this subject for it; a message "+
				"with such a body needs a header, such as %s", HeaderMsgID)
	}
	if h.get("Nats-Stream") != "" && h.get("Nats-Sequence") != "" { // a stored message that was read directly
		return Message{}, errors.New("NATS sent this response here because a requester named this subject for it")
	}
	verb, internally := Origin(tokens[0])
	m.Internal = internally && verb.fromClients()
	if m.Internal && h.get(HeaderMsgID) == "" {
		return Message{}, fmt.Errorf("no header %s, which all messages between instances have", HeaderMsgID)
	}
	if !internally {
		h = h.ofClients()
	}
	m.Content, err = decodeContent(verb, tokens[1:len(tokens)-1], h, body)
	if err == nil {
		err = checkOrigin(m)
	}
	if err != nil {
		return Message{}, err
	}
	if start, ok := m.Content.(*Start); ok && start.Parent == nil && !launched(m) {
		err = CheckChosenInstance(instance)
	}
	return m, err
}

// CheckSubject refuses a subject of a message with a word that is not encoded as the protocol says.
func CheckSubject(prefix, subject string) error {
	return checkWords(strings.Split(strings.TrimPrefix(subject, prefix+"."), "."))
}

func checkWords(words []string) error {
	for i, word := range words {
		isTag := i == 1 && words[0] == string(VerbTask) && word == encodeTag(defaultTag)
		if err := checkWord(word); err != nil && !isTag {
			return err
		}
	}
	return nil
}

// checkWord refuses a word that is not spelled as EncodeToken spells it. With another spelling of
// its instance, a message is in another partition than the other messages of the instance, so that
// two orchestrators process them, in any order.
func checkWord(word string) error {
	text, err := DecodeToken(word)
	if right := EncodeToken(text); right != word && err == nil { // otherwise the decoder of the word reports it
		return fmt.Errorf("its word %q is not encoded as the protocol says; write %q", cut(word, 128), cut(right, 128))
	}
	return nil
}

// isAcknowledgement tells whether a body is that of an acknowledgement, or of a refusal, of
// JetStream. NATS sends it to any subject that a publisher names, whatever the publisher may do
// there, but without headers.
func isAcknowledgement(body []byte) bool {
	return (bytes.HasPrefix(body, []byte(`{"stream":"`)) || bytes.HasPrefix(body, []byte(`{"error":{"`))) &&
		bytes.Contains(body, []byte(`"seq":`))
}

// isAPIResponse reports whether a body is that of a response of JetStream's API. NATS sends it to
// any subject that the requester names, without headers.
func isAPIResponse(body []byte) bool {
	return bytes.HasPrefix(body, []byte(`{"type":"io.nats.jetstream.api.`))
}

// upTo leaves out a text that is too long or not valid UTF-8: half of it would mean something else.
func upTo(most int, s string) string {
	if len(s) > most || !utf8.ValidString(s) {
		return ""
	}
	return s
}

// launched reports whether the engine made both the id of a start and that of the instance it
// starts: a detached instance, whose id no caller has chosen.
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
		says, err := decodeUnknownFields(h)
		return &EventRaised{Name: name, Data: codec.Canonical(body), RefuseUnknown: says == refuseFields}, err
	case VerbMailbox:
		if err := CheckName("mailbox", name); err != nil {
			return nil, err
		}
		says, err := decodeUnknownFields(h)
		return &MailboxMessage{Mailbox: name, Data: codec.Canonical(body), RefuseUnknown: says == refuseFields}, err
	case VerbControl:
		switch how := How(name); how {
		case Cancel, Terminate, Suspend, Resume:
			c := &Control{How: how, Reason: decodeReason(body), Incarnation: h.get(HeaderIncarnation)}
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
	case VerbTask:
		return decodeTask(tokens, h, body)
	case VerbBegun, VerbDone, VerbFail, VerbTimer, VerbChild:
		return decodeAnswer(verb, tokens[0], h, body)
	case VerbStep: // it never travels
	}
	return nil, fmt.Errorf("unknown verb %q; people may use start, event, mailbox and control", verb)
}

// encodeReason writes plain words, unless they would be read as JSON.
func encodeReason(reason string) ([]byte, error) {
	if decodeReason([]byte(reason)) == reason {
		return []byte(reason), nil
	}
	return jsonw.Marshal(cut(strings.ToValidUTF8(reason, "?"), MaxReason))
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
	s := &Start{Orchestration: name, Version: h.get(HeaderVersion), Input: codec.Canonical(body),
		Conflict: StartConflict(h.get(HeaderConflict))}
	if err := checkConflict(s.Conflict); err != nil {
		return nil, fmt.Errorf("header %s: %w", HeaderConflict, err)
	}
	says, err := decodeUnknownFields(h)
	if err != nil {
		return nil, err
	}
	s.IgnoreUnknown = says == ignoreFields
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

func decodeUnknownFields(h Header) (string, error) {
	switch v := h.get(HeaderUnknownFields); v {
	case "", refuseFields, ignoreFields:
		return v, nil
	default:
		return "", fmt.Errorf("header %s: %q is neither %q nor %q", HeaderUnknownFields, v, refuseFields, ignoreFields)
	}
}

// checkConflict validates what becomes of a start when the id is already in use.
func checkConflict(c StartConflict) error {
	switch c {
	case KeepExisting, RestartFinished, ReplaceRunning, RejectExisting:
		return nil
	}
	return fmt.Errorf("%q is none of %q, %q and %q", c, RejectExisting, RestartFinished, ReplaceRunning)
}

// decodeMessages reads the messages that a start brings along.
func decodeMessages(s *Start, h Header) error {
	v := h.get(HeaderMessages)
	if v == "" {
		return nil
	}
	if err := jsonw.UnmarshalStrict([]byte(v), &s.Messages); err != nil {
		return fmt.Errorf("header %s: want a JSON array of {\"mailbox\":…,\"data\":…}: %w", HeaderMessages, err)
	}
	return CheckStartMessages(s.Input, s.Messages)
}

// CheckStartMessages validates the messages of a start with this input.
func CheckStartMessages(input codec.Payload, messages []StartMessage) error {
	size := len(input)
	for _, m := range messages {
		if err := CheckName("mailbox", m.Mailbox); err != nil {
			return err
		}
		size += len(m.Data) + len(m.Mailbox) + startMessageRoom
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

// CheckAttributes validates the attributes of a start.
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
		return &TaskDone{Ref: ref, Worker: worker, Result: codec.Canonical(body)}, nil
	case VerbFail:
		heartbeat, err := decodeHeartbeat(h)
		if err != nil {
			return nil, err
		}
		return &TaskFailed{Ref: ref, Worker: worker, Error: decodeError(body), Heartbeat: heartbeat}, nil
	case VerbTimer:
		due, err := decodeTime(h, HeaderDue)
		if err != nil {
			return nil, err
		}
		return &TimerDue{Ref: ref, Due: due}, nil
	default:
		switch outcome := h.get(HeaderOutcome); outcome {
		case "done":
			return &ChildDone{Ref: ref, Output: codec.Canonical(body)}, nil
		case "failed":
			return &ChildError{Ref: ref, Error: decodeError(body)}, nil
		default:
			return nil, fmt.Errorf("header %s: %q is neither done nor failed", HeaderOutcome, outcome)
		}
	}
}

func decodeBegun(ref Ref, worker string, h Header) (Content, error) {
	c := &TaskBegun{Ref: ref, Worker: worker}
	if v := h.get(HeaderPending); v != "" {
		var err error
		if c.Pending, err = strconv.ParseBool(v); err != nil {
			return nil, fmt.Errorf("header %s: %q is neither true nor false", HeaderPending,
				cut(strings.ToValidUTF8(v, "?"), 64))
		}
	}
	return c, nil
}

func decodeTask(tokens []string, h Header, body []byte) (Content, error) {
	c := &Task{Input: codec.Canonical(body), Version: h.get(HeaderVersion), IdempotencyKey: h.get(HeaderIdempotencyKey)}
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

func decodeHeartbeat(h Header) (codec.Payload, error) {
	v := h.get(HeaderHeartbeat)
	if v == "" {
		return nil, nil
	}
	var p codec.Payload
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

// decodeRef reads what a message is about. The header is needed even where the subject names the
// incarnation, too: NATS sends the acknowledgement of what a client has published to any subject
// that the client names, but with no header.
func decodeRef(place string, h Header) (Ref, error) {
	incarnation := h.get(HeaderIncarnation)
	if short, named := strings.CutSuffix(place, "-"+EncodeToken(incarnation)); named && incarnation != "" {
		place = short
	}
	execution, event, err := decodePlace(place)
	if incarnation == "" {
		err = errors.Join(err, fmt.Errorf("no header %s; copy it from the work item", HeaderIncarnation))
	}
	if err != nil {
		return Ref{}, err
	}
	return Ref{Incarnation: cut(strings.ToValidUTF8(incarnation, "?"), MaxName), Execution: execution, Event: event},
		nil
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
