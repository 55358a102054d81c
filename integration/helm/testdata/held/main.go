// Command held is a program of a user's own, with an activity that takes as long as its input says.
package main

import (
	"context"
	"io"
	"net/http"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

var (
	held = orchestration.Define[string, string]("held")
	get  = activity.Define[string, string]("get")
)

func main() {
	app.Main(
		held.Bind(func(ctx *orchestration.Context, address string) (string, error) { return get.Call(ctx, address) }),
		get.Bind(func(ctx context.Context, address string) (string, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
			if err != nil {
				return "", err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			return string(answer), err
		}),
	)
}
