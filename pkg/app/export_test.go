package app

import (
	"bytes"
	"context"
)

// RunInside does what a process with these arguments would do, in this process.
func RunInside(ctx context.Context, env Environment, args []string, parts ...Part) (code int, out, problems string) {
	var stdout, stderr bytes.Buffer
	code = run(ctx, args, env, nil, &stdout, &stderr, parts)
	return code, stdout.String(), stderr.String()
}
