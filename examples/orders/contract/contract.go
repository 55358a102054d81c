// Package contract has the definitions that all programs around orders share: clients that start
// and approve them, and orchestrators and workers that implement them, in any language. It has
// names and types, and no code.
package contract

import (
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Order is what a customer wants.
type Order struct {
	SKU    string `json:"sku"`
	Cents  int    `json:"cents"`
	Card   string `json:"card"`
	ShipTo string `json:"ship_to"`
	// ApproveWithin is how long the approval of a large order may take; 0 is a day.
	ApproveWithin time.Duration `json:"approve_within,omitempty"`
}

// Approval is the decision about a large order.
type Approval struct {
	By string `json:"by"`
	OK bool   `json:"ok"`
}

// Receipt is the result of an order.
type Receipt struct {
	Payment  string `json:"payment"`
	Tracking string `json:"tracking"`
}

// Payment is the input of Charge.
type Payment struct {
	Card  string `json:"card"`
	Cents int    `json:"cents"`
}

// Charged is the output of Charge, with the number of the payment.
type Charged struct {
	Payment string `json:"payment"`
	// By names the worker that has taken the money.
	By string `json:"by"`
}

// Parcel is the input of Ship.
type Parcel struct {
	SKU string `json:"sku"`
	To  string `json:"to"`
}

// Types of errors, for callers that must tell them apart.
const (
	CardDeclined = "card_declined"
	NotApproved  = "not_approved"
	NoSuchPlace  = "no_such_place"
)

var (
	// Fulfil is the orchestration.
	Fulfil = orchestration.Define[Order, Receipt]("fulfil")
	// Approve is raised for an order that waits for approval.
	Approve = orchestration.DefineEvent[Approval]("approve")
	// Progress is the custom status of an order.
	Progress = orchestration.DefineStatus[string]()

	// Reserve reserves goods and gives the number of the reservation. Release undoes it.
	Reserve = activity.Define[string, string]("reserve", activity.Retry(5), activity.StartToClose(10*time.Second))
	Release = activity.Define[string, string]("release", activity.Retry(20))
	// Charge takes money. It is retried unless the card was declined. An attempt fails after a
	// minute without an answer.
	Charge = activity.Define[Payment, Charged]("charge",
		activity.Retry(5, activity.Exponential(200*time.Millisecond, 2, 10*time.Second),
			activity.NonRetryableTypes(CardDeclined)), activity.StartToClose(time.Minute))
	// Refund gives it back.
	Refund = activity.Define[string, string]("refund", activity.Retry(20))
	// Ship sends a parcel and gives the number to follow it by.
	Ship = activity.Define[Parcel, string]("ship", activity.Retry(3), activity.StartToClose(10*time.Second))
)

// The words of Progress.
const (
	Reserving = "reserving the goods"
	Approving = "waiting for approval"
	Charging  = "charging the card"
	Shipping  = "shipping"
	Undoing   = "undoing what was done"
)

// Large is from how many cents on an order needs an approval.
const Large = 100_000
