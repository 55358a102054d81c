package guide

import (
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Delivery is what goes to a customer.
type Delivery struct {
	Customer string
	Parcels  []string
}

// The contracts of the chapter.
var (
	DeliverAll = orchestration.Define[Delivery, []string]("deliver-all")
	Deliver    = orchestration.Define[string, string]("deliver")
	Survey     = orchestration.Define[string, string]("survey")
	HandOver   = activity.Define[string, string]("hand-over", activity.Retry(10))
)

func deliverAll(ctx *orchestration.Context, d Delivery) ([]string, error) {
	var children []*orchestration.Future[string]
	for _, parcel := range d.Parcels {
		children = append(children, Deliver.StartChild(ctx, parcel, orchestration.ID(ctx.Instance()+"/"+parcel)))
	}
	numbers, err := orchestration.All(ctx, children...).Get(ctx)
	if err != nil {
		return numbers, err
	}
	_, err = Survey.Detach(ctx, d.Customer, orchestration.ID("survey-"+ctx.Instance()))
	return numbers, err
}

// surveyNextYear starts a survey that is due when this instance has ended long since.
func surveyNextYear(ctx *orchestration.Context, customer string) (string, error) {
	return Survey.Detach(ctx, customer, orchestration.ID("survey-of-"+customer),
		orchestration.Delay(365*24*time.Hour), // from ctx.Now
		orchestration.RestartFinished(),       // the one of this year
		orchestration.Attributes(map[string]string{"customer": customer}))
}

// deliver is an instance of its own for each parcel.
func deliver(ctx *orchestration.Context, parcel string) (string, error) {
	if err := ctx.Sleep(48 * time.Hour); err != nil { // until it has come from the store
		return "", err
	}
	return HandOver.Call(ctx, parcel)
}

// survey asks a week later how it was.
func survey(ctx *orchestration.Context, customer string) (string, error) {
	err := ctx.Sleep(7 * 24 * time.Hour)
	return "asked " + customer, err
}
