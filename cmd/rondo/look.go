package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/timeline"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// filter are the flags that say which instances are meant.
type filter struct {
	f                                        history.Filter
	statuses                                 []string
	createdAfter, createdBefore, endedBefore string
}

func (f *filter) flags(cmd *cobra.Command) {
	x := cmd.Flags()
	x.StringSliceVar(&f.statuses, "status", nil,
		"only those of a `status`: "+words(round.Statuses())+"; several with commas")
	x.StringVar(&f.f.Name, "name", "", "only those of an `orchestration`")
	x.StringVar(&f.f.Version, "version", "", "only those of a `version` of it")
	x.StringVar(&f.f.IDPrefix, "prefix-of-id", "", "only those whose id begins with this `text`")
	x.StringVar(&f.f.Parent, "parent", "", "only the children of an `instance`")
	x.StringToStringVar(&f.f.Attributes, "attribute", nil, "only those that were started with this `key=value`")
	x.BoolVar(&f.f.RootsOnly, "roots", false, "no children")
	x.StringVar(&f.createdAfter, "created-after", "",
		"only those begun after a `time`, like 2027-01-01T03:00:00Z, or 24h for a day ago")
	x.StringVar(&f.createdBefore, "created-before", "", "only those begun before a `time`")
	x.StringVar(&f.endedBefore, "ended-before", "", "only those that have ended before a `time`")
}

func words[T ~string](list []T) string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return strings.Join(out, ", ")
}

// read checks what was said.
func (f *filter) read(now time.Time) (history.Filter, error) {
	for _, s := range f.statuses {
		if !slices.Contains(round.Statuses(), round.Status(s)) {
			return f.f, misuse("--status %q: there are %s", s, words(round.Statuses()))
		}
		f.f.Statuses = append(f.f.Statuses, round.Status(s))
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
			return f.f, misuse("--%s %q is no time like 2027-01-01T03:00:00Z, and none like 24h or 7d, "+
				"which means so long ago", t.name, t.said)
		}
		*t.to = at
	}
	if err := f.f.Check(); err != nil {
		return f.f, usageError{err}
	}
	return f.f, nil
}

// moment reads a time: one of the calendar, or how long ago it is.
func moment(said string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(said, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(said); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Parse(time.RFC3339, said)
}

func (c *cli) list() *cobra.Command {
	var f filter
	var limit int
	var cursor string
	var count bool
	cmd := &cobra.Command{
		Use: "list", Short: "List instances, the newest first", Args: exactly(),
		Long: "List instances, the newest first (with --prefix-of-id by id). All that is said about them must hold.",
		Example: `  rondo list --status failed,halted
  rondo list --name fulfil --created-after 24h --attribute region=eu
  rondo list --count --status running`,
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "how many at most; 0 for all")
	cmd.Flags().StringVar(&cursor, "cursor", "", "go on behind another page: the `token` that its JSON has as next")
	cmd.Flags().BoolVar(&count, "count", false, "only count them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		want, err := f.read(c.now())
		if err != nil {
			return err
		}
		if limit < 0 {
			return misuse("--limit %d is less than none", limit)
		}
		return c.connected(cmd, patience, func(ctx context.Context) error {
			if count {
				n, err := c.client.Count(ctx, want, 0)
				if err != nil {
					return err
				}
				return c.done(query.Count{Count: n}, "%d", n)
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

// instances reads as many pages as are wanted.
func (c *cli) instances(ctx context.Context, f history.Filter, limit int, cursor string) (out query.List, err error) {
	out.Instances = []query.Instance{}
	for out.Next = cursor; limit == 0 || len(out.Instances) < limit; {
		size := 500
		if limit > 0 {
			size = min(size, limit-len(out.Instances))
		}
		page, err := c.client.List(ctx, f, history.Page{Limit: size, Cursor: out.Next})
		if err != nil {
			return out, err
		}
		for _, i := range page.Instances {
			out.Instances = append(out.Instances, query.InstanceOf(i))
		}
		if out.Next = page.Next; out.Next == "" {
			break
		}
	}
	return out, nil
}

func (c *cli) listed(list query.List) error {
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
		rows = append(rows, []string{i.Instance, i.Name + " " + i.Version, c.ago(i.CreatedAt),
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
	query.Instance
	Waits []query.Wait           `json:"waits"`
	More  int                    `json:"more_waits,omitempty"`
	Notes []string               `json:"notes,omitempty"`
	Value map[string]query.Value `json:"values,omitempty"`
}

func (c *cli) show() *cobra.Command {
	return &cobra.Command{
		Use: "show INSTANCE", Short: "Show how an instance stands: what it waits for, why, and what would help",
		Long: "Show how an instance stands: what it waits for, and for how long; why it does not go on, if it " +
			"should; and what would help.",
		Example: "  rondo show order-2", Args: exactly("INSTANCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.connected(cmd, patience, func(ctx context.Context) error { return c.showOne(ctx, args[0]) })
		},
	}
}

func (c *cli) showOne(ctx context.Context, id string) error {
	info, err := c.client.Instance(ctx, id)
	if errors.Is(err, history.ErrNoInstance) {
		return c.notTakenUp(ctx, id, err)
	}
	if err != nil {
		return err
	}
	w, err := c.client.Waiting(ctx, id)
	if err != nil {
		return err
	}
	values, err := c.client.Values(ctx, id)
	if err != nil {
		return err
	}
	s := shown{Instance: query.InstanceOf(info), Waits: w.Waits, More: w.More, Notes: w.Notes}
	for k, v := range values {
		if s.Value == nil {
			s.Value = make(map[string]query.Value)
		}
		s.Value[k] = query.Value(v)
	}
	if c.asJSON() {
		return c.json(s)
	}
	return c.showText(s)
}

// notTakenUp says so if there is no instance because nobody knows the code that its start is for.
func (c *cli) notTakenUp(ctx context.Context, id string, err error) error {
	all, e := c.client.Processes(ctx)
	if e != nil {
		return err
	}
	for _, p := range all {
		for _, u := range p.Unknown {
			if u.Instance == id {
				return fmt.Errorf("%w yet: its start waits since %s, because %s; deploy an orchestrator that has "+
					"this code, or start it by another name", err, span(c.now().Sub(u.Since)),
					cmp.Or(u.Detail, u.Reason))
			}
		}
	}
	return err
}

func (c *cli) showText(s shown) error {
	line := func(name, format string, args ...any) {
		text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n"+strings.Repeat(" ", 15))
		fmt.Fprintf(c.out, "%-14s %s\n", name, text)
	}
	line("instance", "%s", s.Instance.Instance)
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
	if s.Error != nil && s.Status != round.Halted { // a note says it, with what to do
		line("error", "%v", s.Error)
		if at := s.Error.Place(); at != "" {
			line("", "at %s; --output json has the whole stack", at)
		}
		if errors.Is(s.Error, &events.Error{Kind: events.Poison}) {
			line("", "rondo deadletters # lists what was tried too often; rondo deadletters replay tries it again")
		}
		line("", "rondo history %s", argument(s.Instance.Instance))
	}
	for _, k := range sortedKeys(s.Value) {
		line("value", "%s = %s", k, s.Value[k].Data)
	}
	line("history", "%d events, %d bytes", s.LastEvent, s.HistoryBytes)
	if t, ok := events.ParseTrace(s.Trace); ok {
		line("trace", "%x%s", t.ID, map[bool]string{false: ", which nobody is told of"}[t.Sampled])
	}
	for _, w := range s.Waits {
		what := w.What + " (event " + strconv.FormatInt(w.Event, 10) + ", since " + span(c.now().Sub(w.Since)) + ")"
		line("waits for", "%s", what)
		if cure := c.cure(s, w); cure != "" {
			line("", "%s", cure)
		}
	}
	if s.More > 0 {
		line("", "and %d others", s.More)
	}
	for _, n := range s.Notes {
		if !s.Status.Ended() { // otherwise it says again what stands above
			line("note", "%s", n)
		}
	}
	if s.Status == round.Suspended {
		line("", "rondo resume %s", argument(s.Instance.Instance))
	}
	return nil
}

// cure says what somebody can do about what is waited for.
func (c *cli) cure(s shown, w query.Wait) string {
	id := argument(s.Instance.Instance)
	switch {
	case s.Status.Ended() || s.Status == round.Suspended || s.Status == round.Halted:
		return ""
	case w.Kind == round.WaitsForEvent:
		return fmt.Sprintf("rondo raise %s %s '<JSON>'", id, argument(w.Name))
	case w.Kind == round.WaitsForQueue:
		return fmt.Sprintf("rondo enqueue %s %s '<JSON>'", id, argument(w.Name))
	case w.Kind == round.WaitsForChild:
		return "rondo show " + argument(w.Instance)
	case w.Kind == round.WaitsForTimer && !w.Due.IsZero() && w.Due.After(c.now()):
		return "it is due in " + span(w.Due.Sub(c.now()))
	}
	return ""
}

// argument is a word as a shell takes it.
func argument(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
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

func (c *cli) history() *cobra.Command {
	var execution int64
	var export, clock, full bool
	cmd := &cobra.Command{
		Use: "history INSTANCE", Short: "Tell what has happened to an instance",
		Long: `Tell what has happened to an instance, one line for each event: the time since the first one, its number, and what it says. An arrow marks what
came from outside; everything else the code has said.

--export prints it as JSON, as package rondotest reads it to try today's code on it.`,
		Example: `  rondo history order-2
  rondo history order-2 --export > testdata/order-2.json`,
		Args: exactly("INSTANCE"),
	}
	cmd.Flags().Int64Var(&execution, "execution", 0,
		"the `number` of an execution, if it has continued as new; 0 is the last one")
	cmd.Flags().BoolVar(&export, "export", false, "print it as JSON, for programs and tests")
	cmd.Flags().BoolVar(&clock, "clock", false, "the time of the clock (UTC), not since the first event")
	cmd.Flags().BoolVar(&full, "full", false, "all of each input, result and message, however long")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.connected(cmd, patience, func(ctx context.Context) error {
			x, err := c.client.History(ctx, args[0], execution)
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

func (c *cli) tree() *cobra.Command {
	return &cobra.Command{
		Use: "tree INSTANCE", Short: "Show an instance with its children, and theirs", Args: exactly("INSTANCE"),
		Example: "  rondo tree order-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.connected(cmd, patience, func(ctx context.Context) error {
				nodes, err := c.client.Tree(ctx, args[0])
				if err != nil {
					return err
				}
				if c.asJSON() {
					out := query.Tree{Nodes: []query.Node{}}
					for _, n := range nodes {
						out.Nodes = append(out.Nodes, query.Node(n))
					}
					return c.json(out)
				}
				return c.printTree(nodes)
			})
		},
	}
}

// printTree prints each node under its parent.
func (c *cli) printTree(nodes []history.Node) error {
	children := make(map[string][]history.Node)
	for _, n := range nodes[1:] {
		children[n.Parent] = append(children[n.Parent], n)
	}
	var print func(n history.Node, mark, indent string) error
	print = func(n history.Node, mark, indent string) error {
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
	At       time.Time    `json:"at"`
	Instance string       `json:"instance"`
	Status   round.Status `json:"status"`
	Custom   any          `json:"custom_status,omitempty"`
	Output   any          `json:"output,omitempty"`
	Error    any          `json:"error,omitempty"`
}

func (c *cli) watch() *cobra.Command {
	return &cobra.Command{
		Use: "watch INSTANCE", Short: "Tell each change of an instance's custom status, and how it ends",
		Long: "Tell each change of an instance's custom status as it comes, and at last how it ends. Nothing is " +
			"asked again and again for that.",
		Args: exactly("INSTANCE"), Example: "  rondo watch order-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.connected(cmd, 0, func(ctx context.Context) error { return c.watchOne(ctx, args[0]) })
		},
	}
}

func (c *cli) watchOne(ctx context.Context, id string) error {
	for s, err := range c.client.WatchStatus(ctx, id) {
		if err != nil {
			return err
		}
		if err := c.done(change{At: c.now().UTC(), Instance: id, Status: round.Running, Custom: s.Data}, "%s  %s",
			c.now().Format(time.TimeOnly), cmp.Or(s.Data.String(), "no status")); err != nil {
			return err
		}
	}
	info, err := c.client.Instance(ctx, id)
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
	if info.Status != round.Completed {
		return endedError{id, info.Error}
	}
	return nil
}
