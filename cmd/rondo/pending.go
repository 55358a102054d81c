package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/client"
)

// This file lists, shows and withdraws the starts that wait in NATS: the database does not have
// their instances.

// pendingStatus is the status of a start whose instance the database does not have.
const pendingStatus = "pending"

// pendingFilters are the flags of [filter.flags] that select pending starts, too.
var pendingFilters = []string{"status", "name", "prefix-of-id"}

// wantsPending reports whether the flags select pending starts, and returns an error if other flags
// do not go with that.
func (f *filter) wantsPending(cmd *cobra.Command) (bool, error) {
	if !slices.Contains(f.statuses, pendingStatus) {
		return false, nil
	}
	if len(f.statuses) > 1 {
		return false, misuse("--status %s does not go with other statuses: NATS has the pending starts, and the "+
			"database has the instances", pendingStatus)
	}
	for _, name := range filterFlags {
		if cmd.Flags().Changed(name) && !slices.Contains(pendingFilters, name) {
			return false, misuse("--status %s and --%s are mutually exclusive; --name and --prefix-of-id select "+
				"pending starts", pendingStatus, name)
		}
	}
	return true, nil
}

// pending is [lookCommands.list] for pending starts.
func (c lookCommands) pending(ctx context.Context, f client.Filter, limit int, cursor string, count bool) error {
	want := client.PendingFilter{IDPrefix: f.IDPrefix, Orchestration: f.Name}
	if count {
		limit, cursor = 0, ""
	}
	list := client.PendingList{Starts: []client.PendingStart{}, Next: cursor}
	for limit == 0 || len(list.Starts) < limit {
		size := 500
		if limit > 0 {
			size = min(size, limit-len(list.Starts))
		}
		page, err := c.client.Instances().PendingPage(ctx, want, client.Page{Limit: size, Cursor: list.Next})
		if err != nil {
			return err
		}
		list.Starts = append(list.Starts, page.Starts...)
		if list.Next = page.Next; list.Next == "" {
			break
		}
	}
	switch {
	case count:
		return c.done(counted{int64(len(list.Starts))}, "%d", len(list.Starts))
	case c.asJSON():
		return c.json(list)
	case len(list.Starts) == 0:
		return c.print("no start is pending")
	}
	var rows [][]string
	for _, s := range list.Starts {
		rows = append(rows, []string{s.Instance, codeOf(s), c.ago(s.StoredAt), pendingText(s, c.now())})
	}
	if err := c.table([]string{"INSTANCE", "ORCHESTRATION", "STORED", "PENDING"}, rows); err != nil {
		return err
	}
	if list.Next != "" {
		fmt.Fprintf(c.problems, "there are more; --limit 0 lists all, --output json gives the cursor to go on from\n")
	}
	return nil
}

// codeOf names the orchestration of a start, and its version if the start names one.
func codeOf(s client.PendingStart) string {
	if s.Version == "" {
		return s.Orchestration
	}
	return s.Orchestration + " " + s.Version
}

// pendingText tells why a start is pending.
func pendingText(s client.PendingStart, now time.Time) string {
	text := "waits for an orchestrator"
	if s.Why == client.PendingScheduled {
		text = fmt.Sprintf("scheduled for %s (in %s)", stamp(s.Due), span(s.Due.Sub(now)))
	}
	if s.Parent != "" {
		text += ", child of " + s.Parent
	}
	return text
}

// pendingOf returns the starts of an instance that wait in NATS. It returns none if they cannot be
// read: they only explain why there is no instance.
func (c *cli) pendingOf(ctx context.Context, id string) []client.PendingStart {
	list, _ := c.client.Instances().PendingPage(ctx, client.PendingFilter{Instance: id}, client.Page{})
	return list.Starts
}

// shownPending is an instance of which only starts are there, as JSON.
type shownPending struct {
	Instance string                `json:"instance"`
	Status   string                `json:"status"`
	Starts   []client.PendingStart `json:"starts"`
	Notes    []string              `json:"notes"`
}

// showPending is [lookCommands.showOne] for an instance that the database does not have. It returns
// the error that says so.
func (c lookCommands) showPending(ctx context.Context, id string, missing error) error {
	starts := c.pendingOf(ctx, id)
	missing = c.notTakenUpOf(ctx, id, starts, missing)
	why, ok := errors.AsType[notYet](missing)
	if len(starts) == 0 || !ok {
		return missing
	}
	if c.asJSON() {
		err := c.json(shownPending{Instance: id, Status: pendingStatus, Starts: starts, Notes: []string{why.why}})
		return cmp.Or(err, missing)
	}
	line := func(name, format string, args ...any) { c.row(14, name, format, args...) }
	line("instance", "%s", id)
	line("status", "%s", pendingStatus)
	for _, s := range starts {
		line("orchestration", "%s", codeOf(s))
		line("stored", "%s (%s)", c.ago(s.StoredAt), stamp(s.StoredAt))
		line("pending", "%s", pendingText(s, c.now()))
	}
	return missing
}

// withdrawn is the outcome of delete for an instance of which only starts are there, as JSON.
type withdrawn struct {
	Instance string `json:"instance"`
	Starts   int    `json:"withdrawn_starts"`
}

// withdraw is delete for an instance that the database does not have: it removes the starts of the
// instance that wait in NATS. If there are none, it explains the error of the deletion.
func (c removeCommands) withdraw(ctx context.Context, id string, missing error) error {
	n, err := c.client.Instances().Withdraw(ctx, id)
	switch {
	case errors.Is(err, client.ErrNoInstance), errors.Is(err, broker.ErrNoResponders), // older ones cannot
		errors.Is(err, broker.ErrPermission):
		return c.notTakenUp(ctx, id, missing)
	case err != nil:
		return err
	case n == 1:
		return c.done(withdrawn{id, n}, "%s: the start was withdrawn", id)
	}
	return c.done(withdrawn{id, n}, "%s: %d starts were withdrawn", id, n)
}

// withdrawHint names the command that withdraws the starts of an instance, or, for those of a
// child, the one that ends its parent.
func withdrawHint(id string, starts []client.PendingStart) string {
	for _, s := range starts {
		if s.Parent != "" {
			return "`rondo cancel " + positional(s.Parent) + "` ends its parent, and with it the wait of the start"
		}
	}
	return "`rondo delete " + positional(id) + "` withdraws the start"
}

// waitsInNATS explains a missing instance by its first pending start.
func (c *cli) waitsInNATS(err error, starts []client.PendingStart) error {
	s := starts[0]
	hint := withdrawHint(s.Instance, starts)
	if s.Why == client.PendingScheduled {
		return notYet{err, "its start is " + pendingText(s, c.now()), hint}
	}
	return notYet{err, fmt.Sprintf("its start has waited for %s", span(c.now().Sub(s.StoredAt))),
		"`rondo doctor` tells what the orchestrators lack; " + hint}
}
