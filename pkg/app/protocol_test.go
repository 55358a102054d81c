package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// This file keeps docs/protocol.md true: it names all headers and verbs there are, and runs the
// examples.

const protocolPage = "../../docs/protocol.md"

func readProtocol(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(protocolPage))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestProtocolNamesAllThereIs looks for the constants of the packages that speak the protocol.
func TestProtocolNamesAllThereIs(t *testing.T) {
	page := readProtocol(t)
	found := 0
	for _, dir := range []string{"../events", "../../internal/broker/nats", "../../internal/query",
		"../../internal/process", "../../services/orchestrator",
		"../../services/worker"} {
		for name, value := range stringConstants(t, dir) {
			want := ""
			switch {
			case strings.HasPrefix(value, "Rondo-"), strings.HasPrefix(strings.ToLower(name), "header"),
				strings.HasPrefix(name, "Verb"), strings.HasPrefix(name, "Topic"), strings.HasPrefix(name, "Method"):
				want = "`" + value + "`"
			default:
				continue
			}
			found++
			if strings.HasPrefix(name, "Verdict") {
				continue
			}
			if !mentions(page, value) {
				t.Errorf("%s does not mention %s (%s in %s)", protocolPage, want, name, dir)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d constants were found", found)
	}
}

// mentions finds a word that is no part of another one.
func mentions(page, word string) bool {
	return regexp.MustCompile(`(^|[^A-Za-z-])` + regexp.QuoteMeta(word) + `($|[^A-Za-z-])`).MatchString(page)
}

// stringConstants lists the constants of a package, its tests aside.
func stringConstants(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	entries, err := os.ReadDir(filepath.FromSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(filepath.FromSlash(dir), e.Name()), nil,
			parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, value := range v.Values {
				if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING && i < len(v.Names) {
					if s, err := strconv.Unquote(lit.Value); err == nil {
						out[v.Names[i].Name] = s
					}
				}
			}
			return true
		})
	}
	return out
}

// ---- The examples.

// The orchestration that the page speaks of.
var fulfilParts = []app.Part{
	orchestration.Define[map[string]any,
		map[string]any]("fulfil").Bind(func(ctx *orchestration.Context, order map[string]any) (map[string]any, error) {
		charged, err := activity.Define[map[string]any, map[string]any]("charge").Call(ctx, order,
			activity.Retry(3, activity.Fixed(10*time.Millisecond)), activity.StartToClose(time.Minute))
		if cents, _ := order["cents"].(float64); err == nil && cents >= 100_000 {
			_, err = orchestration.DefineEvent[map[string]any]("approve").Wait(ctx)
		}
		return charged, err
	}),
}

// block is a fenced block of the page.
type block struct {
	line       int
	kind, arg  string
	text       []string
	subject    string
	header     map[string]string
	headerKeys []string
	body       string
}

// kinds are those blocks that are run.
var kinds = map[string]func(*actor, block) error{
	"publish": (*actor).publish, "task": (*actor).task, "ack": (*actor).ack, "gone": (*actor).gone,
	"listen": (*actor).listen, "notification": (*actor).notification,
	"request": (*actor).request, "answer": (*actor).answer, "respond": (*actor).respond, "dead": (*actor).dead,
}

func blocksOf(page string) (out []block) {
	number := 0
	var open *block
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimRight(line, "\n")
		rest, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			kind, arg, _ := strings.Cut(rest, " ")
			open = &block{line: number, kind: kind, arg: arg}
		case fence:
			open.parse()
			out = append(out, *open)
			open = nil
		case open != nil:
			open.text = append(open.text, line)
		}
	}
	return out
}

// parse takes a subject, headers and a body apart.
func (b *block) parse() {
	head, body, _ := strings.Cut(strings.Join(b.text, "\n"), "\n\n")
	b.body, b.header = body, make(map[string]string)
	for i, line := range strings.Split(head, "\n") {
		name, value, ok := strings.Cut(line, ": ")
		switch {
		case ok && !strings.HasPrefix(line, "{"):
			b.header[name] = value
			b.headerKeys = append(b.headerKeys, name)
		case i == 0:
			b.subject = line
		}
	}
}

// actor does what the examples say.
type actor struct {
	ctx     context.Context
	nc      *nats.Conn
	js      jetstream.JetStream
	known   map[string]string
	held    jetstream.Msg
	subs    []*nats.Subscription
	replied *nats.Msg
}

var placeholder = regexp.MustCompile(`\{([a-z][a-z0-9 ]*)\}`)

// fill puts in known values, and times from now on.
func (a *actor) fill(s string) string {
	return placeholder.ReplaceAllStringFunc(s, func(p string) string {
		name := p[1 : len(p)-1]
		if in, ok := strings.CutPrefix(name, "in "); ok {
			if d, err := time.ParseDuration(in); err == nil {
				return time.Now().Add(d).UTC().Format(time.RFC3339Nano)
			}
		}
		if v, ok := a.known[name]; ok {
			return v
		}
		return p
	})
}

// match compares a message with that of the page, and learns the values of braces.
func (a *actor) match(what, shown, got string) error {
	shown = a.fill(shown)
	pattern, names, last := "^", []string(nil), 0
	for _, at := range placeholder.FindAllStringSubmatchIndex(shown, -1) {
		pattern += regexp.QuoteMeta(shown[last:at[0]]) + "([0-9a-f]+)"
		names = append(names, shown[at[2]:at[3]])
		last = at[1]
	}
	m := regexp.MustCompile(pattern + regexp.QuoteMeta(shown[last:]) + "$").FindStringSubmatch(got)
	if m == nil {
		return fmt.Errorf("%s is %q, the page shows %q", what, got, shown)
	}
	for i, name := range names {
		a.known[name] = m[i+1]
	}
	return nil
}

func (a *actor) matchHeader(b block, h nats.Header) (err error) {
	for _, name := range b.headerKeys {
		err = errors.Join(err, a.match("header "+name, b.header[name], h.Get(name)))
	}
	return err
}

func (a *actor) publish(b block) error {
	m := nats.NewMsg(a.fill(b.subject))
	for _, name := range b.headerKeys {
		m.Header[name] = []string{a.fill(b.header[name])}
	}
	m.Data = []byte(a.fill(b.body))
	_, err := a.js.PublishMsg(a.ctx, m)
	return err
}

func (a *actor) task(b block) error {
	name := natsbroker.ConsumerOf(broker.TaskQueueName{Activity: b.arg})
	c, err := a.js.Consumer(a.ctx, "RONDO_TASKS", name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) { // made as the page says, if the orchestrator was not quicker
		c, err = a.js.CreateOrUpdateConsumer(a.ctx, "RONDO_TASKS", jetstream.ConsumerConfig{
			Durable: name, FilterSubject: "rondo.task._." + b.arg + ".>", AckPolicy: jetstream.AckExplicitPolicy,
			AckWait:    30 * time.Second,
			MaxDeliver: -1, MaxAckPending: 100_000, MaxWaiting: 2048,
		})
	}
	if err != nil {
		return err
	}
	for {
		a.held, err = c.Next(jetstream.FetchContext(a.ctx))
		if err != nil {
			return err
		}
		if at, err := time.Parse(time.RFC3339Nano, a.held.Headers().Get("Rondo-Not-Before")); err == nil &&
			time.Until(at) > 0 {
			if err := a.held.NakWithDelay(time.Until(at)); err != nil { // as the page says
				return err
			}
			continue
		}
		if instanceOf(a.held.Subject()) != instanceOf(b.subject) { // its block comes later on the page
			if err := a.held.NakWithDelay(100 * time.Millisecond); err != nil {
				return err
			}
			continue
		}
		return errors.Join(a.match("the subject", b.subject, a.held.Subject()), a.matchHeader(b, a.held.Headers()),
			a.matchBody(b.body, a.held.Data()))
	}
}

// instanceOf returns the last token of a subject.
func instanceOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

func (a *actor) ack(block) error { return a.held.DoubleAck(a.ctx) }

// gone wants that the work that is held is no longer in the stream.
func (a *actor) gone(block) error {
	meta, err := a.held.Metadata()
	if err != nil {
		return err
	}
	m, err := a.nc.RequestWithContext(a.ctx, "$JS.API.STREAM.MSG.GET.RONDO_TASKS",
		fmt.Appendf(nil, `{"seq":%d}`, meta.Sequence.Stream))
	if err == nil && !strings.Contains(string(m.Data), "10037") {
		err = fmt.Errorf("it is still there: %s", m.Data)
	}
	return err
}

func (a *actor) listen(b block) error {
	s, err := a.nc.SubscribeSync(b.subject)
	if err == nil {
		a.subs = append(a.subs, s)
		err = a.nc.FlushWithContext(a.ctx)
	}
	return err
}

func (a *actor) notification(b block) error {
	m, err := a.subs[len(a.subs)-1].NextMsgWithContext(a.ctx)
	if err != nil {
		return err
	}
	return errors.Join(a.match("the subject", b.subject, m.Subject), a.matchBody(b.body, m.Data))
}

func (a *actor) request(b block) error {
	var err error
	a.replied, err = a.nc.RequestWithContext(a.ctx, a.fill(b.subject), []byte(b.body))
	for err == nil && b.arg == "" && a.early(b) { // the instance may not have decided yet about a recent message
		a.replied, err = a.nc.RequestWithContext(a.ctx, a.fill(b.subject), []byte(b.body))
	}
	return err
}

// early reports whether an instance has not yet reached the state that the page shows.
func (a *actor) early(b block) bool {
	s := string(a.replied.Data)
	switch b.subject {
	case "rondo.api.instance":
		return strings.Contains(s, `"status":"running"`) || strings.Contains(s, `"status":"suspended"`)
	case "rondo.api.waiting":
		return strings.Contains(s, `"kind":"activity"`)
	}
	return false
}

// respond answers a discovery request as the page says, and expects that the sender understands it.
func (a *actor) respond(b block) error {
	s, err := a.nc.Subscribe(b.subject, func(m *nats.Msg) { _ = m.Respond([]byte(b.body)) }) // the sender asks again
	if err != nil {
		return err
	}
	a.subs = append(a.subs, s)
	var shown process.Process
	if err := strictly(b.body, &shown); err != nil {
		return fmt.Errorf("the page shows %s: %w", b.body, err)
	}
	config := natsbroker.Config{URLs: a.nc.ConnectedUrl(), Setup: natsbroker.Use}
	asks, err := natsbroker.Connect(a.ctx, config)
	if err != nil {
		return err
	}
	defer asks.Close()
	all, err := process.All(a.ctx, asks)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(p process.Process) bool { return p.ID == shown.ID })
	if i < 0 || !slices.ContainsFunc(all, func(p process.Process) bool { return p.Kind == process.Orchestrator }) {
		return fmt.Errorf("these answer: %+v", all)
	}
	if !reflect.DeepEqual(all[i], shown) {
		return fmt.Errorf("it is understood as %+v, want %+v", all[i], shown)
	}
	return nil
}

// strictly reads JSON of which nothing may be unknown.
func strictly(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func (a *actor) answer(b block) error {
	if len(b.headerKeys) > 0 {
		return a.matchHeader(b, a.replied.Header)
	}
	return a.matchBody(strings.Join(b.text, "\n"), a.replied.Data)
}

func (a *actor) dead(b block) error {
	s, err := a.js.Stream(a.ctx, "RONDO_DEAD")
	if err != nil {
		return err
	}
	c, err := s.OrderedConsumer(a.ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{b.subject}})
	if err != nil {
		return err
	}
	m, err := c.Next(jetstream.FetchContext(a.ctx))
	if err != nil {
		return err
	}
	return a.matchHeader(b, m.Headers())
}

// matchBody compares JSON: all fields of the page must be there, and there may be more.
func (a *actor) matchBody(shown string, got []byte) error {
	if shown = a.fill(shown); shown == "" && len(got) == 0 {
		return nil
	}
	var want, have any
	if err := json.Unmarshal([]byte(shown), &want); err != nil {
		return fmt.Errorf("the page shows %q: %w", shown, err)
	}
	if err := json.Unmarshal(got, &have); err != nil {
		return fmt.Errorf("the body is %q: %w", got, err)
	}
	if !a.contains(have, want) {
		return fmt.Errorf("the body is %s, the page shows %s", got, shown)
	}
	return nil
}

// contains reports whether JSON has at least the wanted fields, and learns the values of braces.
func (a *actor) contains(have, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		for k := range w {
			ok = ok && a.contains(h[k], w[k])
		}
		return ok
	case []any:
		h, ok := have.([]any)
		ok = ok && len(h) == len(w)
		for i := range w {
			ok = ok && a.contains(h[i], w[i])
		}
		return ok
	case string:
		h, ok := have.(string)
		return ok && a.match("a field", w, h) == nil
	}
	return have == want
}

// runsInside runs a program in this process, and gives where it is found.
func runsInside(t *testing.T, c app.Config, parts ...app.Part) app.Addresses {
	t.Helper()
	c.Listen, c.Stdout, c.Stderr = "off", io.Discard, io.Discard
	a, err := app.New(c, parts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-a.Started():
	case err := <-done:
		done <- nil
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("it is not ready")
	}
	return a.Addresses()
}

func TestProtocolExamples(t *testing.T) {
	t.Parallel()
	c := app.Defaults(app.Dev)
	c.Dir, c.NATSListen = t.TempDir(), "127.0.0.1:0"
	at := runsInside(t, c, fulfilParts...)
	nc, err := nats.Connect(at.NATS, nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	a := &actor{nc: nc, js: js, known: make(map[string]string)}
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	ran := 0
	for _, b := range blocksOf(readProtocol(t)) {
		run := kinds[b.kind]
		if run == nil {
			t.Fatalf("%s:%d: nobody knows what a block %q is", protocolPage, b.line, b.kind)
		}
		if err := run(a, b); err != nil {
			t.Fatalf("%s:%d: %s: %v", protocolPage, b.line, b.kind, err)
		}
		ran++
	}
	if ran < 30 {
		t.Errorf("only %d examples were run", ran)
	}
}

// TestProtocolPermissions runs the configuration that the page leads to: each user can do what the
// page says, and no more.
func TestProtocolPermissions(t *testing.T) {
	t.Parallel()
	const shipped = "../../deploy/nats/one-circle-of-trust.conf"
	if page := readProtocol(t); !strings.Contains(page, "](../deploy/nats/one-circle-of-trust.conf)") ||
		strings.Contains(page, "```permissions") {
		t.Error("the page shows other permissions than those that are shipped")
	}
	s, err := embedded.Start(embedded.Options{Config: filepath.FromSlash(shipped), Dir: t.TempDir(),
		Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	as := func(command app.Command, user string) app.Config {
		c := app.Defaults(command)
		c.NATS.URLs, c.NATS.User, c.NATS.Password, c.ConnectTimeout = s.URL(), user, user, 0
		if user != "setup" {
			c.NATS.InboxPrefix = "_INBOX_" + user
		}
		return c
	}
	m := as(app.Migrate, "setup")
	m.Database.URL, m.Migration.Streams, m.Stdout = filepath.Join(t.TempDir(), "rondo.db"), true, io.Discard
	if a, err := app.New(m, parts...); err != nil || a.Run(t.Context()) != nil {
		t.Fatal("migrate: ", err)
	}
	o := as(app.Orchestrator, "orchestrator")
	o.Streams.Verify = true
	o.Database.URL = m.Database.URL
	runsInside(t, o, parts...)

	w := as(app.Worker, "worker")
	w.Streams.Verify = true
	runsInside(t, w, parts...)

	c := as("", "client")
	login := settings.Broker(settings.NATS(c.NATS), settings.Streams(c.Streams))
	login.Setup = natsbroker.Use
	b := natstest.Connected(t, func() (*natsbroker.Bus, error) {
		return natsbroker.Connect(t.Context(), login)
	})
	people := busclient.New[*client.Client](b, busclient.Options{})
	t.Cleanup(func() { people.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got, err := hello.Run(ctx, people, "ann"); err != nil || got != "hello ann" {
		t.Errorf("%q, %v", got, err)
	}

	for user, forbidden := range map[string][]string{
		"worker": {"rondo.start.hello.w-1", "rondo.control.terminate.h-1", "rondo.timer-due.1-2.h-1",
			"$JS.API.STREAM.DELETE.RONDO", "rondo.api.delete"},
		"client": {"rondo.task-done.1-2.h-1", "rondo.task._.greet.1-2.h-1", "rondo.timer-due.1-2.h-1",
			"$JS.API.STREAM.DELETE.RONDO", "rondo.notification.ended.hello.h-1"},
	} {
		denied := make(chan error, 10)
		nc, err := nats.Connect(s.URL(), nats.UserInfo(user, user),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				denied <- err
			}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		for _, subject := range forbidden {
			if err := nc.Publish(subject, nil); err != nil {
				t.Fatal(err)
			}
			select {
			case <-denied:
			case <-time.After(patience):
				t.Errorf("%s may publish to %s", user, subject)
			}
		}
	}
}
