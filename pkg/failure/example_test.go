package failure_test

import (
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/pkg/failure"
)

func Example() {
	// What Future.Get returns when no heartbeat came in time.
	var err error = &failure.Error{Kind: failure.Timeout, Type: failure.TimeoutHeartbeat,
		Message: "no heartbeat for 30s", Source: `activity "resize"`, Attempts: 3}

	fmt.Println(errors.Is(err, &failure.Error{Kind: failure.Timeout}))
	var e *failure.Error
	if errors.As(err, &e) {
		fmt.Println(e.Type, e.Attempts)
	}
	fmt.Println(err)
	// Output:
	// true
	// heartbeat 3
	// activity "resize": no heartbeat for 30s (after 3 attempts)
}

func ExampleFrom() {
	e := failure.From(fmt.Errorf("charge: %w", failure.Wrapf("card_declined", "the card was declined")))
	fmt.Println(e.Kind, e.Type, e)
	// Output: application card_declined charge: the card was declined
}
