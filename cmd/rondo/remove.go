package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/history"
)

// inPieces is how many instances are removed with one question.
const inPieces = 200

func (c *cli) delete() *cobra.Command {
	var f filter
	var how history.Deletion
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete INSTANCE... | delete --ended-before TIME [--name ...]",
		Short: "Delete instances for good, with their children",
		Long: `Delete instances for good, with all that is known of them, and with their children. Their ids can be used again.

Named instances must have ended, unless --force is given. Without names, those are deleted that have ended and fit what is said; --yes has to be
said then, otherwise it only tells how many there are.`,
		Example: `  rondo delete order-1 order-2
  rondo delete --ended-before 30d --name fulfil --yes`,
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&how.Force, "force", false, "delete instances that have not ended, too")
	cmd.Flags().BoolVar(&how.Alone, "alone", false, "do nothing if an instance has children")
	cmd.Flags().BoolVar(&how.Children, "children", false, "a child may be deleted without its parent")
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, delete all that have ended and fit")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		want, err := f.read(c.now())
		if err != nil {
			return err
		}
		bulk := cmd.Flags().Changed("ended-before") || len(want.Statuses) > 0
		switch {
		case len(args) == 0 && !bulk:
			return misuse("which instances? Name them, or say with --ended-before or --status which ones are meant")
		case len(args) > 0 && bulk:
			return misuse("either names, or --ended-before and --status: say one of the two")
		case len(args) == 0 && how != (history.Deletion{}):
			return misuse("--force, --alone and --children are for instances that are named")
		}
		return c.connected(cmd, patience, func(ctx context.Context) error {
			if len(args) > 0 {
				d, err := c.client.Delete(ctx, args, how)
				if err != nil {
					return err
				}
				return c.removed(history.DeleteResultPage{DeleteResult: d}, "deleted")
			}
			return c.deleteEnded(ctx, want, yes)
		})
	}
	return cmd
}

func (c *cli) deleteEnded(ctx context.Context, f history.Filter, yes bool) error {
	if !yes {
		if f.EndedBefore.IsZero() {
			f.EndedBefore = c.now()
		}
		n, err := c.client.Count(ctx, f, 0)
		if err != nil {
			return err
		}
		return c.done(query.Count{Count: n}, "%d instances would be deleted, with their children; --yes does it", n)
	}
	var all history.DeleteResultPage
	for page := (history.Page{Limit: inPieces}); ; {
		d, err := c.client.DeleteEnded(ctx, f, page)
		if err != nil {
			return err
		}
		all.Add(d.DeleteResult)
		all.Skipped += d.Skipped
		if page.Cursor = d.Next; d.Next == "" {
			return c.removed(all, "deleted")
		}
	}
}

// removed tells what was removed.
func (c *cli) removed(d history.DeleteResultPage, what string) error {
	v := query.Deleted{Instances: d.Instances, Executions: d.Executions, Events: d.Events, Values: d.Values,
		Skipped: d.Skipped}
	skipped := ""
	if d.Skipped > 0 {
		skipped = "; some were left alone, because they have children that have not ended"
	}
	return c.done(v, "%s: %d instances, %d executions, %d events%s", what, d.Instances, d.Executions, d.Events, skipped)
}

func (c *cli) prune() *cobra.Command {
	var f filter
	var keep int
	var before string
	var yes bool
	cmd := &cobra.Command{
		Use:   "prune INSTANCE | prune --yes [--name ...]",
		Short: "Remove former executions of instances that continue as new",
		Long: `Remove former executions of instances that continue as new. The current one always stays, and so do the values.

Without the name of an instance, all are pruned that fit what is said, if --yes is given.`,
		Example: `  rondo prune basket-7 --keep 3
  rondo prune --name basket --older-than 30d --yes`,
		Args: between(0, "INSTANCE"),
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&keep, "keep", 1, "how many executions stay, the current one included")
	cmd.Flags().StringVar(&before, "older-than", "", "keep what has ended later than this `time` ago, like 24h or 30d")
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, prune all that fit")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		want, err := f.read(c.now())
		if err != nil {
			return err
		}
		how := history.Keep{Last: keep}
		if keep < 1 {
			return misuse("--keep %d: the current execution always stays", keep)
		}
		if before != "" {
			if how.EndedBefore, err = moment(before, c.now()); err != nil {
				return misuse("--older-than %q is no time like 24h or 30d", before)
			}
		}
		if len(args) == 0 && !yes {
			return misuse("which instance? Name it, or say --yes to prune all that fit")
		}
		return c.connected(cmd, patience, func(ctx context.Context) error { return c.pruneThem(ctx, args, want, how) })
	}
	return cmd
}

func (c *cli) pruneThem(ctx context.Context, args []string, f history.Filter, how history.Keep) error {
	if len(args) > 0 {
		d, err := c.client.Prune(ctx, args[0], how)
		if err != nil {
			return err
		}
		return c.removed(history.DeleteResultPage{DeleteResult: d}, "pruned")
	}
	var all history.DeleteResultPage
	for page := (history.Page{Limit: inPieces}); ; {
		d, err := c.client.PruneAll(ctx, f, how, page)
		if err != nil {
			return err
		}
		all.Add(d.DeleteResult)
		if page.Cursor = d.Next; d.Next == "" {
			return c.removed(all, "pruned")
		}
	}
}
