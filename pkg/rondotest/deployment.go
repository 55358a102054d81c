package rondotest

import (
	"fmt"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// deployment is the code among the parts of an environment.
type deployment struct {
	orchestrations []orchestration.Binding
	activities     []activity.Binding // without that of jobpush, whose name is reserved
	workers        map[string]worker
	pins           []coro.Pinned
}

// deploymentOf sorts parts, and applies the options among them.
func deploymentOf(parts []Part, to *settings) (deployment, error) {
	d := deployment{workers: make(map[string]worker)}
	for _, p := range parts {
		switch p := p.(type) {
		case orchestration.Binding:
			d.orchestrations = append(d.orchestrations, p)
		case activity.Binding:
			if p.Name() != jobpush.Activity {
				d.activities = append(d.activities, p)
			}
			d.workers[p.Name()] = worker{binding: p}
		case slow:
			d.activities = append(d.activities, p.binding)
			d.workers[p.binding.Name()] = worker(p)
		case option:
			p(to)
		case coro.Pinned:
			d.pins = append(d.pins, p)
		case coro.ForProcess: // options of a process have no effect in memory
		default:
			return d, fmt.Errorf("%T is no part of an environment", p)
		}
	}
	return d, nil
}

// registry registers the orchestrations, and checks the activities.
func (d *deployment) registry() (*orchestration.Registry, error) {
	code, err := orchestration.NewRegistry(d.orchestrations...)
	if err != nil {
		return nil, err
	}
	for _, p := range d.pins {
		if err := code.Pin(p.PinnedTo()); err != nil {
			return nil, err
		}
	}
	_, err = activity.NewRegistry(d.activities...)
	return code, err
}
