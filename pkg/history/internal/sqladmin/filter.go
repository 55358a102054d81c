package sqladmin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
	"github.com/rondo-run/rondo/pkg/round"
)

// normal removes duplicates and impossible values from a filter. It reports whether any instance
// can fit.
func normal(f history.Filter) (history.Filter, bool) {
	f.Statuses = slices.Compact(slices.Sorted(slices.Values(f.Statuses)))
	if !f.EndedAfter.IsZero() || !f.EndedBefore.IsZero() { // only ended instances have a time of their end
		if len(f.Statuses) == 0 {
			f.Statuses = round.Statuses()
		}
		f.Statuses = slices.DeleteFunc(f.Statuses, func(s round.Status) bool { return !s.Ended() })
		if len(f.Statuses) == 0 {
			return f, false
		}
	}
	if !f.EndedBefore.IsZero() { // they began no later
		if f.CreatedBefore.IsZero() || f.EndedBefore.Before(f.CreatedBefore) {
			f.CreatedBefore = f.EndedBefore
		}
	}
	for _, s := range []string{f.IDPrefix, f.Name, f.Version, f.Parent} {
		if !sqlrow.Storable(s) {
			return f, false
		}
	}
	if len(f.Attributes) > events.MaxAttributes { // no instance has so many, and each is a part of the statement
		return f, false
	}
	for name, value := range f.Attributes {
		if !sqlrow.Storable(name) || !sqlrow.Storable(value) {
			return f, false
		}
	}
	if len(f.IDs) == 0 {
		return f, true
	}
	f.IDs = slices.DeleteFunc(slices.Clone(f.IDs), func(id string) bool { return !sqlrow.Storable(id) })
	return f, len(f.IDs) > 0
}

// lastOfAll sorts behind every id with the prefix before it.
const lastOfAll = "\U0010FFFF"

// conditions are those of a filter, except for what the list is led by: on a row of the table that
// leads, named as keyOf says.
func (b *builder) conditions(f history.Filter, led string) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	key := keyOf(led)
	if !f.CreatedAfter.IsZero() {
		add("%s.created_at >= %s", key, b.TimeArg(f.CreatedAfter))
	}
	if !f.CreatedBefore.IsZero() {
		add("%s.created_at < %s", key, b.TimeArg(f.CreatedBefore))
	}
	of := b.ofInstance(f, led)
	if led != "attribute" {
		return append(all, of...)
	}
	// As a value, PostgreSQL looks the instance up for one attribute after the other. A join it may
	// begin by reading all instances.
	const found = "(SELECT true FROM rondo_instances i WHERE i.shard = a.shard AND i.instance = a.instance AND " +
		"i.created_at = a.created_at AND "
	return append(all, found+strings.Join(of, " AND ")+")")
}

// keyOf names the table whose index a list is led along: instances, or attributes.
func keyOf(led string) string {
	if led == "attribute" {
		return "a"
	}
	return "i"
}

// sources are the tables by these names.
var sources = map[string]string{"i": "rondo_instances i", "a": "rondo_attributes a"}

// ofInstance are the conditions on a row of the table of instances, named i.
func (b *builder) ofInstance(f history.Filter, led string) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	tested := "%s"
	if led == "ids" || led == "attribute" {
		// IS TRUE keeps PostgreSQL from reading all that have the status or the name instead
		tested = "(%s) IS TRUE"
	}
	if led != "status" {
		if len(f.Statuses) > 0 {
			add(tested, b.in("i.status", names(f.Statuses)))
		} else {
			add("i.%s", sqlrow.Alive)
		}
	}
	if f.Name != "" {
		add(tested, "i.name = "+b.Arg(f.Name))
	}
	if f.Version != "" {
		add("i.version = %s", b.Arg(f.Version))
	}
	if len(f.IDs) > 0 {
		add("%s", b.pairs("i", f.IDs))
	}
	if f.IDPrefix != "" && led != "prefix" {
		add("i.instance >= %s AND i.instance < %s", b.Arg(f.IDPrefix), b.Arg(f.IDPrefix+lastOfAll))
	}
	if f.Parent != "" && led != "parent" {
		add("i.parent_instance = %s", b.Arg(f.Parent))
	}
	if f.RootsOnly {
		add("i.parent_instance IS NULL")
	}
	if !f.EndedAfter.IsZero() {
		add("i.ended_at >= %s", b.TimeArg(f.EndedAfter))
	}
	if !f.EndedBefore.IsZero() {
		add("i.ended_at < %s", b.TimeArg(f.EndedBefore))
	}
	for n, name := range slices.Sorted(maps.Keys(f.Attributes)) {
		if led == "attribute" && n == 0 {
			continue
		}
		// As a value, too. With EXISTS, PostgreSQL may read all instances with the attribute for
		// each branch.
		add("(SELECT true FROM rondo_attributes x WHERE x.name = %s AND x.value = %s AND "+
			"x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance)", b.Arg(name),
			b.Arg(f.Attributes[name]))
	}
	return all
}

func names(statuses []round.Status) []string {
	out := make([]string, len(statuses))
	for i, s := range statuses {
		out[i] = string(s)
	}
	return out
}

// branches are the places of an index that a list reads, each a condition on a row. The rows of
// each are in order; the list merges them.
func (b *builder) branches(f history.Filter) (led string, conditions []string) {
	switch {
	case len(f.IDs) > 0:
		return "ids", []string{"true"}
	case f.IDPrefix != "":
		led = "prefix"
		from, to := b.Arg(f.IDPrefix), b.Arg(f.IDPrefix+lastOfAll)
		for shard := range b.Shards {
			conditions = append(conditions,
				fmt.Sprintf("i.shard = %d AND i.instance >= %s AND i.instance < %s", shard, from, to))
		}
	case f.Parent != "":
		return "parent", []string{"i.parent_instance = " + b.Arg(f.Parent)}
	case len(f.Attributes) > 0:
		led = "attribute"
		name := slices.Min(slices.Collect(maps.Keys(f.Attributes)))
		lead := fmt.Sprintf("a.name = %s AND a.value = %s", b.Arg(name), b.Arg(f.Attributes[name]))
		for shard := range b.Shards {
			conditions = append(conditions, fmt.Sprintf("%s AND a.shard = %d", lead, shard))
		}
	default:
		led = "status"
		lead := ""
		if f.Name != "" {
			lead = "i.name = " + b.Arg(f.Name) + " AND "
		}
		statuses := f.Statuses
		if len(statuses) == 0 {
			statuses = round.Statuses()
		}
		for _, status := range statuses {
			for shard := range b.Shards {
				conditions = append(conditions, fmt.Sprintf("%si.status = '%s' AND i.shard = %d", lead, status, shard))
			}
		}
	}
	return led, conditions
}
