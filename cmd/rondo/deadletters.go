package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// [letter] is a dead letter as JSON.
type letter struct {
	Number         uint64        `json:"number"`
	Reason         string        `json:"reason"`
	Detail         string        `json:"detail,omitempty"`
	By             string        `json:"by,omitempty"`
	Attempts       int           `json:"attempts,omitempty"`
	Subject        string        `json:"subject"`
	ID             string        `json:"id,omitempty"`
	Header         events.Header `json:"header,omitempty"`
	Body           codec.Payload `json:"body,omitempty"`
	Raw            []byte        `json:"raw,omitempty"` // a body that is not JSON
	Lost           bool          `json:"lost,omitempty"`
	Stored         time.Time     `json:"stored,omitzero"`
	DeadLetteredAt time.Time     `json:"dead_lettered_at"`
}

func letterOf(l broker.DeadLetter) letter {
	out := letter{
		Number: l.Sequence, Reason: l.Why.Reason, Detail: l.Why.Detail, By: l.Why.By, Attempts: l.Why.Attempts,
		Subject: l.Subject, ID: l.ID, Header: l.Header,
		Lost: l.Lost, Stored: l.StoredAt, DeadLetteredAt: l.DeadLetteredAt,
	}
	if json.Valid(l.Body) {
		out.Body = codec.Payload(l.Body)
	} else {
		out.Raw = l.Body
	}
	return out
}

// letterCommands has the commands about dead letters.
type letterCommands struct{ *cli }

// deadLetters is the command with all of them.
func (c letterCommands) deadLetters() *cobra.Command {
	cmd := &cobra.Command{
		Use: "deadletters", Short: "List, show, replay and drop dead letters", Args: cobra.ArbitraryArgs,
		Long: `A dead letter is a message that could not be processed: it could not be decoded, no instance or worker takes it, or each attempt failed. Dead letters are kept for a while, with the reason.
When the cause is mended, they can be sent once more.`,
		Example: `  rondo deadletters
  rondo deadletters show 12
  rondo deadletters replay 12`,
	}
	var after uint64
	var limit int
	listing := func(cmd *cobra.Command) error {
		return c.seeing(cmd, patience, func(ctx context.Context) error { return c.listLetters(ctx, after, limit) })
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return misuse("there is no command %q%s", args[0], suggestion(cmd, args[0]))
		}
		limit = 50
		return listing(cmd)
	}
	list := &cobra.Command{Use: "list", Short: "List them, the oldest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return misuse("--limit %d is less than one", limit)
			}
			return listing(cmd)
		}}
	list.Flags().Uint64Var(&after, "after", 0, "only those behind this `number`")
	list.Flags().IntVar(&limit, "limit", 50, "how many at most")
	cmd.AddCommand(list,
		c.oneLetter("show", "Show one: the message, and the reason",
			func(ctx context.Context, n uint64) error {
				l, err := c.bus.DeadLetter(ctx, n)
				if err != nil {
					return err
				}
				return c.showLetter(letterOf(l))
			}),
		c.manyLetters("replay", "Send messages once more, with their ids", "sent once more",
			func(ctx context.Context, n uint64) error {
				return c.bus.Replay(ctx, n)
			}),
		c.manyLetters("drop", "Remove dead letters for good", "dropped", func(ctx context.Context, n uint64) error {
			return c.bus.Drop(ctx, n)
		}))
	return cmd
}

func (c letterCommands) listLetters(ctx context.Context, after uint64, limit int) error {
	all, err := c.bus.DeadLetters(ctx, after, min(limit, math.MaxInt-1)+1)
	if err != nil {
		return err
	}
	if len(all) > limit {
		all = all[:limit]
		fmt.Fprintf(c.problems, "there are more; `rondo deadletters list --after %d` continues\n",
			all[limit-1].Sequence)
	}
	if c.asJSON() {
		out := struct {
			Letters []letter `json:"letters"`
		}{[]letter{}}
		for _, l := range all {
			out.Letters = append(out.Letters, letterOf(l))
		}
		return c.json(out)
	}
	if len(all) == 0 {
		return c.print("there are no dead letters")
	}
	var rows [][]string
	for _, l := range all {
		rows = append(rows, []string{strconv.FormatUint(l.Sequence, 10), c.ago(l.DeadLetteredAt),
			l.Why.Reason, l.Subject,
			l.Why.Detail})
	}
	return c.table([]string{"NUMBER", "DEAD-LETTERED", "REASON", "SUBJECT", "DETAIL"}, rows)
}

func (c letterCommands) showLetter(l letter) error {
	if c.asJSON() {
		return c.json(l)
	}
	line := func(name, format string, args ...any) { c.row(9, name, format, args...) }
	line("number", "%d", l.Number)
	line("reason", "%s", l.Reason)
	if l.Detail != "" {
		line("detail", "%s", l.Detail)
	}
	if l.Attempts > 0 {
		line("attempts", "%d", l.Attempts)
	}
	line("by", "%s", orElse(l.By, "-"))
	line("dead-lettered", "%s (%s)", c.ago(l.DeadLetteredAt), stamp(l.DeadLetteredAt))
	line("subject", "%s", l.Subject)
	line("id", "%s", orElse(l.ID, "-"))
	for _, k := range sortedKeys(l.Header) {
		for _, v := range l.Header[k] {
			line("header", "%s: %s", k, v)
		}
	}
	switch {
	case l.Lost:
		line("body", "it was too large to be kept with the reason")
	case len(l.Raw) > 0:
		line("body", "%q", l.Raw)
	default:
		line("body", "%s", l.Body)
	}
	return nil
}

// numbers reads the numbers of dead letters.
func numbers(args []string, cmd *cobra.Command) (out []uint64, err error) {
	if len(args) == 0 {
		return nil, misuse("NUMBER is missing: rondo deadletters %s", cmd.Use)
	}
	for _, a := range args {
		n, err := strconv.ParseUint(a, 10, 64)
		if err != nil || n == 0 {
			return nil, misuse("%q is not the number of a dead letter; `rondo deadletters` lists them", a)
		}
		out = append(out, n)
	}
	return out, nil
}

func (c letterCommands) oneLetter(name, short string, do func(context.Context, uint64) error) *cobra.Command {
	return &cobra.Command{Use: name + " NUMBER", Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		n, err := numbers(args, cmd)
		if err != nil {
			return err
		}
		if len(n) > 1 {
			return misuse("unexpected argument %q; name one at a time", args[1])
		}
		return c.seeing(cmd, patience, func(ctx context.Context) error { return do(ctx, n[0]) })
	}}
}

func (c letterCommands) manyLetters(name, short, said string, do func(context.Context, uint64) error) *cobra.Command {
	return &cobra.Command{Use: name + " NUMBER...", Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		all, err := numbers(args, cmd)
		if err != nil {
			return err
		}
		return c.seeing(cmd, patience, func(ctx context.Context) error {
			for _, n := range all {
				if err := do(ctx, n); err != nil {
					return err
				}
				v := struct {
					Number uint64 `json:"number"`
					Done   string `json:"done"`
				}{n, name}
				if err := c.done(v, "%d: %s", n, said); err != nil {
					return err
				}
			}
			return nil
		})
	}}
}
