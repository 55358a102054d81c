package main

import (
	"cmp"
	"context"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// demo opens an account, asks it for this and that, and sends it many commands.
func demo(ctx context.Context, s app.System) error {
	h, err := Account.Start(ctx, s.Client, Opening{Owner: "ann"}, orchestration.ID(s.NewID("demo")))
	if err != nil {
		return err
	}
	s.Print("The account %s is opened.", h.ID)
	for _, c := range []Command{{Do: "deposit", Cents: 5000}, {Do: "withdraw", Cents: 1200},
		{Do: "withdraw", Cents: 9900}, {Do: "rob"}} {
		answer, err := Ask.Run(ctx, s.Client, Request{Account: h.ID, Command: c})
		if err != nil {
			return err
		}
		s.Print("  %s %d: the balance is %d; %s", c.Do, c.Cents, answer.Balance, cmp.Or(answer.Refused, "done"))
	}
	s.Print("Two thousand deposits of one cent are sent, and nobody waits for answers.")
	for range 2000 {
		if err := Commands.Send(ctx, s.Client, h.ID, Command{Do: "deposit", Cents: 1}); err != nil {
			return err
		}
	}
	answer, err := Ask.Run(ctx, s.Client, Request{Account: h.ID, Command: Command{Do: "withdraw", Cents: 1}})
	if err != nil {
		return err
	}
	state, _, err := Book.Read(ctx, s.Client, h.ID)
	if err != nil {
		return err
	}
	info, err := s.Client.Instances().Get(ctx, h.ID)
	if err != nil {
		return err
	}
	s.Print("One more withdrawal, and the balance is %d. The book says %+v.", answer.Balance, state)
	s.Print("This is execution %d. Its history has %d events.", info.Execution, info.LastEvent)
	s.Print("\nWhat runs goes on running. Ctrl-C ends it.")
	return nil
}
