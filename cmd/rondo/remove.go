package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/client"
)

// removeCommands has the commands that remove instances and executions for good.
type removeCommands struct{ *cli }

func (c removeCommands) delete() *cobra.Command {
	var f filter
	var how client.DeleteOptions
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete INSTANCE... | delete --ended-before TIME [--name ...]",
		Short: "Delete instances permanently, with their children",
		Long: `Delete instances permanently, with their histories and their children. Their ids can be used again.

If only one instance is named, and it does not exist yet because its start waits in NATS, the command withdraws the start.

Named instances must have ended, unless --force is set. With it, the command terminates them first, which withdraws their activity tasks, timers and children. It
waits 3 s at most for that. Without names, --ended-before or --status is required: the command deletes all ended instances
that match every filter. Without --yes, it only prints their number.`,
		Example: `  rondo delete order-1 order-2
  rondo delete --ended-before 30d --name fulfil --yes`,
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&how.Force, "force", false, "terminate and delete instances that have not ended, too")
	cmd.Flags().BoolVar(&how.Alone, "alone", false, "do nothing if an instance has children")
	cmd.Flags().BoolVar(&how.Children, "children", false, "a child may be deleted without its parent")
	cmd.Flags().BoolVar(&yes, "yes", false, "delete all ended instances that match")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		want, err := f.read(c.now())
		if err != nil {
			return err
		}
		if err := errors.Join(onlyNamed(cmd, args), checkIDs(args...)); err != nil {
			return err
		}
		bulk := cmd.Flags().Changed("ended-before") || len(want.Statuses) > 0
		switch {
		case len(args) == 0 && !bulk:
			return misuse("INSTANCE is missing; name instances, or select ended ones with --ended-before or --status")
		case slices.ContainsFunc(want.Statuses, func(s client.Status) bool { return !s.Ended() }):
			return misuse("filters select ended instances only; name running instances, and add --force")
		case len(args) > query.MaxIDs: // all of them are deleted or none
			return misuse("%d instances are too many for one deletion; name at most %d, as with xargs -n %[2]d",
				len(args), query.MaxIDs)
		case len(args) == 0 && how != (client.DeleteOptions{}):
			return misuse("--force, --alone and --children are for instances that are named")
		}
		return c.connected(cmd, patience, func(ctx context.Context) error {
			if len(args) > 0 {
				d, err := c.client.Instances().Delete(ctx, args, how)
				if len(args) == 1 && errors.Is(err, client.ErrNoInstance) {
					return c.withdraw(ctx, args[0], err)
				}
				if errors.Is(err, client.ErrNoInstance) {
					return fmt.Errorf("%w; a start that waits in NATS is withdrawn if its instance is named alone", err)
				}
				if err != nil {
					return err
				}
				return c.removed(d, "deleted")
			}
			return c.deleteEnded(ctx, want, yes)
		})
	}
	return cmd
}

func (c removeCommands) deleteEnded(ctx context.Context, f client.Filter, yes bool) error {
	if !yes {
		if f.EndedBefore.IsZero() {
			f.EndedBefore = c.now()
		}
		n, err := c.client.Instances().Count(ctx, f, 0)
		if err != nil {
			return err
		}
		return c.done(counted{n}, "%s would be deleted, with all children; --yes does it", plural.Count(n, "instance"))
	}
	all, err := total(c.client.Instances().DeleteEnded(ctx, f))
	if err != nil {
		return err
	}
	return c.removed(all, "deleted")
}

// total removes all batches, and adds up how much was removed.
func total(batches iter.Seq2[client.Removed, error]) (all client.Removed, err error) {
	for batch, err := range batches {
		if err != nil {
			return all, err
		}
		all.Add(batch)
	}
	return all, nil
}

// removed prints how much was removed.
func (c removeCommands) removed(d client.Removed, what string) error {
	skipped := ""
	if d.Skipped > 0 {
		skipped = "; some were left alone, because they have children that have not ended"
	}
	return c.done(d, "%s: %s, %s, %s%s%s", what, plural.Count(d.Instances, "instance"),
		plural.Count(d.Executions, "execution"), plural.Count(d.Events, "event"), skipped, withdrawnText(d.Withdrawn))
}

// withdrawnText describes what a deletion by force has withdrawn.
func withdrawnText(w client.Withdrawn) string {
	var b strings.Builder
	if w.Instances > 0 {
		fmt.Fprintf(&b, "\nterminated before: %s; withdrawn: %s, %s", plural.Count(w.Instances, "instance"),
			plural.Count(w.Tasks, "activity task"), plural.Count(w.Timers, "timer"))
	}
	if w.Uncounted > 0 {
		fmt.Fprintf(&b, "\nnot counted: what %s had withdrawn", plural.Count(w.Uncounted, "instance"))
	}
	if w.NotEnded > 0 {
		fmt.Fprintf(&b, "\nnot terminated in time: %s; their activities may still be executed",
			plural.Count(w.NotEnded, "instance"))
	}
	return b.String()
}

func (c removeCommands) prune() *cobra.Command {
	var f filter
	var keep int
	var before string
	var yes bool
	cmd := &cobra.Command{
		Use:   "prune INSTANCE | prune --yes [--name ...]",
		Short: "Remove former executions of instances that continue as new",
		Long: `Remove former executions of instances that continue as new. The current one always stays, and so do the values.

Without the name of an instance, the command prunes all instances that match every filter. It needs --yes then.`,
		Example: `  rondo prune basket-7 --keep 3
  rondo prune --name basket --older-than 30d --yes`,
		Args: between(0, "INSTANCE"),
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&keep, "keep", 1, "how many executions stay, the current one included")
	cmd.Flags().StringVar(&before, "older-than", "", "keep what has ended later than this `time` ago, like 24h or 30d")
	cmd.Flags().BoolVar(&yes, "yes", false, "prune all instances that match")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		want, err := f.read(c.now())
		if err != nil {
			return err
		}
		if err := errors.Join(onlyNamed(cmd, args), checkIDs(args...)); err != nil {
			return err
		}
		how := client.Keep{Last: keep}
		if keep < 1 {
			return misuse("--keep %d: the current execution always stays", keep)
		}
		if before != "" {
			if how.EndedBefore, err = moment(before, c.now()); err != nil {
				return misuse("--older-than %q is not a time like 24h or 30d", before)
			}
		}
		if len(args) == 0 && !yes {
			return misuse("which instance? Name it, or say --yes to prune all that fit")
		}
		return c.connected(cmd, patience, func(ctx context.Context) error { return c.pruneThem(ctx, args, want, how) })
	}
	return cmd
}

func (c removeCommands) pruneThem(ctx context.Context, args []string, f client.Filter, how client.Keep) error {
	if len(args) > 0 {
		d, err := c.client.Instances().Prune(ctx, args[0], how)
		if err != nil {
			return err
		}
		return c.removed(d, "pruned")
	}
	all, err := total(c.client.Instances().PruneAll(ctx, f, how))
	if err != nil {
		return err
	}
	return c.removed(all, "pruned")
}
