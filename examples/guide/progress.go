package guide

import (
	"context"
	"fmt"
	"io"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The contracts of the chapter.
var (
	Import   = orchestration.Define[[]string, int]("import")
	Load     = activity.Define[string, int]("load", activity.Retry(5))
	Progress = orchestration.DefineStatus[string]()
	Rows     = orchestration.DefineValue[int]("rows")
)

func importAll(ctx *orchestration.Context, files []string) (int, error) {
	total := 0
	for i, file := range files {
		Progress.Set(ctx, fmt.Sprintf("%s, %d of %d", file, i+1, len(files)))
		n, err := Load.Call(ctx, file)
		if err != nil {
			return total, err
		}
		total += n
		if err := Rows.Set(ctx, total); err != nil {
			return total, err
		}
	}
	Progress.Clear(ctx)
	return total, nil
}

// follow writes how far an import is, until it has ended.
func follow(ctx context.Context, c orchestration.Client, id string, w io.Writer) error {
	for status, err := range Progress.Watch(ctx, c, id) {
		if err != nil {
			return err
		}
		fmt.Fprintln(w, status)
	}
	rows, _, err := Rows.Read(ctx, c, id)
	fmt.Fprintln(w, rows, "rows")
	return err
}
