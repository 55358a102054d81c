package app_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// What parts say about the settings counts for programs that are started by Main and for those that
// are made by hand.
func TestDefaultsAskTheParts(t *testing.T) {
	c := app.Defaults(app.Dev, app.Configure(func(c *app.Config) { c.Orchestrator.KeepExecutions = 3 }))
	if c.Orchestrator.KeepExecutions != 3 || c.Dir != app.Defaults(app.Dev).Dir {
		t.Errorf("%+v", c)
	}
}

func TestAPartCanPinAVersion(t *testing.T) {
	order := orchestration.Define[int, int]("order")
	code := func(*orchestration.Context, int) (int, error) { return 0, nil }
	parts := []app.Part{order.Bind(code), order.Bind(code, orchestration.Version("2.0.0"))}
	if _, err := app.New(app.Defaults(app.Dev), append(parts, app.Pin("order", "1.0.0"))...); err != nil {
		t.Error(err)
	}
	for _, wrong := range []app.Part{app.Pin("order", "3.0.0"), app.Pin("other", "1.0.0")} {
		_, err := app.New(app.Defaults(app.Dev), append(parts, wrong)...)
		var settings *app.SettingsError
		if err == nil || errors.As(err, &settings) || !strings.Contains(err.Error(), "orchestration") {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

// TestPartsOfMainInATest gives an environment all that a main function has: a pin counts there, and
// options of processes do no harm.
func TestPartsOfMainInATest(t *testing.T) {
	which := orchestration.Define[string, string]("which")
	version := func(v string) app.Part {
		return which.Bind(func(*orchestration.Context, string) (string, error) {
			return v, nil
		}, orchestration.Version(v))
	}
	env := rondotest.New(t, version("1.0.0"), version("2.0.0"), app.Pin("which", "1.0.0"),
		app.Configure(func(*app.Config) { t.Error("it is configured") }),
		app.Demo(func(context.Context, app.System) error { t.Error("it is shown"); return nil }))
	if out, err := which.Run(t.Context(), env, ""); out != "1.0.0" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}
