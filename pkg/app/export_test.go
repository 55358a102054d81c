package app

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/rondo-run/rondo/internal/settings"
)

// RunInside does what a process with these arguments would do, in this process.
func RunInside(ctx context.Context, env settings.Environment, args []string, parts ...Part) (code int, out,
	problems string) {
	var stdout, stderr output
	code = run(ctx, args, env, nil, &stdout, &stderr,
		func(code int) { panic(fmt.Sprint("the process did not end, and exits with ", code)) }, parts)
	return code, stdout.String(), stderr.String()
}

// output is the text written so far. A connection that is being closed may still log something
// while it is read.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
