package orchestration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// Start does not wait. All waits for every one, and the results keep the order of the calls.
func ExampleAll() {
	t := newT()
	defer t.end()

	var (
		survey = orchestration.Define[[]string, int]("survey")
		count  = activity.Define[string, int]("count")
	)
	env := rondotest.New(t,
		survey.Bind(func(ctx *orchestration.Context, rooms []string) (int, error) {
			var counts []*orchestration.Future[int]
			for _, room := range rooms {
				counts = append(counts, count.Start(ctx, room))
			}
			people, err := orchestration.All(ctx, counts...).Get(ctx)
			if err != nil {
				return 0, err
			}
			sum := 0
			for _, n := range people {
				sum += n
			}
			return sum, nil
		}),
		count.Bind(func(_ context.Context, room string) (int, error) { return len(room), nil }),
	)
	h, err := survey.Start(t.Context(), env, []string{"hall", "kitchen", "roof"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// 15 <nil>
}

// When some fail, All still waits for the others: their results are there, and the error speaks for
// all that failed.
func ExampleAll_failures() {
	t := newT()
	defer t.end()

	var (
		invite = orchestration.Define[[]string, string]("invite")
		write  = activity.Define[string, string]("write")
	)
	env := rondotest.New(t,
		invite.Bind(func(ctx *orchestration.Context, guests []string) (string, error) {
			var letters []*orchestration.Future[string]
			for _, guest := range guests {
				letters = append(letters, write.Start(ctx, guest))
			}
			answers, err := orchestration.All(ctx, letters...).Get(ctx)
			if errors.Is(err, orchestration.OfType("moved")) {
				return fmt.Sprintf("%q, but %v", answers, err), nil
			}
			return fmt.Sprintf("%q", answers), err
		}),
		write.Bind(func(_ context.Context, guest string) (string, error) {
			if guest == "bob" {
				return "", activity.Errorf("moved", "no such address")
			}
			return guest + " comes", nil
		}),
	)
	h, err := invite.Start(t.Context(), env, []string{"ann", "bob", "cem"})
	if err != nil {
		t.Fatal(err)
	}
	said, err := h.Wait(t.Context())
	answers, why, _ := strings.Cut(said, ", but ")
	fmt.Println(answers, err)
	fmt.Println(why)
	// Output:
	// ["ann comes" "" "cem comes"] <nil>
	// 1 of 3 failed; the first was future 1: activity "write": no such address
}

// AllOrNone does not wait for the rest once one has failed: it cancels them.
func ExampleAllOrNone() {
	t := newT()
	defer t.end()

	var (
		trip   = orchestration.Define[string, []string]("trip")
		flight = activity.Define[string, string]("flight")
		hotel  = activity.Define[string, string]("hotel")
	)
	env := rondotest.New(t,
		trip.Bind(func(ctx *orchestration.Context, city string) ([]string, error) {
			return orchestration.AllOrNone(ctx, flight.Start(ctx, city), hotel.Start(ctx, city)).Get(ctx)
		}),
		flight.Bind(func(context.Context, string) (string, error) {
			return "", activity.Errorf("full", "no seat left")
		}),
		rondotest.Takes(hotel.Bind(func(context.Context, string) (string, error) { return "a room", nil }), time.Hour),
	)
	began := env.Now()
	h, err := trip.Start(t.Context(), env, "Rome")
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	fmt.Println(err)
	fmt.Println("known after", env.Now().Sub(began))
	// Output:
	// activity "flight": no seat left
	// known after 0s
}

// Race takes the first answer and cancels the others.
func ExampleRace() {
	t := newT()
	defer t.end()

	var (
		quote = orchestration.Define[string, string]("quote")
		north = activity.Define[string, string]("ask-north")
		south = activity.Define[string, string]("ask-south")
	)
	answer := func(who string) func(context.Context, string) (string, error) {
		return func(_ context.Context, what string) (string, error) { return who + " sells " + what, nil }
	}
	env := rondotest.New(t,
		quote.Bind(func(ctx *orchestration.Context, what string) (string, error) {
			return orchestration.Race(ctx, north.Start(ctx, what), south.Start(ctx, what)).Get(ctx)
		}),
		rondotest.Takes(north.Bind(answer("north")), time.Hour),
		rondotest.Takes(south.Bind(answer("south")), time.Minute),
	)
	h, err := quote.Start(t.Context(), env, "tea")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// south sells tea <nil>
}

// AsCompleted handles each result as soon as it is there.
func ExampleAsCompleted() {
	t := newT()
	defer t.end()

	var (
		convert = orchestration.Define[[]string, []string]("convert")
		small   = activity.Define[string, string]("small")
		large   = activity.Define[string, string]("large")
		percent = orchestration.DefineStatus[int]()
	)
	same := func(_ context.Context, film string) (string, error) { return film, nil }
	env := rondotest.New(t,
		convert.Bind(func(ctx *orchestration.Context, films []string) ([]string, error) {
			versions := []*orchestration.Future[string]{large.Start(ctx, films[0]), small.Start(ctx, films[1])}
			var done []string
			for i, version := range orchestration.AsCompleted(ctx, versions...) {
				film, err := version.Get(ctx)
				if err != nil {
					return nil, err
				}
				done = append(done, fmt.Sprintf("%s (number %d)", film, i))
				percent.Set(ctx, 100*len(done)/len(films))
			}
			return done, nil
		}),
		rondotest.Takes(large.Bind(same), time.Hour),
		rondotest.Takes(small.Bind(same), time.Minute),
	)
	h, err := convert.Start(t.Context(), env, []string{"opera", "trailer"})
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(2 * time.Minute)
	p, _, err := percent.Read(t.Context(), env, h.ID)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(p, "percent")
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// 50 percent
	// [trailer (number 1) opera (number 0)] <nil>
}

// Go runs several calls in sequence beside other such sequences. Branches switch only where they
// wait, so they share variables without locks.
func ExampleGo() {
	t := newT()
	defer t.end()

	var (
		cook  = orchestration.Define[[]string, []string]("cook")
		chop  = activity.Define[string, string]("chop")
		roast = activity.Define[string, string]("roast")
	)
	env := rondotest.New(t,
		cook.Bind(func(ctx *orchestration.Context, dishes []string) ([]string, error) {
			var log []string
			var branches []*orchestration.Future[string]
			for _, dish := range dishes {
				branches = append(branches, orchestration.Go(ctx, func(ctx *orchestration.Context) (string, error) {
					chopped, err := chop.Call(ctx, dish)
					if err != nil {
						return "", err
					}
					log = append(log, chopped)
					return roast.Call(ctx, chopped)
				}))
			}
			meal, err := orchestration.All(ctx, branches...).Get(ctx)
			return append(log, meal...), err
		}),
		chop.Bind(func(_ context.Context, s string) (string, error) { return "chopped " + s, nil }),
		roast.Bind(func(_ context.Context, s string) (string, error) { return "roast " + s, nil }),
	)
	h, err := cook.Start(t.Context(), env, []string{"leek", "beet"})
	if err != nil {
		t.Fatal(err)
	}
	meal, err := h.Wait(t.Context())
	for _, s := range meal {
		fmt.Println(s)
	}
	fmt.Println(err)
	// Output:
	// chopped leek
	// chopped beet
	// roast chopped leek
	// roast chopped beet
	// <nil>
}

// Map gives two futures the same type, so that they can race.
func ExampleMap() {
	t := newT()
	defer t.end()

	var (
		contact = orchestration.Define[string, string]("contact")
		phone   = activity.Define[string, int]("phone")
		mail    = activity.Define[string, string]("mail")
	)
	env := rondotest.New(t,
		contact.Bind(func(ctx *orchestration.Context, who string) (string, error) {
			number := orchestration.Map(phone.Start(ctx, who), func(n int) (string, error) {
				return fmt.Sprint("call ", n), nil
			})
			address := orchestration.Map(mail.Start(ctx, who), func(a string) (string, error) {
				return "write to " + a, nil
			})
			return orchestration.Race(ctx, number, address).Get(ctx)
		}),
		phone.Bind(func(context.Context, string) (int, error) { return 4711, nil }),
		rondotest.Takes(mail.Bind(func(context.Context, string) (string, error) {
			return "ann@example.com", nil
		}), time.Minute),
	)
	h, err := contact.Start(t.Context(), env, "ann")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// call 4711 <nil>
}
