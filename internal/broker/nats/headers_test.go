package natsbroker_test

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// This file publishes every header that NATS or Rondo knows on every subject that a client or a
// worker may publish on, with the shipped permissions, and defines the effect of each.
// docs/security.md shows the same table. replies_test.go combines the headers with subjects for the
// response that are not the publisher's own.

// The effects of a header: NATS refuses the message; the header changes nothing; or it has an
// effect, on its own message only.
const (
	refused = "refused"
	ignored = "ignored"
	counts  = "counts"
)

// hostile is a header with a value that would do harm if it took effect, the headers that it needs,
// and its effect on a message: of a client or a worker, of a client with a delay, and of a worker.
// Without another one, the first effect is that of all three, except that NATS refuses nothing with
// a delay that it does not refuse without.
type hostile struct {
	name, value string
	with        nats.Header
	effect      string
	delayed     string
	worker      string
	inAccounts  string // the effect of all three where each role has an account
}

func (h hostile) whenDelayed() string { return cmp.Or(h.delayed, h.effect) }
func (h hostile) ofWorker() string    { return cmp.Or(h.worker, h.effect) }

// header returns the header with those that it needs.
func (h hostile) header() nats.Header {
	all := nats.Header{h.name: {h.value}}
	maps.Copy(all, h.with)
	return all
}

// victims are messages of other clients, stored before. All clients know their ids.
var victims = []string{"rondo.start.o.victim", "rondo.mailbox.notes.victim", "rondo.event.e.victim"}

// hostileHeaders returns all headers, for a user that may publish on a subject of its own.
func hostileHeaders(own string) []hostile {
	soon := "@at " + time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
	forged := nats.Header{"Nats-Schedule-Target": {"rondo.task-done.1-2.victim"}, events.HeaderIncarnation: {"l"}}
	batch := nats.Header{"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"1"}, "Nats-Batch-Commit": {"1"}}
	// NATS publishes traces with the permissions of the publisher, in its account.
	traced := nats.Header{"Nats-Trace-Dest": {own}}
	return []hostile{
		{name: "Nats-Rollup", value: "all", effect: refused},
		{name: "Nats-Rollup", value: "sub", effect: refused},
		{name: "Nats-Schedule", value: soon, with: forged, effect: refused},
		{name: "Nats-Schedule", value: "@every 1s", with: forged, effect: refused},
		{name: "Nats-Schedule-Next", value: "purge", effect: refused,
			with: nats.Header{"Nats-Scheduler": {"rondo.later.start.o.later"}}},
		{name: "Nats-Schedule-Rollup", value: "all", effect: ignored},
		{name: "Nats-Schedule-Source", value: "rondo.later.start.o.later", effect: ignored},
		{name: "Nats-Schedule-TTL", value: "1s", effect: ignored},
		{name: "Nats-Schedule-Target", value: "rondo.task-done.1-2.victim", effect: ignored},
		{name: "Nats-Schedule-Time-Zone", value: "Europe/Berlin", effect: ignored},
		{name: "Nats-Scheduler", value: "rondo.later.timer-due.1-3.victim", effect: refused},
		{name: "Nats-TTL", value: "1s", effect: refused},
		{name: "Nats-Expected-Stream", value: "OTHER", effect: refused},
		{name: "Nats-Expected-Stream", value: "RONDO", effect: ignored},
		{name: "Nats-Expected-Last-Sequence", value: "1", effect: refused},
		{name: "Nats-Expected-Last-Subject-Sequence", value: "1", effect: refused,
			with: nats.Header{"Nats-Expected-Last-Subject-Sequence-Subject": {"rondo.p.0.start.o.victim"}}},
		{name: "Nats-Expected-Last-Subject-Sequence", value: "0", effect: ignored,
			with: nats.Header{"Nats-Expected-Last-Subject-Sequence-Subject": {"rondo.p.0.start.o.none"}}},
		{name: "Nats-Expected-Last-Subject-Sequence-Subject", value: "rondo.p.0.start.o.victim", effect: refused},
		{name: "Nats-Expected-Last-Msg-Id", value: "x", effect: refused},
		{name: "Nats-Msg-Id", value: "known to everybody", effect: counts},
		{name: "Nats-Incr", value: "1", effect: refused},
		{name: "Nats-Counter-Sources", value: "{}", effect: ignored},
		{name: "Nats-Batch-Id", value: "b", with: batch, effect: refused},
		{name: "Nats-Batch-Sequence", value: "1", effect: ignored},
		{name: "Nats-Batch-Commit", value: "1", effect: ignored},
		{name: "Nats-Stream-Source", value: "RONDO 1", effect: refused},
		{name: "Nats-Required-Api-Level", value: "99", effect: ignored},
		{name: "Nats-Marker-Reason", value: "Purge", effect: ignored},
		{name: "Nats-Trace-Dest", value: own, effect: ignored},
		{name: "Nats-Trace-Dest", value: "rondo.later.start.o.later", effect: refused, inAccounts: ignored},
		{name: "Nats-Trace-Only", value: "true", with: traced, effect: counts},
		{name: "Nats-Trace-Hop", value: "1", with: traced, effect: ignored},
		{name: "Nats-Trace-Origin-Account", value: "SHOP", with: traced, effect: ignored},
		// Headers that NATS sets in its answers, in its requests to itself, and of other protocols.
		{name: "Nats-Consumer-Stalled", value: "rondo.task-done.1-2.victim", effect: ignored},
		{name: "Nats-Last-Consumer", value: "1", effect: ignored},
		{name: "Nats-Last-Sequence", value: "1", effect: ignored},
		{name: "Nats-Last-Stream", value: "1", effect: ignored},
		{name: "Nats-Msg-Size", value: "1", effect: ignored},
		{name: "Nats-No-Masking", value: "true", effect: ignored},
		{name: "Nats-Num-Pending", value: "1", effect: ignored},
		{name: "Nats-Pending-Bytes", value: "1", effect: ignored},
		{name: "Nats-Pending-Messages", value: "1", effect: ignored},
		{name: "Nats-Pin-Id", value: "x", effect: ignored},
		{name: "Nats-Request-Info", value: `{"acc":"SHOP","svc":"SHOP"}`, effect: ignored},
		{name: "Nats-Response-Type", value: "x", effect: ignored},
		{name: "Nats-Sequence", value: "1", effect: ignored},
		{name: "Nats-Server-Xkey", value: "x", effect: ignored},
		{name: "Nats-Stream", value: "RONDO", effect: ignored},
		{name: "Nats-Stream-Identity", value: "x", effect: ignored},
		{name: "Nats-Subject", value: "rondo.task-done.1-2.victim", effect: ignored},
		{name: "Nats-Time-Stamp", value: "2001-01-01T00:00:00Z", effect: ignored},
		{name: "Nats-UpTo-Sequence", value: "1", effect: ignored},
		{name: "KV-Operation", value: "PURGE", effect: ignored},
		{name: "Status", value: "100", effect: ignored},
		{name: events.HeaderParent, value: "1-2.l.victim", effect: ignored},
		{name: events.HeaderHeld, value: "somebody", effect: ignored},
		{name: events.HeaderDirectReply, value: "rondo.direct.result.to.x", effect: ignored},
		{name: "Rondo-Again", value: "true", effect: ignored, worker: counts},
		{name: "Rondo-Handed", value: "{}", effect: ignored},
		{name: "Rondo-Nacked", value: "9", effect: ignored},
		{name: "Rondo-Direct-At", value: "2001-01-01T00:00:00Z", effect: ignored},
		{name: "Rondo-Results", value: "2", effect: ignored},
		{name: "Rondo-Subject", value: "rondo.task-done.1-2.victim", effect: ignored},
		{name: "Rondo-Accepted", value: "999999@9999999999999999", effect: ignored},
		{name: "Rondo-Fired", value: "2001-01-01T00:00:00Z", effect: ignored},
		{name: "Rondo-Schedule", value: "nightly", effect: ignored,
			with: nats.Header{"Rondo-Schedule-Revision": {"1"}}},
		{name: "Rondo-Each", value: "true", effect: ignored},
		{name: "Rondo-Dead-Reason", value: "x", with: nats.Header{"Rondo-Dead-Id": {"x"}}, effect: ignored},
	}
}

// headersOfNATS returns the constants of the server's source that are names of headers of NATS: of
// the version that go.mod names.
func headersOfNATS(t *testing.T) (names []string) {
	t.Helper()
	var stderr bytes.Buffer
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/nats-io/nats-server/v2")
	list.Stderr = &stderr
	dir, err := list.Output()
	if err != nil {
		t.Fatal(err, stderr.String())
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "server", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	found := make(map[string]bool)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			constants, ok := d.(*ast.GenDecl)
			if !ok || constants.Tok != gotoken.CONST && constants.Tok != gotoken.VAR {
				continue
			}
			ast.Inspect(constants, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == gotoken.STRING {
					if s, err := strconv.Unquote(l.Value); err == nil && headerOfNATS.MatchString(s) {
						found[s] = true
					}
				}
				return true
			})
		}
	}
	return slices.Sorted(maps.Keys(found))
}

var headerOfNATS = regexp.MustCompile(`^Nats-[A-Za-z]+(-[A-Za-z]+)*$`)

// TestEveryHeaderOfNATSIsKnown compares the headers in the source of the server with the tested
// ones. A new version of the server may have a new header: try what it does, and add it.
func TestEveryHeaderOfNATSIsKnown(t *testing.T) {
	t.Parallel()
	known := make(map[string]bool)
	for _, h := range hostileHeaders("x") {
		known[h.name] = true
	}
	theirs := headersOfNATS(t)
	if len(theirs) < 40 || !slices.Contains(theirs, "Nats-Rollup") {
		t.Errorf("the source has only %v", theirs)
	}
	for _, name := range theirs {
		if !known[name] {
			t.Errorf("no test knows what %s does", name)
		}
		delete(known, name)
	}
	for name := range known {
		if strings.HasPrefix(name, "Nats-") {
			t.Errorf("this version of the server does not have %s", name)
		}
	}
}

// roles are the publishing users, with the subjects on which they publish. A worker's message about
// an instance must name the incarnation.
var roles = []struct {
	file, setup, user, inbox string
	subjects                 []string
}{
	{"one-circle-of-trust.conf", "setup", "client", "_INBOX_client", subjectsOfClients},
	{"accounts.conf", "shop-setup", "shop-client", "", subjectsOfClients},
	{"one-circle-of-trust.conf", "setup", "worker", "_INBOX_worker", subjectsOfWorkers},
	{"accounts.conf", "shop-setup", "shop-worker", "", subjectsOfWorkers},
}

var (
	subjectsOfClients = []string{"rondo.start.o.own", "rondo.event.e.own",
		"rondo.mailbox.q.own", "rondo.control.cancel.own", "rondo.wake.x.own"}
	subjectsOfWorkers = []string{"rondo.task-begun.1-2.own", "rondo.task-done.1-2.own", "rondo.task-failed.1-2.own"}
)

// TestHeadersOfEachRole tries each header on each subject with the permissions of each role. It
// compares the delivery with the one without the header, and checks that no message of others has
// changed. A client tries each header also on a message with a delay.
func TestHeadersOfEachRole(t *testing.T) {
	t.Parallel()
	for _, role := range roles {
		t.Run(role.file+"/"+role.user, func(t *testing.T) {
			t.Parallel()
			s := natstest.StartWith(t, embedded.Options{Config: shipped + role.file})
			b := made(t, s, role.setup, "rondo")
			if err := b.SetPartitions(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			rememberIDs(t, s, b, role.setup)
			drain(t, b)
			var others []events.Wire
			for _, subject := range victims {
				others = append(others,
					events.Wire{Subject: subject, Header: events.Header{events.HeaderMsgID: {"known to everybody"}}})
			}
			others = append(others,
				events.Wire{Subject: "rondo.timer-due.1-3.victim", NotBefore: time.Now().Add(time.Hour)})
			if err := b.Publish(t.Context(), others...); err != nil {
				t.Fatal(err)
			}
			before := countsOf(t, s, role.setup)
			p := &prober{t: t, nc: userConnection(t, s, role.user, role.inbox), arrivals: arrivalsOf(t, b),
				worker: strings.HasSuffix(role.user, "worker"), inAccounts: role.file == "accounts.conf"}
			p.listen()
			for _, subject := range role.subjects {
				plain, refusal := p.probe(subject, nats.Header{})
				if refusal != "" {
					t.Fatalf("%s may not publish on %s: %s", role.user, subject, refusal)
				}
				for _, h := range hostileHeaders(p.own()) {
					arrived, refusal := p.probe(subject, h.header())
					want := h.effect
					if p.worker {
						want = h.ofWorker()
					}
					if p.inAccounts {
						want = cmp.Or(h.inAccounts, want)
					}
					if got := effectOf(arrived, refusal, plain); got != want {
						t.Errorf("%s: %s with %s: %s is %s, want %s\nplain %s\nnow   %s %s", role.user, subject, h.name,
							h.value, got, want, plain, arrived, refusal)
					}
				}
			}
			if !p.worker {
				p.delayed()
			}
			<-time.After(1500 * time.Millisecond) // a schedule would have published by then
			if after := countsOf(t, s, role.setup); !maps.Equal(after, before) {
				t.Errorf("others have stored %v, and now there is %v", before, after)
			}
		})
	}
}

// rememberIDs makes NATS remember the ids of messages longer than a test lasts.
func rememberIDs(t *testing.T, s *embedded.Server, b *natsbroker.Bus, user string) {
	t.Helper()
	b.ReconcileEvery(time.Hour) // it would repair that
	js, err := jetstream.New(intrude(t, s, user).nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"RONDO", "RONDO_LATER", "RONDO_TASKS"} {
		st, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c := st.CachedInfo().Config
		c.Duplicates = time.Hour
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

func effectOf(arrived, refusal, plain string) string {
	switch {
	case refusal != "":
		return refused
	case arrived != plain:
		return counts
	}
	return ignored
}

// prober publishes messages of a user, and tells what arrives of them.
type prober struct {
	t          *testing.T
	nc         *nats.Conn
	arrivals   <-chan arrival
	worker     bool
	inAccounts bool
	said       chan *nats.Msg
	replies    string
	markers    int
}

// own is a subject on which the user may publish.
func (p *prober) own() string {
	if p.worker {
		return "rondo.task-begun.1-2.traces"
	}
	return "rondo.wake.x.traces"
}

func (p *prober) listen() {
	p.t.Helper()
	p.said, p.replies = make(chan *nats.Msg, 1000), p.nc.NewInbox()+"."
	if _, err := p.nc.ChanSubscribe(p.replies+"*", p.said); err != nil {
		p.t.Fatal(err)
	}
}

func (p *prober) publish(subject, reply string, h nats.Header) {
	p.t.Helper()
	m := &nats.Msg{Subject: subject, Header: maps.Clone(h), Data: []byte(`"x"`),
		Reply: p.replies + reply}
	if p.worker {
		m.Header.Set(events.HeaderIncarnation, "l")
	}
	if err := p.nc.PublishMsg(m); err != nil {
		p.t.Fatal(err)
	}
}

// noResponders is the text of the answer that there is no stream.
const noResponders = "no responders"

// answer returns the next answer of NATS to a published message, and which one it is.
func (p *prober) answer() (reply, text string) {
	p.t.Helper()
	select {
	case m := <-p.said:
		text = string(m.Data)
		if m.Header.Get("Status") == "503" {
			text = noResponders
		}
		return m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], text
	case <-time.After(longEnough):
		p.t.Fatal("NATS does not answer")
		return "", ""
	}
}

// probe publishes a message, and another one behind it, so that it notices a message that NATS
// neither stores nor refuses.
func (p *prober) probe(subject string, h nats.Header) (arrived, refusal string) {
	p.t.Helper()
	p.markers++
	marker := fmt.Sprintf("%s-marker-%d", subject, p.markers)
	p.publish(subject, "message", h)
	p.publish(marker, "marker", nats.Header{})
	reply, text := p.answer()
	if reply == "message" {
		if next, _ := p.answer(); next != "marker" {
			p.t.Fatalf("the answer to the marker is %s", next)
		}
	}
	stored := reply == "message" && !strings.Contains(text, `"error"`) && !strings.Contains(text, `"duplicate"`) &&
		text != noResponders
	for a := range p.arrivals {
		switch {
		case a.subject == subject:
			arrived = a.what
		case a.subject == marker:
			switch {
			case strings.Contains(text, `"error"`):
				return "", text
			case stored && arrived == "":
				p.t.Fatalf("%s does not arrive", subject)
			case p.denied(h):
				return "", p.nc.LastError().Error()
			case !stored:
				return arrived + "not stored", ""
			}
			return arrived, ""
		}
	}
	p.t.Fatalf("%s does not arrive", subject)
	return "", ""
}

// denied reports whether NATS has denied a trace. It says so before it answers the next message.
func (p *prober) denied(h nats.Header) bool {
	to, err := h["Nats-Trace-Dest"], p.nc.LastError()
	return len(to) > 0 && err != nil && strings.Contains(err.Error(), strconv.Quote(to[0]))
}

// delayed publishes a message with each header that wait for the same moment, for each verb that
// can wait, and compares what arrives.
func (p *prober) delayed() {
	p.t.Helper()
	at := nats.Header{"Rondo-Not-Before": {time.Now().Add(3 * time.Second).UTC().Format(time.RFC3339Nano)}}
	all := hostileHeaders(p.own())
	idOf := func(i int) string { return fmt.Sprintf("own-%d", i) }
	for _, begin := range []string{"rondo.start.o.", "rondo.event.e.", "rondo.mailbox.q."} {
		arrived, refusals := make(map[string]string), make(map[string]string)
		at.Set(events.HeaderMsgID, "plain")
		p.publish(begin+"plain", "plain", at)
		for i, h := range all {
			header := h.header()
			maps.Copy(header, at)
			header.Set(events.HeaderMsgID, idOf(i))
			p.publish(begin+idOf(i), idOf(i), header)
		}
		p.publish(begin+"marker", "marker", nats.Header{})
		waits := map[string]bool{"plain": true}
		for reply := ""; reply != "marker"; {
			var text string
			reply, text = p.answer()
			if strings.Contains(text, `"error"`) {
				refusals[reply] = text
			} else if !strings.Contains(text, `"duplicate"`) && text != noResponders {
				waits[reply] = true
			}
		}
		for len(arrived) < len(waits) {
			select {
			case a := <-p.arrivals:
				id := a.subject[strings.LastIndexByte(a.subject, '.')+1:]
				// Not one of the marker, of a trace, or a copy of one that waited before.
				if waits[id] && strings.HasPrefix(a.subject, begin) {
					arrived[id] = strings.ReplaceAll(a.what, id, "<id>")
				}
			case <-time.After(longEnough):
				p.t.Fatalf("of %v, only %v arrive", waits, arrived)
			}
		}
		for i, h := range all {
			id := idOf(i)
			if p.denied(h.header()) {
				refusals[id] = p.nc.LastError().Error()
			}
			want := h.whenDelayed()
			if p.inAccounts {
				want = cmp.Or(h.inAccounts, want)
			}
			if got := effectOf(arrived[id], refusals[id], arrived["plain"]); got != want {
				p.t.Errorf("%s with a delay, with %s: %s is %s, want %s\nplain %s\nnow   %s %s", begin, h.name, h.value,
					got, want, arrived["plain"], arrived[id], refusals[id])
			}
		}
	}
}

// countsOf counts the messages in streams, by subject.
func countsOf(t *testing.T, s *embedded.Server, user string) map[string]uint64 {
	t.Helper()
	js, err := jetstream.New(intrude(t, s, user).nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]uint64)
	for _, name := range []string{"RONDO", "RONDO_LATER", "RONDO_TASKS", "RONDO_DEAD"} {
		st, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := st.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		if err != nil {
			t.Fatal(err)
		}
		for subject, n := range info.State.Subjects {
			if !strings.HasSuffix(subject, "anchor") && !strings.Contains(subject, ".anchor.") {
				all[name+" "+subject] = n
			}
		}
	}
	return all
}

// userConnection is a connection of a user, without Rondo's code.
func userConnection(t *testing.T, s *embedded.Server, user, inbox string) *nats.Conn {
	t.Helper()
	opts := []nats.Option{nats.UserInfo(user, user), nats.NoReconnect(), nats.Timeout(time.Minute),
		nats.SyncQueueLen(1 << 20)} // on a slow machine, a test reads long after what it has subscribed to
	if inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(inbox))
	}
	nc, err := nats.Connect(s.URL(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// drain acknowledges all messages in the inbox.
func drain(t *testing.T, b *natsbroker.Bus) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- b.Receive(ctx, 0, func(d broker.Delivery) { d.Hold.Ack() }) }()
	natstest.Eventually(t, "the inbox is empty", func() bool {
		l, err := b.Backlog(ctx, 0)
		return err == nil && l.Waiting == 0 && l.Held == 0
	})
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// arrival is a message as an orchestrator decodes it.
type arrival struct{ subject, what string }

// arrivalsOf receives until the test ends, and acknowledges all messages but those of the victims.
func arrivalsOf(t *testing.T, b *natsbroker.Bus) <-chan arrival {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	came, ended := make(chan arrival, 1000), make(chan error, 1)
	go func() {
		ended <- b.Receive(ctx, 0, func(d broker.Delivery) {
			if strings.HasSuffix(d.Subject, ".victim") {
				return
			}
			d.Hold.Ack()
			m, err := events.Decode("rondo", d.Subject, d.Header, d.Body, "no id")
			came <- arrival{d.Subject, fmt.Sprintf("%d %v %t %t %t %s %s %+v %v", d.NumDelivered,
				d.NotBefore, d.AcceptedAt.IsZero(), d.AcceptedAt.After(time.Now()), d.Direct, m.ID, d.Body,
				m.Content, err)}
		})
		close(came)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return came
}

// TestDocumentedHeadersAreTheTestedOnes compares the table in docs/security.md with the tested
// headers.
func TestDocumentedHeadersAreTheTestedOnes(t *testing.T) {
	t.Parallel()
	effects := make(map[string]*[3][]string)
	for _, h := range hostileHeaders("x") {
		if effects[h.name] == nil {
			effects[h.name] = new([3][]string)
		}
		for i, effect := range []string{h.effect, h.whenDelayed(), h.ofWorker()} {
			for _, effect := range []string{effect, cmp.Or(h.inAccounts, effect)} {
				if all := &effects[h.name][i]; !slices.Contains(*all, effect) {
					*all = append(*all, effect)
				}
			}
		}
	}
	var table strings.Builder
	table.WriteString("| header | client | client, with a delay | worker |\n| --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(effects)) {
		fmt.Fprintf(&table, "| `%s`", name)
		for _, all := range effects[name] {
			fmt.Fprintf(&table, " | %s", strings.Join(all, " or "))
		}
		table.WriteString(" |\n")
	}
	documented(t, "headers", table.String())
}

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/security.md anew")

// documented compares a table with the one in docs/security.md.
func documented(t *testing.T, name, want string) {
	t.Helper()
	const file = "../../../docs/security.md"
	documentMu.Lock()
	defer documentMu.Unlock()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := fmt.Sprintf("<!-- table of %s -->\n\n", name), fmt.Sprintf("\n<!-- end of %s -->", name)
	before, rest, ok1 := strings.Cut(string(page), begin)
	have, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok1 || !ok2:
		t.Fatalf("%s has no table of %s", file, name)
	case have == want:
	case *rewrite:
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has another table of %s; `go test ./internal/broker/nats -run Documented -rewrite` writes it:\n%s",
			file, name, want)
	}
}

var documentMu sync.Mutex // held while the page is read or written

// A client removes no delayed message: no timer of any instance, no delayed start of other clients.
func TestClientsRemoveNothingThatIsForLater(t *testing.T) {
	t.Parallel()
	for _, role := range roles[:2] {
		t.Run(role.file, func(t *testing.T) {
			t.Parallel()
			s := natstest.StartWith(t, embedded.Options{Config: shipped + role.file})
			b := made(t, s, role.setup, "rondo")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ps, err := b.Partitions(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range ps.All() {
				// its errors show below
				go func() { _ = b.Receive(ctx, p, func(d broker.Delivery) { d.Hold.Ack() }) }()
			}
			others := []events.Wire{
				{Subject: "rondo.start.fulfil.order-7", NotBefore: time.Now().Add(time.Hour),
					Header: events.Header{events.HeaderMsgID: {"s"}}},
				{Subject: "rondo.timer-due.1-3.order-1", NotBefore: time.Now().Add(time.Hour),
					Header: events.Header{events.HeaderMsgID: {"t"}}},
			}
			if err := b.Publish(t.Context(), others...); err != nil {
				t.Fatal(err)
			}
			natstest.Eventually(t, "they wait for their time", func() bool {
				all := countsOf(t, s, role.setup)
				return all["RONDO_LATER rondo.later.start.fulfil.order-7"] == 1 &&
					all["RONDO_LATER rondo.later.timer-due.1-3.order-1"] == 1
			})
			client := userConnection(t, s, role.user, role.inbox)
			for _, subject := range []string{"rondo.later.start.fulfil.order-7", "rondo.later.timer-due.1-3.order-1"} {
				m := &nats.Msg{Subject: "rondo.event.hello.x",
					Header: nats.Header{"Nats-Schedule-Next": {"purge"}, "Nats-Scheduler": {subject}}}
				if _, err := client.RequestMsg(m, 20*time.Second); err != nil {
					t.Fatal(err)
				}
			}
			for _, w := range others {
				if has, err := b.Has(t.Context(), w); err != nil || !has {
					t.Errorf("%s has removed %s, which was to come in an hour (%v, %v)", role.user, w.Subject, has, err)
				}
			}
		})
	}
}
