// Command orders is a shop: it reserves goods, waits for the approval of large orders, charges
// cards and ships, and compensates the completed steps when something fails.
//
// It teaches what most programs need:
//
//   - waiting for a person, with a deadline: an event and a timer, whichever comes first (package
//     shop, approval)
//   - retries, and errors that are not retried: the policy of Charge (package contract)
//   - undoing in reverse order, also when the order is cancelled: the saga of package shop
//   - a status of its own that others can read at any time: contract.Progress
//   - contracts in a package of their own, which clients, orchestrators and workers in any language
//     share (see examples/polyglot)
//
// See it work, then end it with Ctrl-C and start it again:
//
//	go run ./examples/orders dev --demo
//
// While it runs, send orders of your own:
//
//	nats pub rondo.start.fulfil.order-1 '{"sku":"chair","cents":4500,"card":"1111","ship_to":"Bremen"}'
//	nats pub rondo.start.fulfil.order-2 '{"sku":"piano","cents":900000,"card":"1111","ship_to":"Bremen"}'
//	nats pub rondo.event.approve.order-2 '{"by":"ann","ok":true}'
//	nats pub rondo.control.cancel.order-2 'no longer wanted'
//
// The card "declined" is declined, "flaky" works at the second attempt, and nothing can be shipped
// to "nowhere".
package main

import (
	"github.com/rondo-run/rondo/examples/orders/shop"
	"github.com/rondo-run/rondo/pkg/app"
)

func main() { app.Main(shop.Parts...) }
