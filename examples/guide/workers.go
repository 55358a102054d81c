package guide

import (
	"errors"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The contracts of the chapter.
var (
	Video    = orchestration.Define[string, string]("video")
	Download = activity.Define[string, string]("download", activity.Tag("gpu"), activity.Retry(3))
	Encode   = activity.Define[string, string]("encode", activity.Tag("gpu"), activity.StartToClose(time.Hour))
)

// FileGone is the type of the error of Encode when the file is not on its machine.
const FileGone = "file_gone"

func video(ctx *orchestration.Context, address string) (string, error) {
	for range 3 {
		session := activity.Session(ctx.NewID())
		file, err := Download.Call(ctx, address, session)
		if err != nil {
			return "", err
		}
		encoded, err := Encode.Call(ctx, file, session) // on the worker that has the file
		if !errors.Is(err, orchestration.OfType(FileGone)) {
			return encoded, err
		} // that worker has died: begin again on another one
	}
	return "", orchestration.Errorf("unlucky", "three workers have died with %s", address)
}

// limits are those of a worker on a machine with one graphics card. A program takes them with
// app.Configure(limits).
func limits(c *app.Config) {
	c.Worker.Tags = []string{"gpu"}
	c.Worker.SlotsPerActivity = map[string]int{"encode": 1}
	c.Worker.RatePerActivity = map[string]float64{"download": 20} // a second
}
