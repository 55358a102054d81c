package guide

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

func TestImport(t *testing.T) {
	var env *rondotest.Env
	var said []string
	env = virtual(t, Import.Bind(importAll), Load.Bind(func(_ context.Context, file string) (int, error) {
		status, _, err := Progress.Read(t.Context(), env, "import-1")
		must(t, err)
		said = append(said, status)
		return len(file), nil
	}))
	n, err := Import.Run(t.Context(), env, []string{"chairs", "tables"}, orchestration.ID("import-1"))
	if n != 12 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	wantList(t, "statuses", said, "chairs, 1 of 2", "tables, 2 of 2")
	rows, ok, err := Rows.Read(t.Context(), env, "import-1")
	must(t, err)
	want(t, "rows", rows, 12)
	want(t, "there", ok, true)
	_, ok, err = Progress.Read(t.Context(), env, "import-1")
	must(t, err)
	want(t, "status", ok, false)
}

// TestFollow watches an import on real servers.
func TestFollow(t *testing.T) {
	t.Parallel()
	seen := make(chan bool, 10)
	seller := orchestration.Define[string, int]("reader")
	c, _ := onServers(t, Import.Bind(importAll), Load.Bind(func(ctx context.Context, file string) (int, error) {
		select {
		case <-seen: // the client has read the status
		case <-ctx.Done():
		}
		return len(file), nil
	}), seller.Bind(func(ctx *orchestration.Context, id string) (int, error) {
		n, err := Rows.ReadFrom(ctx, id).Get(ctx)
		if n == nil {
			return -1, err
		}
		return *n, err
	}))
	ctx := limited(t)
	_, err := Import.Start(ctx, c, []string{"chairs", "tables"}, orchestration.ID("import-1"))
	must(t, err)
	var out bytes.Buffer
	must(t, follow(ctx, c, "import-1", notify{&out, seen}))
	wantIn(t, out.String(), "chairs, 1 of 2\n")
	wantIn(t, out.String(), "tables, 2 of 2\n")
	wantIn(t, out.String(), `12 rows`)

	rows, err := Rows.WaitFor(ctx, c, "import-1")
	if rows != 12 || err != nil {
		t.Errorf("%d, %v", rows, err)
	}
	for id, want := range map[string]int{"import-1": 12, "nobody": -1} {
		if n, err := seller.Run(ctx, c, id); n != want || err != nil {
			t.Errorf("%s: %d, %v", id, n, err)
		}
	}
	status, ok, err := Progress.Read(ctx, c, "import-1")
	if ok || err != nil {
		t.Errorf("%q, %v", status, err)
	}
}

// notify tells of each line.
type notify struct {
	*bytes.Buffer
	seen chan<- bool
}

func (n notify) Write(p []byte) (int, error) {
	defer func() { n.seen <- true }()
	return n.Buffer.Write(p)
}

func TestStatusAndValuesHaveLimits(t *testing.T) {
	show := orchestration.Define[string, string]("show")
	env := virtual(t, show.Bind(func(ctx *orchestration.Context, what string) (string, error) {
		switch what {
		case "status":
			return "", Progress.Set(ctx, strings.Repeat("x", 300<<10))
		case "value":
			return "", orchestration.DefineValue[string]("k").Set(ctx, strings.Repeat("x", 70<<10))
		case "values":
			for i := range 300 {
				if err := orchestration.DefineValue[int](fmt.Sprint("k", i)).Set(ctx, i); err != nil {
					//lint:ignore nilerr the instance goes on without the rest
					return fmt.Sprint(i, " values"), nil
				}
			}
		}
		return what, nil
	}))
	for what, text := range map[string]string{
		"status": "custom status: custom status (bytes): 307202 is over the limit of 262144; keep " +
			"it to what people look at",
		"value": `value "k": value of key "k" (bytes): 71682 is over the limit of 65536; keep the data in a store and a reference to it here`,
	} {
		_, err := show.Run(t.Context(), env, what)
		wantError(t, err, text)
	}
	if n, err := show.Run(t.Context(), env, "values"); n != "256 values" || err != nil {
		t.Errorf("%q, %v", n, err)
	}
}
