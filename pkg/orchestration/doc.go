// Package orchestration is for code that implements orchestrations, and for clients that start
// them.
//
// # What an orchestration is
//
// An orchestration is an ordinary Go function that must not be lost half-way: it takes money, waits
// a day for an approval, has a parcel packed. What it does is kept as history. When its process
// dies, another process runs the function again from its beginning. Each call that was made before
// then gives at once what it gave before, and nothing is done twice. Where the history ends, the
// function goes on. This is called a replay.
//
// So local variables, loops and errors work as in any Go code, across crashes and deployments. A
// running orchestration is called an instance and has an id. It may wait for years; while it waits,
// it costs nothing but the storage of its history.
//
// Two rules follow. Side effects happen in activities and steps, not in the function itself. And
// the function must do the same each time it is run along the same history; "What the code must not
// do" below says what that means.
//
// # Contracts
//
// A contract is a name with types. Contracts are variables in a package of their own. The code of
// orchestrations and activities imports it, and so do clients that start orchestrations and raise
// events.
//
//	var (
//		Fulfil  = orchestration.Define[Order, Receipt]("fulfil")
//		Charge  = activity.Define[Order, Receipt]("charge", activity.Retry(5), activity.StartToClose(time.Minute))
//		Approve = orchestration.DefineEvent[Approval]("approve")
//	)
//
// Bind binds code to a contract. A process is put together from such bindings:
//
//	Fulfil.Bind(fulfil) // func fulfil(ctx *orchestration.Context, o Order) (Receipt, error)
//	Charge.Bind(charge) // func charge(ctx context.Context, o Order) (Receipt, error)
//
// A program with a [Client] can start an instance and wait for its result. The id is that of the
// business: of all starts with the same id one counts, so a start can safely be sent again. Without
// [ID] the instance gets a new id.
//
//	order, err := Fulfil.Start(ctx, client, o, orchestration.ID("order-7"))
//	receipt, err := order.Wait(ctx)
//
// An option decides about an instance of that id that exists already: [UseExisting] (default) keeps
// it, [RejectExisting] makes the start fail, [RestartFinished] restarts an instance that has ended,
// [ReplaceRunning] replaces it in any state. [Delay] and [At] let it begin later, and [WithMessage]
// gives it a message along.
//
// The [Handle] that Start gives can also cancel, suspend, resume and terminate the instance.
//
// # Activities
//
// An activity is a function on a worker that does something in the world. Call waits for its
// result.
//
//	receipt, err := Charge.Call(ctx, o)
//
// A worker can die after it has done its work and before it could say so. The activity is then
// executed again, so it must stand that; the idempotency key that it gets is the same each time. An
// activity that fails is tried again only if [Retry] says so. Options stand at the contract, or at
// the call:
//
//	receipt, err := Charge.Call(ctx, o,
//		activity.Retry(5, activity.Fixed(time.Second), activity.NonRetryableTypes("card_declined")),
//		activity.StartToClose(time.Minute),      // for each attempt
//		activity.ScheduleToClose(time.Hour), // for all of them, and the delays between them
//	)
//	switch {
//	case errors.Is(err, orchestration.ErrTimeout): // it took too long
//	case errors.Is(err, orchestration.OfType("card_declined")): // what activity.Errorf("card_declined", …) said
//	case err != nil: // something else
//	}
//
// There is more in [package activity]: time limits for the wait for a worker and between
// heartbeats, tags, sessions, priorities, errors with details.
//
// # Steps
//
// A step is a short side effect that needs no worker: a lookup, a small request. The orchestrator
// runs it itself and remembers its result. It takes Retry, StartToClose and ScheduleToClose of
// package activity.
//
//	rate, err := orchestration.Step(ctx, "rate", func(ctx context.Context) (float64, error) {
//		return rates.Get(ctx, "EUR")
//	})
//
// # Futures and timers
//
// Call, Step, Sleep, Wait (for an event) and Receive (from a mailbox) wait. Start, StartChild,
// StartStep, Timer and Next do the same things and give a [Future] at once. Get waits for the
// result of a future.
//
//	err := ctx.Sleep(30 * 24 * time.Hour)
//
//	reminder := ctx.Timer(time.Hour)
//	answer := Question.Start(ctx, q)
//	if ctx.Select(answer, reminder) == reminder { … } // the answer can still be waited for
//	a, err := answer.Get(ctx)
//
// # External events
//
// An [Event] goes to an instance that waits for its name at that moment.
// [Context.Race] waits for the first of several futures and cancels the others.
//
//	approval, deadline := Approve.Next(ctx), ctx.Timer(24*time.Hour)
//	switch ctx.Race(approval, deadline) {
//	case approval:
//		a, err := approval.Get(ctx)
//		…
//	case deadline:
//		return none, orchestration.Errorf("not_approved", "not approved within a day")
//	default:
//		return none, ctx.Err() // the instance was cancelled meanwhile
//	}
//
// When there is nothing else to wait for, WaitWithin says it shortly; the error is ErrTimeout when
// time is over:
//
//	approval, err := Approve.WaitWithin(ctx, 24*time.Hour)
//
// From outside it is raised with a client, by another instance with RaiseFrom:
//
//	err := Approve.Raise(ctx, client, "order-7", Approval{By: "ann"})
//	err := Approve.RaiseFrom(ctx, "order-7", Approval{By: "ann"})
//
// The engine drops an event that the instance does not wait for. So begin to wait before you ask a
// client to raise it, or use a mailbox.
//
// # Mailboxes
//
// The messages of a [Mailbox] are kept in order until they are read, also when the
// instance continues as new. A message is read once. A client sends one with Send, another instance
// with SendFrom.
//
//	var Items = orchestration.DefineMailbox[Item]("items")
//
//	item, err := Items.Receive(ctx)
//	item, ok, err := Items.TryReceive(ctx) // does not wait
//	item, err := Items.ReceiveWithin(ctx, time.Hour) // ErrTimeout after an hour
//
// # Things at the same time
//
// CallAll calls the same for many inputs, and gives the results in their order:
//
//	made, err := Make.CallAll(ctx, order.Parts)
//
// Or start several, different ones too, then wait for all:
//
//	var parts []*orchestration.Future[Part]
//	for _, p := range order.Parts {
//		parts = append(parts, Make.Start(ctx, p))
//	}
//	made, err := orchestration.All(ctx, parts...).Get(ctx)
//
// [All] waits for every one, also when some fail; the error then speaks for all that failed.
// [AllOrNone] ends with the first failure, [Race] with the first result; both cancel the others.
// [AsCompleted] gives each when it is ready:
//
//	for i, part := range orchestration.AsCompleted(ctx, parts...) { … }
//
// [Go] runs code of several calls beside other code. Branches are no goroutines: they switch only
// where they wait, so they can share variables without locks.
//
//	packed := orchestration.Go(ctx, func(ctx *orchestration.Context) (Parcel, error) {
//		box, err := Build.Call(ctx, size)
//		if err != nil {
//			return Parcel{}, err
//		}
//		return Pack.Call(ctx, box)
//	})
//
// When a branch returns, the engine cancels the calls that it has started and not finished. The
// same holds for the orchestration itself.
//
// # Children
//
// An orchestration calls another one as it calls an activity. The child is an instance of its own,
// with its own history. Default of its id: the id of the parent and the event.
//
//	parcel, err := Deliver.Call(ctx, address)
//	parcel := Deliver.StartChild(ctx, address, orchestration.ID("delivery-7")) // a future
//
// A child is cancelled when its parent ends or no longer waits for it. With [Abandon] it goes on.
// Detach starts an instance without waiting for it:
//
//	id, err := Welcome.Detach(ctx, user)
//	id, err := Remind.Detach(ctx, user, orchestration.Delay(7*24*time.Hour))
//
// Both take options of starts: [ChildOption] and [DetachOption] list them.
//
// # Going on for ever
//
// An instance that goes on for ever would have a history without end. Continue as new ends this
// execution and begins the next with a fresh history, under the same id. The input is what the next
// one needs to know; status, values and unread messages go along by themselves.
//
//	func account(ctx *orchestration.Context, state State) (State, error) {
//		for !ctx.ShouldContinueAsNew() {
//			transfer, err := Transfers.Receive(ctx)
//			if err != nil {
//				return state, err
//			}
//			state.Balance += transfer.Cents
//		}
//		return Account.ContinueAsNew(ctx, state)
//	}
//
// # Status and values
//
// The custom [Status] says how far an instance is. Values are kept by name ([Key]). Both can be
// read from outside at any time, values also by other instances.
//
//	var (
//		Progress = orchestration.DefineStatus[string]()
//		Balance  = orchestration.DefineValue[int]("balance")
//	)
//
//	Progress.Set(ctx, "packing")
//	Balance.Set(ctx, 500)
//	cents, ok, err := Balance.Get(ctx)
//	there, err := Balance.ReadFrom(ctx, "account-2").Get(ctx) // nil if it has none
//
// # Cancelling and cleaning up
//
// When an instance is cancelled, all its waits end at once with [ErrCancelled], and new ones give
// the same; [Context.Err] tells. The code returns when it likes, but the instance counts as
// cancelled. Race gives nil then: none of its cases is taken.
//
// Use a shielded context for work that remains after a cancellation. The time is a bound that
// counts from the cancellation.
//
//	shielded, done := ctx.Shield(time.Hour)
//	defer done()
//	_, err := Refund.Call(shielded, receipt)
//
// A [Saga] keeps the functions that undo earlier steps, and runs them in reverse order, shielded:
//
//	var undo orchestration.Saga
//	room, err := Hotel.Call(ctx, trip)
//	…
//	undo.Add("hotel", func(ctx *orchestration.Context) error { _, err := CancelHotel.Call(ctx, room); return err })
//	seat, err := Flight.Call(ctx, trip)
//	if err != nil {
//		return none, errors.Join(err, undo.Compensate(ctx, time.Hour))
//	}
//
// A part of the work can be cancelled by itself: [Future.Cancel] for one call, [Context.WithCancel]
// and [Context.WithTimeout] for several. A context cancels the calls that were started with it. A
// Get with a limited context stops waiting; calls that were started with another context go on.
//
//	limited, done := ctx.WithTimeout(time.Minute)
//	defer done()
//	found, err := Search.Call(limited, question) // ErrTimeout after a minute
//
// Terminating is for when all else fails: the instance ends at once, and its code is not asked.
//
// # Changing the code
//
// Instances are running when you deploy. Their code must still fit their history; one that it does
// not fit is halted, tells why, and goes on when code that fits is deployed. There are two ways to
// make a change. A new version runs beside the old one: running instances keep theirs, new ones get
// the newest, or what [Registry.Pin] says.
//
//	Fulfil.Bind(fulfil)
//	Fulfil.Bind(fulfilBySea, orchestration.Version("2.0.0"))
//
// For a small change, [Context.Patched] is true for instances that come to this place for the first
// time with the new code, and false for those that have passed it:
//
//	if ctx.Patched("check-stock-first") {
//		…
//	}
//
// When the last of the old instances has ended, the condition can be taken away.
//
// Changes of plain computations, and of the data of calls, need neither: the recorded data stands.
//
// # What the code must not do
//
// The code of an orchestration runs many times, and must take the same way each time.
//
//   - No clock: [Context.Now] and [Context.Sleep], not time.Now and time.Sleep.
//   - No ids or random numbers of its own: [Context.NewID] and [Context.Rand].
//   - No goroutines, channels, locks or select: [Go], futures, [Context.Race] and [Context.Select].
//   - No network, files, databases or environment: activities and steps.
//   - No variables from outside that can change: take them as input, or read them in a step.
//   - No ranging over a map when the order of calls depends on it: sort the keys.
//   - No log but [Context.Logger], or each replay logs again.
//   - No context used after its function has returned, or inside of steps.
//
// # Limits
//
// Each limit protects the system from a mistake. Breaking one is an error that says what to do: an
// error of the call, or, where there is no call that could give it, the end of the instance.
//
//   - an input, output, event or message: 960 KiB. Keep larger data in a store, and pass a
//     reference.
//   - names: 128 bytes; instance ids: 256 bytes
//   - the custom status: 256 KiB; values: 256 of 64 KiB each
//   - unread mailbox messages: 10,000 and 16 MiB; further ones are dead-lettered
//   - going on at once in one execution: 20,000 activities, timers, waits and children
//   - history of one execution: 100,000 events and 64 MiB. [Context.ShouldContinueAsNew] speaks up
//     long before.
//   - one commit: about 16 MiB and 25,000 events. What else is due happens in the next one.
//   - between two waits: 25,000 events, and 1,000,000 calls of the context. More is taken for an
//     endless loop.
//   - a timer: 100 years
//
// # Testing
//
// [package rondotest] runs orchestrations in memory, with virtual time, and with activities real or
// faked:
//
//	env := rondotest.New(t, Fulfil.Bind(fulfil), Charge.Bind(fakeCharge))
//	order, err := Fulfil.Start(t.Context(), env, o, orchestration.ID("order-7"))
//	env.Advance(time.Hour)
//	err = Approve.Raise(t.Context(), env, "order-7", Approval{By: "ann"})
//	receipt, err := order.Wait(t.Context())
//
// Run the same test with rondotest.Cold, which replays the code before every round: it finds most
// breaches of the rules above.
//
// [Retry]: https://pkg.go.dev/github.com/rondo-run/rondo/pkg/activity#Retry
// [package activity]: https://pkg.go.dev/github.com/rondo-run/rondo/pkg/activity
// [package rondotest]: https://pkg.go.dev/github.com/rondo-run/rondo/pkg/rondotest
package orchestration
