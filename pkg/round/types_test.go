package round_test

import (
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/orchestration"
)

// This file has the code of scenarios about data of a wrong type.

func init() {
	code["sums"] = sums
	code["nibbles"] = nibbles
}

var figures = orchestration.DefineMailbox[int]("figures")

func wantNumber(ctx oc, s string) (string, error) {
	n, err := orchestration.DefineEvent[int]("number").Wait(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(n), nil
}

// sums reads two figures, some of which may have come before.
func sums(ctx oc, _ string) (string, error) {
	if err := ctx.Sleep(time.Minute); err != nil {
		return "", err
	}
	a, err := figures.Receive(ctx)
	if err != nil {
		return "", err
	}
	b, err := figures.Receive(ctx)
	return fmt.Sprint(a + b), err
}

// nibbles takes a figure only if there is one.
func nibbles(ctx oc, _ string) (string, error) {
	if err := ctx.Sleep(time.Minute); err != nil {
		return "", err
	}
	a, ok, err := figures.TryReceive(ctx)
	return fmt.Sprint(a, ok), err
}
