package natsbroker

import (
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// names are the names of streams, buckets and subjects.
type names struct {
	prefix                          string // of subjects
	inbox, later, work, dead        string // streams
	members, sessions, kv, progress string // buckets
}

func namesOf(prefix string) names {
	up := strings.ToUpper(strings.ReplaceAll(prefix, "-", "_"))
	return names{
		prefix: prefix, inbox: up, later: up + "_LATER", work: up + "_TASKS", dead: up + "_DEAD",
		members: up + "_MEMBERS", sessions: up + "_SESSIONS", kv: up + "_KV", progress: up + "_PROGRESS",
	}
}

// subject joins the prefix and tokens, which must not need encoding.
func (n *names) subject(words ...string) string {
	return n.prefix + "." + strings.Join(words, ".")
}

// token encodes a word for a subject.
func token(word string) string {
	if word == broker.Any {
		return "*"
	}
	return events.EncodeToken(word)
}

// isResult reports whether a subject is one on which workers report begun, completed or failed
// tasks.
func (n *names) isResult(subject string) bool {
	verb, _, _ := strings.Cut(subject[len(n.prefix)+1:], ".")
	switch events.Verb(verb) {
	case events.VerbBegun, events.VerbDone, events.VerbFail:
		return true
	default:
	}
	return false
}

// The subjects between the services, which no stream stores, begin with handover or direct. They
// name the kind of their messages, so that NATS permissions can separate the roles that publish and
// subscribe. They have at least five words: RONDO stores all subjects of four.

// directWord begins the subjects of direct delivery.
const directWord = "direct"

// tasksSubject is where tasks of a queue are taken by direct delivery: by workers, or by
// orchestrators if the tasks are the engine's own.
func (n *names) tasksSubject(q broker.TaskQueueName) string {
	return n.subject(directWord, string(kindOf(q)), "to", ConsumerOf(q))
}

// resultsSubject is where an orchestrator takes results by direct delivery.
func (n *names) resultsSubject(name string) string {
	return n.subject(directWord, string(aboutResults), "to", name)
}

// directAnswers begins the subjects of the answers to direct deliveries of a kind. The receivers
// publish there, so that they need no permission for the inboxes of the senders: in these arrive
// the answers of NATS, which no other role must forge.
func (n *names) directAnswers(kind directKind) string {
	return n.subject(directWord, "answer", string(kind)) + "."
}

// isDirectAnswer reports whether a subject is one of an answer to a direct delivery.
func (n *names) isDirectAnswer(subject string) bool {
	return strings.HasPrefix(subject, n.subject(directWord, "answer")+".")
}

// anchors are the subjects of the other anchors. They look like those of delayed messages, which no
// consumer takes.
func (n *names) anchors() []string {
	return []string{n.subject("later", "anchor", "_", "_"), n.subject("later", "task", "_", "anchor", "_", "_")}
}

// deadSubject returns the subject for dead letters of a subject. It is never longer than
// maxSubject: if the subject is too long in any other form, it is hashed.
func (n *names) deadSubject(subject string) string {
	rest, ok := strings.CutPrefix(subject, n.prefix+".")
	if dead := n.subject(deadVerb, rest); ok && n.canTake(dead) == nil {
		return dead
	}
	if other := n.subject(deadVerb, "other", "_", events.EncodeToken(subject)); n.canTake(other) == nil {
		return other
	}
	return n.subject(deadVerb, "other", "_", fmt.Sprintf("%x", sha256.Sum256([]byte(subject))))
}

// handoverSubject is where the process with a name takes handovers of a kind.
func (n *names) handoverSubject(kind broker.HandoverKind, name string) string {
	return n.subject("handover", string(kind), "to", events.EncodeToken(name))
}

// verbOf returns the first word of a subject.
func (n *names) verbOf(subject string) string {
	verb, _, _ := strings.Cut(strings.TrimPrefix(subject, n.prefix+"."), ".")
	return verb
}

// fromClient reports whether clients may publish under a subject.
func (n *names) fromClient(subject string) bool {
	_, internally := events.Origin(n.verbOf(subject))
	return !internally
}

// goesThroughInbox reports whether a delayed message is taken over from the inbox: all messages
// that instances and clients send to an instance are. Timers, which only the services know, are
// not.
func (n *names) goesThroughInbox(subject string) bool {
	verb, _ := events.Origin(n.verbOf(subject))
	switch verb {
	case events.VerbStart, events.VerbEvent, events.VerbMailbox, events.VerbControl:
		return true
	default:
	}
	return false
}

// withoutDue removes the mark from a subject which says that the message has waited for its time. A
// forwarded message has an id; a message without one is an acknowledgement that a client made NATS
// send there.
func (n *names) withoutDue(subject string, h events.Header) (string, bool) {
	rest, due := strings.CutPrefix(subject, n.prefix+"."+dueMark)
	if !due || first(h, events.HeaderMsgID) == "" {
		return subject, false
	}
	return n.prefix + "." + rest, true
}

// laterOf returns the subject under which a message waits for its time. A message of a verb of
// which each counts has a subject of its own.
func (n *names) laterOf(w events.Wire) string {
	word := n.verbOf(w.Subject)
	verb, _ := events.Origin(word)
	later := n.subject("later", string(verb)+strings.TrimPrefix(w.Subject, n.prefix+"."+word))
	if id := first(w.Header, events.HeaderMsgID); eachCounts(verb) && id != "" {
		h := fnv.New64a()
		h.Write([]byte(id))
		later = fmt.Sprintf("%s%%00%016x", later, h.Sum64()) // no instance has such a name
	}
	return later
}

// dueOf returns the subject on which NATS publishes a message when it is due.
func (n *names) dueOf(subject string) string {
	return n.subject(dueVerb, strings.TrimPrefix(subject, n.prefix+"."))
}

// schedule builds the message that makes NATS publish another one, a second before its time because
// NATS may be late. NATS acts on many headers of this message, so it has none but those that are
// carried, and its own.
func (n *names) schedule(w events.Wire, target, id string) *nats.Msg {
	h := nats.Header(broker.Carry(w.Header))
	if id != "" {
		h[nats.MsgIdHdr] = []string{id}
	}
	at := w.NotBefore
	if at.After(latest) {
		at = latest // from then on NATS redelivers it until its time
	}
	h[headerNotBefore] = []string{w.NotBefore.UTC().Format(time.RFC3339Nano)}
	h["Nats-Schedule"] = []string{"@at " + at.Add(-early).UTC().Format(time.RFC3339Nano)}
	h[scheduleTarget] = []string{target}
	h["Nats-Rollup"] = []string{"sub"} // only the last one of each subject remains
	return &nats.Msg{Subject: n.laterOf(w), Header: h, Data: w.Body}
}

// filter returns the filter subject of a lane.
func (n *names) filter(l lane, partition int) string {
	words := "*.*.*"
	if l == ahead {
		words = "*.*.*.>"
	}
	return n.subject("p", strconv.Itoa(partition), words)
}

// storedAs returns the subject, in any partition, under which a published message is stored.
func (n *names) storedAs(subject string) string {
	verb, rest, _ := strings.Cut(strings.TrimPrefix(subject, n.prefix+"."), ".")
	return n.subject("p.*", strings.ReplaceAll(verb, "-", "."), rest)
}

// publishedAs returns the subject on which a stored message was published, and its partition. A
// message outside the partitions has the subject on which it was published.
func (n *names) publishedAs(subject string) (string, int) {
	rest, ok := strings.CutPrefix(subject, n.prefix+".p.")
	if !ok {
		return subject, 0
	}
	p, rest, _ := strings.Cut(rest, ".")
	partition, err := strconv.Atoi(p)
	if err != nil {
		return subject, 0
	}
	for more := strings.Count(rest, ".") - 2; more > 0; more-- {
		rest = strings.Replace(rest, ".", "-", 1)
	}
	return n.prefix + "." + rest, partition
}

// inOrder returns the instance of a message that must not overtake others of the same call: a
// message from a client. Messages of the services name their event, so that their order means
// nothing, and waiting for each of them would be slow.
func (n *names) inOrder(w events.Wire) (instance string) {
	if !w.NotBefore.IsZero() {
		return ""
	}
	rest := w.Subject[len(n.prefix)+1:] // it has been checked
	verb, _, _ := strings.Cut(rest, ".")
	switch events.Verb(verb) {
	case events.VerbTask, events.VerbBegun, events.VerbDone, events.VerbFail, events.VerbTimer, events.VerbChild,
		events.VerbWake, deadVerb:
		return ""
	default:
	}
	return lastWord(rest)
}

// canTake returns an error if there is no stream for a subject. The broker's own error would be the
// same as for a stream without a leader.
func (n *names) canTake(subject string) error {
	rest, ok := strings.CutPrefix(subject, n.prefix+".")
	if !ok {
		return errNoStream
	}
	verb, _, _ := strings.Cut(rest, ".")
	words := strings.Count(rest, ".") + 1
	if len(subject) > maxSubject {
		return errLongSubject
	}
	if verb == deadVerb && words > 3 {
		rest = rest[len(deadVerb)+1:]
		verb, _, _ = strings.Cut(rest, ".")
		words--
	}
	want := 3
	if verb == string(events.VerbTask) && words != 3 {
		want = 5
	}
	// The API of JetStream is JSON, and no index of a stream has subjects with a DEL: NATS may
	// neither deliver nor find such a message.
	if words != want || strings.HasPrefix(rest, ".") || strings.HasSuffix(rest, ".") || strings.Contains(rest, "..") ||
		strings.ContainsAny(rest, "*> \t\r\n\x7f") || !utf8.ValidString(rest) {
		return errNoStream
	}
	return nil
}

func (n *names) notificationSubject(words []string, token func(string) string) (string, error) {
	if len(words) < minWords {
		return "", fmt.Errorf("nats: a notification of %d words; want at least %d", len(words), minWords)
	}
	tokens := make([]string, len(words))
	for i, w := range words {
		tokens[i] = token(w)
		if tokens[i] == "" {
			return "", fmt.Errorf("nats: word %d of a notification is empty", i)
		}
	}
	subject := n.subject("notification", strings.Join(tokens, "."))
	if len(subject) > maxSubject {
		return "", fmt.Errorf("nats: a notification: %w", errLongSubject)
	}
	return subject, nil
}

// queueWords returns the words of a task's subject that name its task queue: the tag and the
// activity.
func (n *names) queueWords(subject string) (words string, isWork bool) {
	rest, isWork := strings.CutPrefix(subject, n.prefix+".task.")
	if !isWork {
		return "", false
	}
	end := strings.IndexByte(rest, '.')
	next := strings.IndexByte(rest[end+1:], '.')
	if end < 0 || next < 0 {
		return "", false
	}
	return rest[:end+1+next], true
}
