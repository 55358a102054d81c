// Package hostile publishes random messages that a role has no business with.
package hostile

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/pkg/events"
)

// Client is a connection of a role that publishes whatever the shipped permissions allow.
type Client struct {
	Rand         *rand.Rand
	Conn         *nats.Conn
	Victims      []string // instances of others
	Incarnations []string // their incarnations, which are no secret
	Subjects     []string // that the role may publish on, with %v for an instance
	Members      []string // ids of orchestrators, as in subjects, which a worker can learn
	Waiting      []string // subjects under which one message of others each is stored

	// Replies says that the role has an account of its own, so that no acknowledgement reaches
	// messages that others have stored. In one account, NATS replaces such a message.
	Replies bool
}

// Subjects are the subjects that each role may publish on, with %v for an instance of others,
// except those that may end such an instance.
var Subjects = map[string][]string{
	"client": {
		"rondo.start.once.%v", "rondo.wake.x.%v", "rondo.event.nothing.%v", "rondo.control.explode.%v",
		"rondo.start.%%00.%v", "rondo.start.once.own", "rondo.event.e.own",
		"rondo.mailbox.q.own", "rondo.control.cancel.own", "rondo.start.childless.own~1%2E2", "rondo.api.explode",
	},
	// A worker that knows the right token is a legitimate one. The hostile worker does not know it,
	// and names another incarnation. It does not request tasks: in one account, NATS publishes
	// them, and an empty status of a direct get, as any message that the worker names.
	"worker": {"rondo.task-done.1-2.%v", "rondo.task-failed.1-3.%v", "rondo.task-begun.1-2.%v",
		"rondo.dead.task._.double.1-2.own", "$KV.RONDO_PROGRESS.own", "rondo.handover.task.to.worker",
		"rondo.direct.result.to.x", "rondo.direct.answer.task.x.1", "$JS.API.STREAM.INFO.RONDO",
		"$JS.API.STREAM.INFO.KV_RONDO_MEMBERS", "$JS.API.STREAM.MSG.GET.RONDO_TASKS"},
}

// Requests are requests by which a worker gets tasks. NATS publishes the responses wherever the
// worker says, as far as its account reaches.
var Requests = []string{"$JS.API.CONSUMER.MSG.NEXT.RONDO_TASKS.none", "$JS.API.DIRECT.GET.RONDO_TASKS",
	"$JS.API.CONSUMER.INFO.RONDO.p-0"}

// one chooses among some.
func one[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// internal are subjects of the services. A client tries to publish there, has acknowledgements sent
// there, and has NATS publish there later.
func (h *Client) internal() string {
	who := events.EncodeToken(one(h.Rand, h.Victims...))
	place := fmt.Sprintf("%d-%d", 1+h.Rand.IntN(2), 1+h.Rand.IntN(12))
	own := place + "-" + one(h.Rand, h.Incarnations...)
	return one(h.Rand, append(h.between(),
		"rondo.task-done."+place+"."+who, "rondo.task-failed."+place+"."+who, "rondo.task-begun."+place+"."+who,
		"rondo.child-ended."+place+"."+who,
		"rondo.timer-due."+own+"."+who, "rondo.task._.double."+own+"."+who, "rondo.due.task-done."+place+"."+who,
		"rondo.due.timer-due."+own+"."+who,
		"rondo.later.timer-due."+own+"."+who, "rondo.later.task._.double."+own+"."+who,
		"rondo.internal_control.terminate."+who, "rondo.internal_event.approval."+who,
		"rondo.internal_mailbox.letters."+who, "rondo.due_control.terminate."+who, "rondo.due.control.terminate."+who,
		"rondo.anchor", "rondo.dead.start.once."+who,
		"$JS.API.STREAM.PURGE.RONDO", "$JS.API.STREAM.DELETE.RONDO_LATER", "$KV.RONDO_KV.recovered",
		"$KV.RONDO_KV.attempts.1=401",
	)...)
}

// between are subjects between the services, and of the results of API requests.
func (h *Client) between() []string {
	all := []string{"rondo.direct.result.to.x", "rondo.direct.task.to.w___double", "rondo.direct.answer.result.x.1",
		"rondo.direct.answer.task.x.1", "rondo.direct.answer.system.x.1", "_INBOX_orchestrator.x.1",
		"_INBOX_worker.x.1"}
	for _, m := range h.Members {
		all = append(all, "rondo.handover.inbox.to."+m, "rondo.handover.system.to."+m, "rondo.handover.task.to."+m)
	}
	return all
}

// handed is a forged position for a handover.
func (h *Client) handed() string {
	token := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.1.%d.0", one(h.Rand, "RONDO", "RONDO_TASKS", "RONDO_LATER"),
		one(h.Rand, "p-0", "a-1", "w___double", "due"), h.Rand.IntN(50), time.Now().UnixNano())
	return one(h.Rand, "{}", token, fmt.Sprintf(`{"subject":%q,"place":1,"deliveries":1,"token":%q}`,
		"rondo.control.terminate."+events.EncodeToken(one(h.Rand, h.Victims...)), token))
}

// header is one that NATS or the services know, with a value that would do harm if it counted.
func (h *Client) header() (name, value string) {
	incarnation, who := one(h.Rand, h.Incarnations...), one(h.Rand, h.Victims...)
	all := [][2]string{
		{"Nats-Rollup", one(h.Rand, "all", "sub")}, {"Nats-Schedule", one(h.Rand,
			"@at "+time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano), "@every 1s", "* * * * * *")},
		{"Nats-Schedule-Target", h.internal()}, {"Nats-Schedule-Next", "purge"}, {"Nats-Scheduler", h.internal()},
		{"Nats-TTL", "1s"}, {"Nats-Msg-Id", "x" + who},
		{"Nats-Expected-Last-Sequence", "1"}, {"Nats-Incr", "1"}, {"Nats-Batch-Id", "b"},
		{"Nats-Stream-Source", "RONDO 1"}, {"KV-Operation", "PURGE"},
		{events.HeaderParent, fmt.Sprintf("1-%d.%s.%s", 1+h.Rand.IntN(9), incarnation, who)},
		{events.HeaderIncarnation, incarnation},
		{events.HeaderWorker, "w"}, {events.HeaderHeld, "w"},
		{events.HeaderDirectReply, "rondo.direct.result.to.x"}, {"Rondo-Again", "true"},
		{"Rondo-Accepted", "9@9999999999999999"}, {"Rondo-Fired", "2001-01-01T00:00:00Z"},
		{"Rondo-Schedule", "nightly"}, {"Rondo-Each", "true"}, {"Rondo-Subject", h.internal()}, {"Rondo-Results", "9"},
		{"Rondo-Handed", h.handed()}, {"Rondo-Nacked", "9"},
		{"Rondo-Outcome", "done"}, {"Rondo-Attempt", "1"},
		{events.HeaderSent, one(h.Rand, "2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "never")},
		{"Rondo-Not-Before",
			time.Now().Add(time.Duration(h.Rand.IntN(3000)) * time.Millisecond).UTC().Format(time.RFC3339Nano)},
		{events.HeaderMsgID, "start/1-2/" + incarnation + "/" + who}, {events.HeaderTrace, "00-x"},
		{"traceparent", strings.Repeat("9", 100)},
	}
	x := one(h.Rand, all...)
	return x[0], x[1]
}

// Publish publishes something. What NATS refuses is refused without a word to the publisher, or in
// the acknowledgement.
func (h *Client) Publish() error {
	m := &nats.Msg{Subject: h.internal(), Header: nats.Header{}, Data: []byte(one(h.Rand, `"forged"`, `{}`, ``,
		"\x00\xff", `{"stream":"RONDO","seq":1}`, strings.Repeat("[", 1000)))}
	switch n := h.Rand.IntN(5); {
	case n == 0 && len(h.Waiting) > 0:
		m.Subject = one(h.Rand, h.Waiting...)
	case n > 1:
		if m.Subject = one(h.Rand, h.Subjects...); strings.Contains(m.Subject, "%v") {
			m.Subject = fmt.Sprintf(m.Subject, events.EncodeToken(one(h.Rand, h.Victims...)))
		}
	}
	for range h.Rand.IntN(4) {
		name, value := h.header()
		m.Header.Set(name, value)
	}
	if h.Rand.IntN(3) == 0 {
		m.Reply = one(h.Rand, h.internal(), "rondo.control.terminate."+events.EncodeToken(one(h.Rand, h.Victims...)),
			"rondo.event.approval."+events.EncodeToken(one(h.Rand, h.Victims...)))
		if h.Replies && h.Rand.IntN(3) == 0 && len(h.Waiting) > 0 {
			m.Reply = one(h.Rand, h.Waiting...)
		}
	}
	return h.Conn.PublishMsg(m)
}
