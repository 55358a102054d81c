package app

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// code is the code of a program.
type code struct {
	orchestrations *orchestration.Registry
	activities     *activity.Registry
	demo           demo
	stores         stores
}

// newCode sorts the parts of a program. The error lists all problems.
func newCode(parts []Part) (c code, err error) {
	var orchestrations []orchestration.Binding
	var activities []activity.Binding
	var pins []pin
	var errs []error
	for _, p := range parts {
		switch p := p.(type) {
		case orchestration.Binding:
			orchestrations = append(orchestrations, p)
		case activity.Binding:
			activities = append(activities, p)
		case configure: // Defaults has asked it
		case pin:
			pins = append(pins, p)
		case demo:
			c.demo = p
		case ownStore:
			errs = append(errs, c.stores.add(p))
		default:
			errs = append(errs, fmt.Errorf("a program cannot be made of a %T", p))
		}
	}
	c.orchestrations, err = orchestration.NewRegistry(orchestrations...)
	errs = append(errs, err)
	for _, p := range pins {
		if err == nil {
			errs = append(errs, c.orchestrations.Pin(p.name, p.version))
		}
	}
	if err = notHere(activities); err == nil {
		c.activities, err = activity.NewRegistry(activities...)
	}
	return c, errors.Join(append(errs, err)...)
}

// notHere is the error for code that is bound to a name of the engine.
func notHere(bindings []activity.Binding) error {
	for _, b := range bindings {
		if b.Name() == jobpush.Activity {
			return errors.New("the activity " + jobpush.Activity +
				" is the engine's own, and orchestrators execute it by themselves; leave out jobpush.Bind, " +
				"which is for tests")
		}
	}
	return nil
}

// missing lists the parts that the settings need and the program does not have.
func (x code) missing(c *Config) (errs []error) {
	orchestrations, activities := x.orchestrations.Names(), x.activities.Names()
	switch {
	case c.Command == Orchestrator && len(orchestrations) == 0:
		errs = append(errs, errors.New(
			"the program has no orchestrations, so there is nothing for an orchestrator to do; pass them to app.Main"))
	case c.Command == Worker && len(activities) == 0:
		errs = append(errs, errors.New(
			"the program has no activities, so there is nothing for a worker to do; pass them to app.Main"))
	case c.Command == Dev && len(orchestrations)+len(activities) == 0:
		errs = append(errs, errors.New("the program has neither orchestrations nor activities; pass them to app.Main"))
	case c.Command == Dev && c.Demo && x.demo == nil:
		errs = append(errs, errors.New("--demo: the program has nothing to show; pass app.Demo to app.Main"))
	}
	for _, limits := range []struct {
		name string
		of   []string
	}{{"slots-per-activity", keys(c.Worker.SlotsPerActivity)},
		{"rate-per-activity", keys(c.Worker.RatePerActivity)}} {
		for _, name := range limits.of {
			if _, ok := x.activities.Lookup(name); !ok {
				errs = append(errs, fmt.Errorf("--%s: the program has no activity %q%s", limits.name, name,
					settings.DidYouMean(name, activities)))
			}
		}
	}
	return errs
}

// String lists the orchestrations with their versions, and the activities.
func (x code) String() string {
	var parts []string
	for _, name := range x.orchestrations.Names() {
		parts = append(parts, name+" "+strings.Join(x.orchestrations.Versions(name), ", "))
	}
	out := strings.Join(parts, "; ")
	if names := x.activities.Names(); len(names) > 0 {
		if out != "" {
			out += "; "
		}
		out += "activities " + strings.Join(names, ", ")
	}
	return out
}
