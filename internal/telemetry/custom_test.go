package telemetry_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
)

func TestCustom(t *testing.T) {
	r := record(t)
	size := []attribute.KeyValue{attribute.String("size", "small")}
	r.Custom().Count("shop.parcels", 2, size)
	r.Custom().Count("shop.parcels", 0.5, size)
	r.Custom().Count("shop.parcels", 1, nil)
	r.Custom().Measure("shop.weight", 12.5, size)
	r.Custom().Measure("shop.weight", 7.5,
		append(size, attribute.String("le", "1"), attribute.String("__name__", "x"), attribute.String("text", "\xff")))
	r.has(map[string]float64{
		"shop.parcels{size=small}": 2.5, "shop.parcels{}": 1, "shop.weight{size=small} sum": 12.5,
		"shop.weight{size=small,text=?} sum": 7.5,
	})
	if r.log.Len() > 0 {
		t.Error(r.log)
	}
}

func TestCustomRefused(t *testing.T) {
	r := record(t)
	r.Custom().Count("shop.parcels", 1, nil)
	before := len(r.values())
	for _, bad := range []struct {
		record func()
		why    string
	}{
		{func() { r.Custom().Count("rondo.rounds", 1, nil) }, "those of others"},
		{func() { r.Custom().Count("Rondo-Rounds", 1, nil) }, "those of others"},
		{func() { r.Custom().Measure("go.memory.used", 1, nil) }, "those of others"},
		{func() { r.Custom().Measure("shop.parcels", 1, nil) }, "counted in one place and measured in another"},
		{func() { r.Custom().Count("Shop_Parcels.Total", 1, nil) }, "the same name as shop.parcels"},
		{func() { r.Custom().Count("1st", 1, nil) }, "it is no name"},
		{func() { r.Custom().Count("", 1, nil) }, "it is no name"},
		{func() { r.Custom().Measure("a b", 1, nil) }, "it is no name"},
		{func() { r.Custom().Count("shop.parcels", -1, nil) }, "can only be increased"},
		{func() { r.Custom().Measure("shop.size", math.NaN(), nil) }, "cannot be measured"},
	} {
		r.log.Reset()
		for range 3 {
			bad.record()
		}
		if n := strings.Count(r.log.String(), "level=WARN"); n != 1 || !strings.Contains(r.log.String(), bad.why) {
			t.Errorf("want one warning that says %q, not:\n%s", bad.why, r.log)
		}
	}
	if got := r.values(); len(got) != before || got["shop.parcels{}"] != 1 {
		t.Errorf("what was refused was recorded: %v", got)
	}
}

func TestCustomIsBounded(t *testing.T) {
	r := record(t)
	for i := range 1000 {
		r.Custom().Count(fmt.Sprintf("order.%d", i), 1, nil)
		r.Custom().Count(fmt.Sprintf("order %d", i), 1, nil)
	}
	r.Custom().Count("order.7", 1, nil)
	if got := r.values(); len(got) != 200 || got["order.7{}"] != 2 {
		t.Errorf("%d metrics were made", len(got))
	}
	if n := strings.Count(r.log.String(), "level=WARN"); n > 200 {
		t.Errorf("%d warnings", n)
	}
	for i := range 10_000 {
		r.Custom().Count("order.8", 1, []attribute.KeyValue{attribute.Int("order", i)})
	}
	if got := r.values(); len(got) > 200+2000 {
		t.Errorf("%d series", len(got))
	}
}
