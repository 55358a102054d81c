package orchestration

import (
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

// Values gives access to all stored values of this instance, whatever their types. [DefineValue]
// defines one of them.
func (ctx *Context) Values() Values { return Values{ctx.p} }

// Values is the set of stored values of an instance, made by [Context.Values].
type Values struct{ p *coro.Program }

// Keys lists the keys that have a value, sorted.
func (v Values) Keys() []string {
	set := v.p.Host().Values()
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Clear removes all values.
func (v Values) Clear() { clearValues(v.p, v.Keys()) }

// Prune removes the values that were last set before a moment, and returns how many.
func (v Values) Prune(before time.Time) int {
	set := v.p.Host().Values()
	old := slices.DeleteFunc(v.Keys(), func(k string) bool { return !set[k].Before(before) })
	clearValues(v.p, old)
	return len(old)
}

func clearValues(p *coro.Program, keys []string) {
	if len(keys) > 0 {
		_ = note(p, &events.ValuesCleared{Keys: keys}) // no limit is in its way
	}
}
