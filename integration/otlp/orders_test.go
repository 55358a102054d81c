package otlp_test

import (
	"context"
	"flag"
	"slices"
	"testing"

	"github.com/rondo-run/rondo/examples/orders/contract"
	"github.com/rondo-run/rondo/examples/orders/shop"
)

var rewrite = flag.Bool("rewrite", false, "draw docs/trace.svg anew")

// fast has services send soon. What they have not sent when they end is sent then.
var fast = []string{"OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_METRIC_EXPORT_INTERVAL=200"}

var (
	chair = contract.Order{SKU: "chair", Cents: 4500, Card: "1111", ShipTo: "Bremen"}
	piano = contract.Order{SKU: "piano", Cents: 900_000, Card: shop.FlakyCard, ShipTo: "Bremen"}
)

// TestOrdersAreTraced follows an order that needs an approval, and whose card does not work at the
// first attempt.
func TestOrdersAreTraced(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c := startCollector(t)
			s := newSystem(t, ordersProgram(t), c, append(fast, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.endpoint(protocol),
				"OTEL_EXPORTER_OTLP_PROTOCOL="+protocol)...)
			orchestrator, worker := s.run()
			order := s.web.request(t.Context(), "POST /orders", func(ctx context.Context) {
				s.say(ctx, "rondo.start.fulfil.order-1", piano)
			})
			s.waitStatus("order-1", contract.Approving)
			// a span that has ended is exported while the rest goes on
			c.await(t, "the reservation", func(spans []span) bool { return named(spans, "activity reserve") > 0 })
			approval := s.web.request(t.Context(), "POST /orders/order-1/approval", func(ctx context.Context) {
				s.say(ctx, "rondo.event.approve.order-1", contract.Approval{By: "ann", OK: true})
			})
			s.completed("order-1")
			worker.end()
			orchestrator.end()
			s.web.end(t)

			spans := c.received()
			for _, p := range problems(spans) {
				t.Error(p)
			}
			for _, x := range spans {
				if x.sort() == "round" && len(x.Links) == 0 {
					t.Errorf("%v does not say what has caused it", x)
				}
			}
			wantTraces := []string{order.TraceID().String(), approval.TraceID().String()}
			slices.Sort(wantTraces)
			if got := traces(spans); !slices.Equal(got, wantTraces) {
				t.Errorf("there are traces %q, want that of the order and that of the approval, %q", got, wantTraces)
			}
			tree := treeOf(spans, order.TraceID().String())
			if got := tree.outline(false); got != orderOutline {
				t.Errorf("the order was:\n%s\nwant:\n%s", got, orderOutline)
			}
			for service, metric := range map[string]string{"orders-orchestrator": "rondo.orchestration.completions",
				"orders-worker": "rondo.activity.executions"} {
				if names, _, _ := c.metricsOf(service); !slices.Contains(names, metric) {
					t.Errorf("%s has sent the metrics %q, without %s", service, names, metric)
				}
			}
			if protocol == protocols[0] || !*rewrite {
				checkPicture(t, tree, spans)
			}
		})
	}
}

// orderOutline is the expected trace of the order.
const orderOutline = `POST /orders
  orchestration fulfil
    activity reserve
      execute reserve
    event approve
    timer, given up
    activity charge: the bank does not answer
      execute charge: the bank does not answer
    activity charge, attempt 2
      execute charge, attempt 2
    activity ship
      execute ship
`
