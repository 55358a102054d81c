// Package contract is what everybody knows who has to do with orders: those who start them, those
// who approve them, and those who implement what they need, in whichever language. It has names and
// types, and no code.
package contract

import (
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Order is what somebody wants.
type Order struct {
	SKU    string `json:"sku"`
	Cents  int    `json:"cents"`
	Card   string `json:"card"`
	ShipTo string `json:"ship_to"`
	// ApproveWithin is how long somebody may take to approve a large order; 0 is a day.
	ApproveWithin time.Duration `json:"approve_within,omitempty"`
}

// Approval is what whoever looks at a large order says.
type Approval struct {
	By string `json:"by"`
	OK bool   `json:"ok"`
}

// Receipt is what comes of an order.
type Receipt struct {
	Payment  string `json:"payment"`
	Tracking string `json:"tracking"`
}

// Payment is what is asked of whoever takes the money.
type Payment struct {
	Card  string `json:"card"`
	Cents int    `json:"cents"`
}

// Charged says under which number the money was taken.
type Charged struct {
	Payment string `json:"payment"`
	// By says who has taken it.
	By string `json:"by"`
}

// Parcel is what is sent.
type Parcel struct {
	SKU string `json:"sku"`
	To  string `json:"to"`
}

// Types of errors, for those who must tell them apart.
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
	// Progress is what an order says about itself.
	Progress = orchestration.DefineStatus[string]()

	// Reserve puts goods aside and gives the number of the reservation. Release undoes it.
	Reserve = activity.Define[string, string]("reserve", activity.Retry(5), activity.Timeout(10*time.Second))
	Release = activity.Define[string, string]("release", activity.Retry(20))
	// Charge takes money. A declined card is not tried again, everything else is, and nobody waits
	// for an answer for longer than a minute.
	Charge = activity.Define[Payment, Charged]("charge",
		activity.Retry(5, activity.Exponential(200*time.Millisecond, 2, 10*time.Second),
			activity.Except(CardDeclined)), activity.Timeout(time.Minute))
	// Refund gives it back.
	Refund = activity.Define[string, string]("refund", activity.Retry(20))
	// Ship sends a parcel and gives the number to follow it by.
	Ship = activity.Define[Parcel, string]("ship", activity.Retry(3), activity.Timeout(10*time.Second))
)

// The words of Progress.
const (
	Reserving = "reserving the goods"
	Approving = "waiting for approval"
	Charging  = "charging the card"
	Shipping  = "shipping"
	Undoing   = "undoing what was done"
)

// Large is from how many cents on somebody must approve an order.
const Large = 100_000
