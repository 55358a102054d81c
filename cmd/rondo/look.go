package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/timeline"
	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// filter are the flags that say which instances are meant.
type filter struct {
	f                                        client.Filter
	statuses                                 []string
	createdAfter, createdBefore, endedBefore string
	others                                   []client.Status // other statuses that the command lists
}

func (f *filter) flags(cmd *cobra.Command) {
	x := cmd.Flags()
	x.StringSliceVar(&f.statuses, "status", nil,
		"only those of a `status`: "+f.allStatuses()+"; several with commas")
	x.StringVar(&f.f.Name, "name", "", "only those of an `orchestration`")
	x.StringVar(&f.f.Version, "version", "", "only those of a `version` of it")
	x.StringVar(&f.f.IDPrefix, "prefix-of-id", "", "only those whose id begins with this `text`")
	x.StringVar(&f.f.Parent, "parent", "", "only the children of an `instance`")
	x.Var(attributeFlag{&f.f.Attributes}, "attribute", "only those that were started with this `key=value`")
	x.BoolVar(&f.f.RootsOnly, "roots", false, "no children")
	x.StringVar(&f.createdAfter, "created-after", "",
		"only those begun after a `time`, like 2027-01-01T03:00:00Z, or 24h for a day ago")
	x.StringVar(&f.createdBefore, "created-before", "", "only those begun before a `time`")
	x.StringVar(&f.endedBefore, "ended-before", "", "only those that have ended before a `time`")
}

// filterFlags are the flags of [filter.flags].
var filterFlags = []string{"status", "name", "version", "prefix-of-id", "parent", "attribute", "roots",
	"created-after", "created-before", "ended-before"}

// onlyNamed returns an error if the command has filters beside names of instances: they would not
// hold for these.
func onlyNamed(cmd *cobra.Command, names []string) error {
	if len(names) == 0 {
		return nil
	}
	for _, f := range filterFlags {
		if cmd.Flags().Changed(f) {
			return misuse("names of instances and --%s are mutually exclusive", f)
		}
	}
	return nil
}

// allStatuses lists the statuses that the command takes.
func (f *filter) allStatuses() string {
	return words(append(client.Statuses(), f.others...))
}

func words[T ~string](list []T) string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return strings.Join(out, ", ")
}

// read checks the flags, and makes a filter of them.
func (f *filter) read(now time.Time) (client.Filter, error) {
	for _, s := range f.statuses {
		if !slices.Contains(client.Statuses(), client.Status(s)) {
			return f.f, misuse("--status %q: there are %s", s, f.allStatuses())
		}
		f.f.Statuses = append(f.f.Statuses, client.Status(s))
	}
	for _, t := range []struct {
		name, said string
		to         *time.Time
	}{{"created-after", f.createdAfter, &f.f.CreatedAfter}, {"created-before", f.createdBefore, &f.f.CreatedBefore},
		{"ended-before", f.endedBefore, &f.f.EndedBefore}} {
		if t.said == "" {
			continue
		}
		at, err := moment(t.said, now)
		if err != nil {
			return f.f, misuse("--%s %q is not a time like 2027-01-01T03:00:00Z or, for a time "+
				"ago, 24h or 7d", t.name, t.said)
		}
		*t.to = at
	}
	if err := f.f.Check(); err != nil {
		return f.f, usageError{err}
	}
	return f.f, nil
}

// maxDays bounds how many days ago a time is: JSON has no time before the year 0.
const maxDays = 365_000

// moment reads a time: one of the calendar, or how long ago it is.
func moment(said string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(said, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= maxDays {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(said); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Parse(time.RFC3339, said)
}

// lookCommands has the commands that print instances.
type lookCommands struct{ *cli }

func (c lookCommands) list() *cobra.Command {
	f := filter{others: []client.Status{pendingStatus}}
	var limit int
	var cursor string
	var count bool
	cmd := &cobra.Command{
		Use: "list", Short: "List instances, the newest first", Args: exactly(),
		Long: "List instances, the newest first (with --prefix-of-id, by id). The list has only instances that match " +
			"all filters.\n\nWith --status pending, list the starts that wait in NATS instead: delayed ones until " +
			"their time, and others for an orchestrator that has their code. Of the filters, only --name and " +
			"--prefix-of-id select such starts.",
		Example: `  rondo list --status failed,halted
  rondo list --name fulfil --created-after 24h --attribute region=eu
  rondo list --count --status running
  rondo list --status pending --name fulfil`,
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "how many at most; 0 for all")
	cmd.Flags().StringVar(&cursor, "cursor", "", "continue after a page: the `token` in the field \"next\" of its JSON")
	cmd.Flags().BoolVar(&count, "count", false, "only count them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		pending, err := f.wantsPending(cmd)
		if err != nil {
			return err
		}
		if pending {
			f.statuses = nil
		}
		want, err := f.read(c.now())
		if err != nil {
			return err
		}
		if limit < 0 {
			return misuse("--limit %d: want 0 or more", limit)
		}
		return c.connected(cmd, patience, func(ctx context.Context) error {
			if pending {
				return c.pending(ctx, want, limit, cursor, count)
			}
			if count {
				n, err := c.client.Instances().Count(ctx, want, 0)
				if err != nil {
					return err
				}
				return c.done(counted{n}, "%d", n)
			}
			list, err := c.instances(ctx, want, limit, cursor)
			if err != nil {
				return err
			}
			return c.listed(list)
		})
	}
	return cmd
}

// counted is a number of instances as JSON.
type counted struct {
	Count int64 `json:"count"`
}

// instances reads as many pages as are wanted.
func (c lookCommands) instances(ctx context.Context, f client.Filter, limit int,
	cursor string) (out client.InstanceList, err error) {
	out.Instances = []client.Instance{}
	for out.Next = cursor; limit == 0 || len(out.Instances) < limit; {
		size := 500
		if limit > 0 {
			size = min(size, limit-len(out.Instances))
		}
		page, err := c.client.Instances().List(ctx, f, client.Page{Limit: size, Cursor: out.Next})
		if err != nil {
			return out, err
		}
		out.Instances = append(out.Instances, page.Instances...)
		if out.Next = page.Next; out.Next == "" {
			break
		}
	}
	return out, nil
}

func (c lookCommands) listed(list client.InstanceList) error {
	if c.asJSON() {
		return c.json(list)
	}
	if len(list.Instances) == 0 {
		return c.print("there are no such instances")
	}
	var rows [][]string
	for _, i := range list.Instances {
		status := string(i.Status)
		if len(i.CustomStatus) > 0 && !i.Status.Ended() {
			status += " " + i.CustomStatus.String()
		}
		rows = append(rows, []string{i.ID, i.Name + " " + i.Version, c.ago(i.CreatedAt),
			c.ago(i.UpdatedAt), status})
	}
	if err := c.table([]string{"INSTANCE", "ORCHESTRATION", "BEGUN", "CHANGED", "STATUS"}, rows); err != nil {
		return err
	}
	if list.Next != "" {
		fmt.Fprintf(c.problems, "there are more; --limit 0 lists all, --output json gives the cursor to go on from\n")
	}
	return nil
}

// shown is an instance with what it waits for, as JSON.
type shown struct {
	client.Instance
	Waits []client.Wait           `json:"waits"`
	More  int                     `json:"more_waits,omitempty"`
	Notes []string                `json:"notes,omitempty"`
	Value map[string]client.Value `json:"values,omitempty"`
}

func (c lookCommands) show() *cobra.Command {
	return &cobra.Command{
		Use: "show INSTANCE", Short: "Show how an instance stands: what it waits for, why, and what would help",
		Long: "Show how an instance stands: what it waits for, and for how long; why it does not go on, if it " +
			"should; and what would help.",
		Example: "  rondo show order-2", Args: instanceID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.connected(cmd, patience, func(ctx context.Context) error { return c.showOne(ctx, args[0]) })
		},
	}
}

func (c lookCommands) showOne(ctx context.Context, id string) error {
	info, err := c.client.Instances().Get(ctx, id)
	if errors.Is(err, client.ErrNoInstance) {
		return c.showPending(ctx, id, err)
	}
	if err != nil {
		return err
	}
	w, err := c.client.Instances().Waiting(ctx, id)
	if err != nil {
		return err
	}
	values, err := c.client.Instances().Values(ctx, id)
	if err != nil {
		return err
	}
	s := shown{Instance: info, Waits: w.Waits, More: w.More, Notes: w.Notes, Value: values}
	if c.asJSON() {
		return c.json(s)
	}
	s.Notes = append(s.Notes, c.askedNotes(ctx, s)...)
	return c.showText(s)
}

func (c lookCommands) showText(s shown) error {
	line := func(name, format string, args ...any) { c.row(14, name, format, args...) }
	line("instance", "%s", s.ID)
	line("orchestration", "%s %s", s.Name, s.Version)
	line("status", "%s", s.Status)
	if len(s.CustomStatus) > 0 {
		line("custom status", "%s", s.CustomStatus)
	}
	if s.Parent != nil {
		line("parent", "%s", s.Parent.Instance)
	}
	for _, k := range sortedKeys(s.Attributes) {
		line("attribute", "%s=%s", k, s.Attributes[k])
	}
	line("begun", "%s (%s)", c.ago(s.CreatedAt), stamp(s.CreatedAt))
	if s.Execution > 1 {
		line("execution", "%d, begun %s", s.Execution, c.ago(s.StartedAt))
	}
	if s.Status.Ended() {
		line("ended", "%s (%s)", c.ago(s.EndedAt), stamp(s.EndedAt))
	} else {
		line("changed", "%s (%s)", c.ago(s.UpdatedAt), stamp(s.UpdatedAt))
	}
	if len(s.Output) > 0 {
		line("output", "%s", s.Output)
	}
	if s.Error != nil && s.Status != client.Halted { // a note says it, with what to do
		line("error", "%v", s.Error)
		if at := s.Error.Place(); at != "" {
			line("", "at %s; --output json has the whole stack", at)
		}
		if errors.Is(s.Error, &failure.Error{Kind: failure.Poison}) {
			line("", "rondo deadletters # lists what was tried too often; rondo deadletters replay tries it again")
		}
		line("", "rondo history %s", positional(s.ID))
	}
	for _, k := range sortedKeys(s.Value) {
		line("value", "%s = %s", k, s.Value[k].Data)
	}
	line("history", "%s, %s", plural.Count(s.LastEvent, "event"), plural.Count(s.HistoryBytes, "byte"))
	if t, ok := events.ParseTrace(s.Trace); ok {
		line("trace", "%x%s", t.ID, map[bool]string{false: ", not sampled: no spans are exported"}[t.Sampled])
	}
	for _, w := range s.Waits {
		what := w.What + " (event " + strconv.FormatInt(w.Event, 10) + ", for " + span(c.now().Sub(w.Since)) + ")"
		line("waits for", "%s", what)
		if cure := c.cure(s, w); cure != "" {
			line("", "%s", cure)
		}
	}
	if s.More > 0 {
		line("", "and %s", plural.Count(s.More, "other"))
	}
	for _, n := range s.Notes {
		if !s.Status.Ended() { // otherwise it repeats the lines above
			line("note", "%s", n)
		}
	}
	if s.Status == client.Suspended {
		line("", "rondo resume %s", positional(s.ID))
	}
	return nil
}

// cure returns a hint on how the operator can end a wait, such as a command.
func (c lookCommands) cure(s shown, w client.Wait) string {
	id := positional(s.ID)
	switch {
	case s.Status.Ended() || s.Status == client.Suspended || s.Status == client.Halted:
		return ""
	case w.Kind == client.WaitsForEvent:
		return fmt.Sprintf("rondo raise %s %s '<JSON>'", id, argument(w.Name))
	case w.Kind == client.WaitsForMailbox:
		return fmt.Sprintf("rondo send %s %s '<JSON>'", id, argument(w.Name))
	case w.Kind == client.WaitsForChild:
		return "rondo show " + positional(w.Instance)
	case w.Kind == client.WaitsForTimer && !w.Due.IsZero() && w.Due.After(c.now()):
		return "it is due in " + span(w.Due.Sub(c.now()))
	}
	return ""
}

// positional is a word as a shell and a command take it that is not the value of a flag.
func positional(s string) string {
	if strings.HasPrefix(s, "-") {
		return "-- " + argument(s)
	}
	return argument(s)
}

// argument is a word as a shell takes it.
func argument(s string) string {
	if s != "" && s[0] != '~' && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=~", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (c lookCommands) history() *cobra.Command {
	var execution int64
	var export, clock, full bool
	cmd := &cobra.Command{
		Use: "history INSTANCE", Short: "Print an instance's event history",
		Long: `Print the event history of an instance, one line for each event: the time since the first event, the number of the event, and the event. An arrow marks events
from outside; the code of the orchestration produced all others.

--export prints the history as JSON, for rondotest.Replay and rondo check.`,
		Example: `  rondo history order-2
  rondo history order-2 --export > testdata/order-2.json`,
		Args: instanceID,
	}
	cmd.Flags().Int64Var(&execution, "execution", 0,
		"the `number` of an execution, if it has continued as new; 0 is the last one")
	cmd.Flags().BoolVar(&export, "export", false, "print it as JSON, for programs and tests")
	cmd.Flags().BoolVar(&clock, "clock", false, "the time of the clock (UTC), not since the first event")
	cmd.Flags().BoolVar(&full, "full", false, "all of each input, result and message, however long")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.connected(cmd, patience, func(ctx context.Context) error {
			x, err := c.client.Instances().History(ctx, args[0], execution)
			if errors.Is(err, client.ErrNoInstance) {
				return c.notTakenUp(ctx, args[0], err)
			}
			if err != nil {
				return err
			}
			if export || c.asJSON() {
				return c.json(x)
			}
			o := timeline.Options{Absolute: clock}
			if full {
				o.Width = -1
			}
			return timeline.Write(c.out, x, o)
		})
	}
	return cmd
}

func (c lookCommands) tree() *cobra.Command {
	return &cobra.Command{
		Use: "tree INSTANCE", Short: "Show an instance with its children, and theirs", Args: instanceID,
		Example: "  rondo tree order-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.connected(cmd, patience, func(ctx context.Context) error {
				nodes, err := c.client.Instances().Tree(ctx, args[0])
				if err != nil {
					return err
				}
				if c.asJSON() {
					return c.json(struct {
						Nodes []client.Node `json:"nodes"`
					}{append([]client.Node{}, nodes...)})
				}
				return c.printTree(nodes)
			})
		},
	}
}

// printTree prints each node under its parent.
func (c lookCommands) printTree(nodes []client.Node) error {
	children := make(map[string][]client.Node)
	for _, n := range nodes[1:] {
		children[n.Parent] = append(children[n.Parent], n)
	}
	var print func(n client.Node, mark, indent string) error
	print = func(n client.Node, mark, indent string) error {
		if err := c.print("%s%s  %s  %s", mark, n.Instance, n.Name, n.Status); err != nil {
			return err
		}
		for i, child := range children[n.Instance] {
			m, in := "├─ ", "│  "
			if i == len(children[n.Instance])-1 {
				m, in = "└─ ", "   "
			}
			if err := print(child, indent+m, indent+in); err != nil {
				return err
			}
		}
		return nil
	}
	return print(nodes[0], "", "")
}

// change is a line of watch as JSON.
type change struct {
	At       time.Time     `json:"at"`
	Instance string        `json:"instance"`
	Status   client.Status `json:"status"`
	Custom   any           `json:"custom_status,omitempty"`
	Output   any           `json:"output,omitempty"`
	Error    any           `json:"error,omitempty"`
}

func (c lookCommands) watch() *cobra.Command {
	return &cobra.Command{
		Use: "watch INSTANCE", Short: "Print each change of an instance's custom status, and its end",
		Long: "Print each change of an instance's custom status when it happens, and finally how the instance " +
			"ended. The command waits for an instance that does not exist yet.",
		Args: instanceID, Example: "  rondo watch order-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.connected(cmd, 0, func(ctx context.Context) error { return c.watchOne(ctx, args[0]) })
		},
	}
}

func (c lookCommands) watchOne(ctx context.Context, id string) error {
	var waits sync.WaitGroup
	defer waits.Wait()
	waiting, over := context.WithCancel(ctx)
	defer over()
	waits.Go(func() { c.progressOf(id).sayWhyNot(waiting) })
	for s, err := range c.client.WatchStatus(ctx, id) {
		if err != nil && ctx.Err() != nil {
			return notEnded{id + " has not ended: " + c.stands(id), ctx.Err()}
		}
		if err != nil {
			return err
		}
		if err := c.done(change{At: c.now().UTC(), Instance: id, Status: client.Running, Custom: s.Data}, "%s  %s",
			c.now().Format(time.TimeOnly), cmp.Or(s.Data.String(), "no status")); err != nil {
			return err
		}
	}
	info, err := c.client.Instances().Get(ctx, id)
	if err != nil {
		return err
	}
	end := change{At: info.EndedAt.UTC(), Instance: id, Status: info.Status}
	what := string(info.Status)
	if len(info.Output) > 0 {
		end.Output, what = info.Output, what+" with "+info.Output.String()
	}
	if info.Error != nil {
		end.Error, what = info.Error, what+": "+info.Error.Error()
	}
	if err := c.done(end, "%s  %s", c.now().Format(time.TimeOnly), what); err != nil {
		return err
	}
	if info.Status != client.Completed {
		return endedError{id, info.Error}
	}
	return nil
}
