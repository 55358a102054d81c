package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// exampleT stands in for the *testing.T that an Example function does not get.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func (t *exampleT) Helper()                   {}
func (t *exampleT) Context() context.Context  { return context.Background() }
func (t *exampleT) Cleanup(f func())          { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Fatal(args ...any)         { panic(fmt.Sprint(args...)) }
func (t *exampleT) Errorf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (t *exampleT) Log(...any)                {}
func (t *exampleT) TempDir() string {
	dir, err := os.MkdirTemp("", "rondo")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// end does what the end of a test does.
func (t *exampleT) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

// examples starts a system with the orchestrations keeper, which takes words until one is "end",
// and echo. It gives a client, and a function that ends it all.
func examples() (context.Context, *client.Client, func()) {
	t := &exampleT{}
	c := newSystem(t, code()...).client(client.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	return ctx, c, func() {
		cancel()
		t.end()
	}
}

// A client with the contract of an orchestration starts it with its types.
func Example() {
	ctx, c, end := examples()
	defer end()

	h, err := keeper.Start(ctx, c, "words:", orchestration.ID("words-7"), orchestration.WithMessage(words, "hello"))
	if err != nil {
		panic(err)
	}
	if err := words.Send(ctx, c, "words-7", "end"); err != nil {
		panic(err)
	}
	fmt.Println(h.Wait(ctx))
	// Output:
	// words: hello <nil>
}

// By names, as a command line does it.
func ExampleClient_Start() {
	ctx, c, end := examples()
	defer end()

	started, err := c.Start(ctx, "echo", codec.Payload(`"hello"`), orchestration.ID("echo-1"))
	if err != nil {
		panic(err)
	}
	out, err := started.Wait(ctx)
	fmt.Println(out.Output, out.Error == nil, err)
	// Output:
	// "hello" true <nil>
}

// A start can insist on being the first.
func ExampleClient_Start_rejectExisting() {
	ctx, c, end := examples()
	defer end()

	for range 2 {
		_, err := c.Start(ctx, "keeper", codec.Payload(`""`), orchestration.ID("words-7"),
			orchestration.RejectExisting())
		what, advice, _ := strings.Cut(fmt.Sprint(err), "; ")
		fmt.Println(errors.Is(err, orchestration.ErrExists), what)
		fmt.Println(advice)
	}
	// Output:
	// false <nil>
	//
	// true instance "words-7" is already there (running)
	// choose another id, or RestartFinished or ReplaceRunning
}

// The custom status is told as it changes.
func ExampleClient_WatchStatus() {
	ctx, c, end := examples()
	defer end()

	if _, err := keeper.Start(ctx, c, "", orchestration.ID("words-7")); err != nil {
		panic(err)
	}
	next := map[string]string{`"open"`: "one", `"one"`: "two", `"two"`: "end"}
	for status, err := range c.WatchStatus(ctx, "words-7") {
		if err != nil {
			panic(err)
		}
		fmt.Println(status.Data)
		if err := words.Send(ctx, c, "words-7", next[status.Data.String()]); err != nil {
			panic(err)
		}
	}
	// Output:
	// "open"
	// "one"
	// "two"
}

// A value can be waited for.
func ExampleClient_WaitForValue() {
	ctx, c, end := examples()
	defer end()

	if _, err := keeper.Start(ctx, c, "", orchestration.ID("words-7"),
		orchestration.WithMessage(words, "hello")); err != nil {
		panic(err)
	}
	fmt.Println(last.WaitFor(ctx, c, "words-7"))
	// Output:
	// hello <nil>
}

// Show the open waits of an instance.
func ExampleInstances_Waiting() {
	ctx, c, end := examples()
	defer end()

	if _, err := keeper.Start(ctx, c, "", orchestration.ID("words-7"),
		orchestration.WithMessage(words, "hello")); err != nil {
		panic(err)
	}
	if _, err := last.WaitFor(ctx, c, "words-7"); err != nil {
		panic(err)
	}
	w, err := c.Instances().Waiting(ctx, "words-7")
	if err != nil {
		panic(err)
	}
	for _, x := range w.Waits {
		fmt.Println(x.Kind, x.What)
	}
	_, err = c.Instances().Waiting(ctx, "nobody")
	fmt.Println(errors.Is(err, client.ErrNoInstance))
	// Output:
	// mailbox a message in mailbox "words"
	// true
}

// A receipt says whether an instance has taken a message.
func ExampleClient_Deliver() {
	ctx, c, end := examples()
	defer end()

	receipt, err := knock.Deliver(ctx, c, "words-7", "hello") // no such instance was started
	fmt.Println(receipt.Taken, receipt.Reason, err)
	// Output:
	// false unknown_instance <nil>
}
