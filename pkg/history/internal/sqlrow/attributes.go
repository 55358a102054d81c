package sqlrow

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// AttributePairs lists attributes in a stable order.
func AttributePairs(attributes map[string]string) (names, values []string) {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		names, values = append(names, Text(name)), append(values, Text(attributes[name]))
	}
	return names, values
}

// DropAttributes removes the attributes of an instance.
func (d Dialect) DropAttributes(ctx context.Context, db DB, instance string, created time.Time,
	attributes []byte) error {
	var parsed map[string]string
	if json.Unmarshal(attributes, &parsed) != nil || len(parsed) == 0 {
		//lint:ignore nilerr no search finds attributes that cannot be read: their rows stay, and point to no instance
		return nil
	}
	b := Builder{Dialect: d}
	names, values := AttributePairs(parsed)
	pairs := make([]string, len(names))
	for i := range names {
		pairs[i] = "(" + b.TextArg(names[i]) + ", " + b.TextArg(values[i]) + ")"
	}
	_, err := db.Exec(ctx,
		fmt.Sprintf("DELETE FROM rondo_attributes WHERE (name, value) IN (VALUES %s) AND shard = %d AND created_at "+
			"= %s AND instance = %s",
			strings.Join(pairs, ", "), d.Shard(instance), b.TimeArg(created), b.Arg(instance)), b.Args...)
	return err
}
