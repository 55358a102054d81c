package round

import (
	"fmt"
	"strings"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// This file has what the configuration says about code and messages.

// checkInput validates the input of a start, while nothing has happened yet. The compiler has
// checked the starts of other instances, and these may be newer: there the code itself reports that
// it cannot read its input.
func (c *Config) checkInput(s *events.Start, version string) *failure.Error {
	inputs, known := c.Code.(Inputs)
	if !known || s.Parent != nil {
		return nil
	}
	return inputs.CheckInput(s.Orchestration, version, c.codec(), s.Input, !s.IgnoreUnknown)
}

// CheckStart reports whether the code of a start is here, and why its input would fail the
// instance.
func (c *Config) CheckStart(s *events.Start) (known bool, bad *failure.Error) {
	version := s.Version
	if version == "" {
		version, known = c.Code.Resolve(s.Orchestration)
	} else {
		known = c.Code.Has(s.Orchestration, version)
	}
	if !known {
		return false, nil
	}
	return true, c.checkInput(s, version)
}

// unknownCode describes the missing code, and the known code.
func (c *Config) unknownCode(name, version string) string {
	if versions := c.Code.Versions(name); len(versions) > 0 {
		return fmt.Sprintf("orchestration %q version %s is not registered here; registered versions are %s", name,
			version, strings.Join(versions, ", "))
	}
	names := c.Code.Names()
	const most = 10
	switch {
	case len(names) == 0:
		return fmt.Sprintf("orchestration %q is not registered here, nor is any other", name)
	case len(names) > most:
		return fmt.Sprintf("orchestration %q is not registered here; registered are %s and %s", name,
			strings.Join(names[:most], ", "), plural.Count(len(names)-most, "other"))
	}
	return fmt.Sprintf("orchestration %q is not registered here; registered are %s", name, strings.Join(names, ", "))
}

// overAttempts reports whether a message was tried too often.
func (c *Config) overAttempts(d Delivery) bool {
	most := c.MaxAttempts
	if most == 0 {
		most = 10
	}
	return d.Attempts > most
}

func (c *Config) codec() codec.Codec {
	if c.Codec == nil {
		return codec.JSON{}
	}
	return c.Codec
}

// keep says how an instance keeps events of a name for which it does not wait yet: see [Keepers].
type keep struct {
	most   int
	latest bool
}

func (c *Config) keeps(info *coro.Info, event string) (k keep) {
	if code, ok := c.Code.(Keepers); ok {
		k.most, k.latest = code.Keeps(info.Name, info.Version, event)
	}
	return k
}

// refusesKept tells why the data of an event that an instance would keep is not of its type.
func (c *Config) refusesKept(info *coro.Info, e *events.EventRaised) error {
	code, ok := c.Code.(Keepers)
	if !ok {
		return nil
	}
	return code.CheckKept(info.Name, info.Version, e.Name, c.codec(), e.Data, e.RefuseUnknown)
}
