package guide

import (
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

func handedOver(parcel string) (string, error) {
	if parcel == "broken" {
		return "", activity.NonRetryable(activity.Errorf("broken", "it has fallen down"))
	}
	return "number of " + parcel, nil
}

// deliveries is an environment with the code of all deliveries.
func deliveries(t *testing.T) *rondotest.Env {
	var parcels []string
	return virtual(t, DeliverAll.Bind(deliverAll), Deliver.Bind(deliver), Survey.Bind(survey),
		noting(HandOver, &parcels, handedOver))
}

func TestDeliverAll(t *testing.T) {
	env := deliveries(t)
	began := env.Now()
	numbers, err := DeliverAll.Run(t.Context(), env, Delivery{"ann", []string{"chair", "table"}},
		orchestration.ID("order-7"))
	must(t, err)
	wantList(t, "numbers", numbers, "number of chair", "number of table")
	want(t, "time", env.Now().Sub(began), 48*time.Hour)
	out, err := Survey.Handle(env, "survey-order-7").Wait(t.Context())
	if out != "asked ann" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	wantList(t, "instances", env.Instances(), "order-7", "order-7/chair", "order-7/table", "survey-order-7")
}

func TestAChildFails(t *testing.T) {
	env := deliveries(t)
	_, err := DeliverAll.Run(t.Context(), env, Delivery{"ann", []string{"chair", "broken"}},
		orchestration.ID("order-7"))
	wantError(t, err, `1 of 2 failed; the first was future 1: orchestration "deliver": activity "hand-over": it has fallen down`)
	wantIs(t, err, orchestration.OfType("broken"))
}

// TestChildrenEndWithTheirParent ends a parent in each way, and looks what becomes of its children.
func TestChildrenEndWithTheirParent(t *testing.T) {
	for _, how := range []events.How{events.Cancel, events.Terminate} {
		t.Run(string(how), func(t *testing.T) {
			env := deliveries(t)
			h := start(t, env, DeliverAll, Delivery{"ann", []string{"chair"}}, "order-7")
			must(t, orchestration.Control(t.Context(), env, h.ID, how, "no longer wanted"))
			env.Settle()
			row, _ := env.Instance("order-7/chair")
			want(t, "status", string(row.Status), "cancelled")
			reason := map[events.How]string{
				events.Cancel:    "cancelled: its parent was cancelled: no longer wanted",
				events.Terminate: "cancelled: its parent no longer waits for it",
			}[how]
			wantError(t, row.Error, reason)
		})
	}
}

// TestChildIsEndedFromOutside tells what the parent sees.
func TestChildIsEndedFromOutside(t *testing.T) {
	for how, target := range map[events.How]error{events.Cancel: orchestration.ErrCancelled,
		events.Terminate: orchestration.ErrTerminated} {
		env := deliveries(t)
		h := start(t, env, DeliverAll, Delivery{"ann", []string{"chair"}}, "order-7")
		must(t, orchestration.Control(t.Context(), env, "order-7/chair", how, "it has burned"))
		_, err := h.Wait(t.Context())
		wantIs(t, err, target)
		word := map[events.How]string{events.Cancel: "cancelled", events.Terminate: "terminated"}[how]
		wantError(t, err, `1 of 1 failed; the first was future 0: orchestration "deliver": `+word+`: it has burned`)
	}
}

func TestAbandonedChildGoesOn(t *testing.T) {
	var parcels []string
	env := virtual(t, Deliver.Bind(deliver), noting(HandOver, &parcels, handedOver),
		DeliverAll.Bind(func(ctx *orchestration.Context, d Delivery) ([]string, error) {
			Deliver.StartChild(ctx, d.Parcels[0], orchestration.ID("d-1"), orchestration.Abandon())
			return nil, ctx.Sleep(time.Minute)
		}))
	_, err := DeliverAll.Run(t.Context(), env, Delivery{"ann", []string{"chair"}})
	must(t, err)
	out, err := Deliver.Handle(env, "d-1").Wait(t.Context())
	if out != "number of chair" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

func TestChildIDInUse(t *testing.T) {
	env := deliveries(t)
	start(t, env, Deliver, "chair", "order-7/chair")
	_, err := DeliverAll.Run(t.Context(), env, Delivery{"ann", []string{"chair"}}, orchestration.ID("order-7"))
	wantIs(t, err, orchestration.ErrConflict)
	wantIn(t, fmt.Sprint(err),
		`orchestration "deliver": instance id "order-7/chair" is already in use by another instance (running); give the child another id, or none`)
}

// TestDetachedIDInUse starts a detached survey under an id that exists already: no error is
// reported.
func TestDetachedIDInUse(t *testing.T) {
	env := deliveries(t)
	start(t, env, Survey, "bob", "survey-order-7")
	_, err := DeliverAll.Run(t.Context(), env, Delivery{"ann", []string{"chair"}}, orchestration.ID("order-7"))
	must(t, err)
	out, err := Survey.Handle(env, "survey-order-7").Wait(t.Context())
	if out != "asked bob" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestSurveyNextYear has the survey of this year before the next one starts.
func TestSurveyNextYear(t *testing.T) {
	yearly := orchestration.Define[string, string]("yearly")
	env := virtual(t, Survey.Bind(survey), yearly.Bind(surveyNextYear))
	start(t, env, Survey, "ann", "survey-of-ann")
	_, err := yearly.Run(t.Context(), env, "ann")
	must(t, err)
	env.Advance(364 * 24 * time.Hour)
	if row, _ := env.Instance("survey-of-ann"); row.Execution != 1 || !row.Ended() {
		t.Errorf("execution %d is %s", row.Execution, row.Status)
	}
	env.Advance(10 * 24 * time.Hour)
	if row, _ := env.Instance("survey-of-ann"); row.Execution != 2 || row.Attributes["customer"] != "ann" {
		t.Errorf("execution %d has %v", row.Execution, row.Attributes)
	}
}

// TestNotSentInTheLastRound starts a child in the round in which the code returns.
func TestNotSentInTheLastRound(t *testing.T) {
	env := virtual(t, Deliver.Bind(deliver),
		DeliverAll.Bind(func(ctx *orchestration.Context, d Delivery) ([]string, error) {
			Deliver.StartChild(ctx, d.Parcels[0], orchestration.ID("d-1"), orchestration.Abandon())
			return nil, nil
		}))
	_, err := DeliverAll.Run(t.Context(), env, Delivery{"ann", []string{"chair"}}, orchestration.ID("order-7"))
	must(t, err)
	wantList(t, "instances", env.Instances(), "order-7")
}
