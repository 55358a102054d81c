package main

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// demo bills 5,000 customers, and tells how far it is.
func demo(ctx context.Context, s app.System) error {
	began := time.Now()
	batch, err := Bill.Start(ctx, s.Client, Job{Month: "2027-01", EachMS: 50}, orchestration.ID(s.NewID("demo")))
	if err != nil {
		return err
	}
	s.Print("The batch %s is started.", batch.ID)
	for status, err := range s.Client.WatchStatus(ctx, batch.ID) {
		if err != nil {
			return err
		}
		s.Print("  %s", status.Data)
	}
	sum, err := batch.Wait(ctx)
	if err != nil {
		return err
	}
	s.Print("It has taken %v. %d customers are billed with %d cents, %d are not:",
		time.Since(began).Round(time.Millisecond), sum.Billed, sum.Cents, sum.Failed)
	for _, f := range sum.Failures {
		s.Print("  %d: %s", f.Customer, f.Why)
	}
	s.Print("\nWhat runs goes on running. Ctrl-C ends it.")
	return nil
}
