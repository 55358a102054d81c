package guide

import (
	"context"
	"errors"

	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

func buyAPiano(ctx context.Context, servers string) (string, error) {
	c, err := client.Connect(ctx, servers)
	if err != nil {
		return "", err
	}
	defer c.Close()

	h, err := Buy.Start(ctx, c, Purchase{What: "piano", Cents: 900_000}, orchestration.ID("buy-7"),
		orchestration.RejectExisting(),
		orchestration.Attributes(map[string]string{"department": "music"}))
	if errors.Is(err, orchestration.ErrExists) {
		h = Buy.Handle(c, "buy-7") // another client was faster
	} else if err != nil {
		return "", err
	}
	return h.Wait(ctx)
}

// approve raises an event, and finds out whether the instance has waited for it.
func approve(ctx context.Context, c orchestration.Client, id string, v Verdict) (bool, error) {
	r, err := Verdicts.Deliver(ctx, c, id, v)
	return r.Taken, err
}
