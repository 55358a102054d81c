// Command polyglot is the shop of examples/orders, but for one activity: cards are charged by a
// worker in JavaScript.
//
// It teaches that a worker can be written in any language that has a NATS client. Messages are JSON
// on subjects that say what they are about, and docs/protocol.md says all there is to know;
// rondo.mjs keeps to it in some 200 lines. The orchestration does not know in which language an
// activity is written, and its retries, time limits and cancellation work the same.
//
// Start the shop, and in another terminal the worker, which needs Node:
//
//	go run ./examples/polyglot dev
//	cd examples/polyglot && npm ci && node worker.mjs
//
// and send orders:
//
//	nats pub rondo.start.fulfil.order-1 '{"sku":"chair","cents":4500,"card":"flaky","ship_to":"Bremen"}'
//	nats pub rondo.start.fulfil.order-2 '{"sku":"chair","cents":4500,"card":"slow","ship_to":"Bremen"}'
//	nats pub rondo.control.cancel.order-2 'no longer wanted'
//
// An order that is sent while no worker runs waits for one.
package main

import (
	"github.com/rondo-run/rondo/examples/orders/contract"
	"github.com/rondo-run/rondo/examples/orders/shop"
	"github.com/rondo-run/rondo/pkg/app"
)

func main() { app.Main(parts...) }

// parts are those of the shop, without contract.Charge.
var parts = []app.Part{
	contract.Fulfil.Bind(shop.Fulfil),
	contract.Reserve.Bind(shop.Reserve),
	contract.Release.Bind(shop.Release),
	contract.Refund.Bind(shop.Refund),
	contract.Ship.Bind(shop.Ship),
}
