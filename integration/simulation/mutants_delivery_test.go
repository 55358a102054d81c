package simulation

import "time"

const (
	workerOf  = "services/worker/"
	natsOf    = "internal/broker/nats/"
	delivered = "./services/worker"
)

// secondFails finds mistakes in a commit that fails while another one is in flight.
var secondFails = test{pkg: "./integration", run: "^TestTheSecondCommitFails$", hangs: 20 * time.Second}

// mutantsOfDelivery are mistakes in the code for speed: direct delivery, two commits at once, small
// commits that are delayed, timers that are far off; and in the code that keeps instances of one id
// apart.
var mutantsOfDelivery = []mutant{
	// Direct delivery of tasks.
	{name: "the entry of a task that is delivered directly is removed at once",
		test: test{pkg: "./pkg/outbox", run: "^TestPublisherPassesWork$"}, edits: []edit{
			{outboxOf + "outbox.go", "		if err := carrier.put(ctx, segment{of[task], e}); err != nil {\n",
				"		if e.settle(len(of[task]), nil) {\n			p.published.add(e.keys)\n		}\n" +
					"		if err := carrier.put(ctx, segment{of[task], e}); err != nil {\n"},
			{outboxOf + "entry.go", "	return e.open.Add(-int64(messages)) <= 0 && ",
				"	return e.open.Add(-int64(messages)) == 0 && "},
		}},
	{name: "a worker accepts a task that it does not have",
		test: test{pkg: delivered, run: "^TestNoHoldIsTakenOverWithoutItsTask$"}, edits: []edit{
			{workerOf + "lasting.go",
				"	case !done:\n		return errors.New(\"it is not here any more\")\n",
				"	case !done && errors.ErrUnsupported == nil:\n"},
		}},
	{name: "a worker acknowledges what it has done, although the answer is lost", seed: 60, edits: []edit{
		{workerOf + "lasting.go", "	if answer.Subject == \"\" {\n", "	if answer.Subject == \"\" || true {\n"},
		{workerOf + "lasting.go", "	if !is || now.Sub(t.done) > lastedFor {\n", "	if !is {\n"},
	}},
	{name: "a worker forgets at once that it has done a task",
		test: test{pkg: delivered, run: "^TestDirectTask", hangs: 45 * time.Second}, edits: []edit{
			{workerOf + "settler.go", "	default:\n		s.lasted.keep(keyOf(d), time.Now())\n",
				"	default:\n		s.lasted.forget(keyOf(d))\n"},
		}},
	{name: "a worker does not take over what is stored of a task that it executes", seed: 4, edits: []edit{
		{workerOf + "lasting.go", "		if a.incarnation() == incarnationOf(d) && a.join(d.Hold) {\n",
			"		if a.incarnation() != incarnationOf(d) && a.join(d.Hold) {\n"},
	}},
	{name: "a worker executes a task that another one still executes", seed: 4, edits: []edit{
		{workerOf + "lasting.go", "	if by == \"\" {\n		return false\n	}\n",
			"	if by != m.id {\n		return false\n	}\n"},
	}},
	{name: "a worker that executes a task executes it again when it is delivered twice", seed: 4, edits: []edit{
		{workerOf + "held.go", "		if a.sameAs(b) && b.join(a.d.Hold) {\n",
			"		if !a.sameAs(b) && b.join(a.d.Hold) {\n"},
	}},
	{name: "a task that a worker may have begun counts as new",
		test: test{pkg: "./internal/broker/nats", run: "^TestDirectTaskIsLost$"}, edits: []edit{
			{natsOf + "direct_sender.go", "	return withHeader(w, headerAgain, \"true\")\n", "	return w\n"},
		}},
	{name: "a task that is still executed is told as settled",
		test: test{pkg: "./internal/broker/nats", run: "^TestDirectTaskThatLasts$", hangs: 30 * time.Second},
		edits: []edit{
			{natsOf + "direct_settle.go", "		return s, outcomeLasts\n", "		return s, outcomeSettled\n"},
		}},
	{name: "a withdrawal does not wait for its task", seed: 1, edits: []edit{
		{outboxOf + "lane.go",
			"		if l.unsent[m.Subject] > 0 {\n			behind = append(behind, m)\n		} else {\n",
			"		if l.unsent[m.Subject] < 0 {\n			behind = append(behind, m)\n		} else {\n"},
	}},
	{name: "a sweep takes what is not old", seed: 4, edits: []edit{
		{outboxOf + "sweep.go", "history.Lease{Before: now.Add(-s.After)", "history.Lease{Before: now.Add(s.After)"},
	}},
	// Direct delivery of results.
	{name: "a result is settled before it is committed", test: test{pkg: "./internal/broker/nats",
		run: "^TestResultsAreDeliveredDirectly$|^TestBundlesAreSettledOneByOne$", hangs: 30 * time.Second},
		edits: []edit{
			{natsOf + "receiver.go", "	r.queue.push(&waiting{d: d, since: d.StoredAt})\n	return outcomeOpen\n",
				"	d.Hold.Ack()\n	r.queue.push(&waiting{d: d, since: d.StoredAt})\n	return outcomeOpen\n"},
		}},
	{name: "the result of a redelivered task is delivered directly",
		test: test{pkg: delivered, run: "^TestResultsOfRedeliveredTasksAreStored$"}, edits: []edit{
			{workerOf + "complete.go", "len(back) > 0 && a.numDelivered() == 1 {", "len(back) > 0 {"},
		}},
	// What the roles send to each other.
	{name: "the acknowledgements of NATS arrive where workers answer",
		test: test{pkg: "./internal/broker/nats", run: "^TestReceiversAcknowledgeNothing$", hangs: 30 * time.Second},
		edits: []edit{
			{natsOf + "flight.go", "	case !l.direct:\n		return p.answers[\"\"]\n",
				"	case !l.direct:\n		return p.answers[aboutTasks]\n"},
		}},
	{name: "a direct delivery is answered on any subject", test: test{pkg: "./internal/broker/nats",
		run: "^TestDirectDeliveryIsForResultsOnly$", hangs: 60 * time.Second}, edits: []edit{
		{natsOf + "conn.go", "	if ok && two && random != \"\" &&",
			"	if m.Reply != \"\" || ok && two && random != \"\" &&"},
	}},
	{name: "a handover of another message is taken",
		test: test{pkg: "./internal/broker/nats", run: "^TestAHandoverIsReadFromTheStream$"}, edits: []edit{
			{natsOf + "handover.go", "!o.stored.Equal(stored.Time)", "o.stored.IsZero()"},
		}},
	{name: "a handover of another consumer is taken",
		test: test{pkg: "./internal/broker/nats", run: "^TestAHandoverIsReadFromTheStream$"}, edits: []edit{
			{natsOf + "handover.go", "		o.consumer != hs.consumerOf(stored.Subject),\n", ""},
		}},
	{name: "a handover of another kind is taken",
		test: test{pkg: "./internal/broker/nats", run: "^TestAHandoverIsReadFromTheStream$"}, edits: []edit{
			{natsOf + "handover.go", "broker.HandoverKindOf(hs.names.prefix, d.Subject) != kind || ", ""},
		}},
	{name: "a handover is taken as its sender describes it",
		test: test{pkg: "./internal/broker/nats", run: "^TestAHandoverIsReadFromTheStream$"}, edits: []edit{
			{natsOf + "handover.go", "	return hs.rebuild(kind, token, stored)\n",
				"	if stored != nil {\n		stored.Data = m.Data\n	}\n" +
					"	return hs.rebuild(kind, token, stored)\n"},
		}},
	{name: "due messages are forwarded for ever", test: test{pkg: "./internal/broker/nats",
		run: "^TestReceiveEndsAlthoughADueMessageCannotBeForwarded$", hangs: 60 * time.Second}, edits: []edit{
		{natsOf + "later.go", "f.forwardBatch(grace, batch)", "f.forwardBatch(f.ctx, batch)"},
	}},
	{name: "messages behind a lost one have no bound", test: test{pkg: "./internal/broker/nats",
		run: "^TestMessagesBehindLostOnesAreBounded$"}, edits: []edit{
		{natsOf + "receiver.go", "	if !r.isFull() {\n", "	if r.queue.bytes <= prefetchBytes {\n"},
	}},
	{name: "a full receiver does not ask for the lost message", test: test{pkg: "./internal/broker/nats",
		run: "^TestMessagesBehindLostOnesAreBounded$", hangs: 30 * time.Second}, edits: []edit{
		{natsOf + "receiver.go", "len(r.order.left) > 0 && r.isFull()", "len(r.order.left) < 0 && r.isFull()"},
	}},
	{name: "a full receiver waits for ever for what a delayed message waits for", test: test{
		pkg: "./internal/broker/nats", run: "^TestDelayedMessagesTakeRoom$", hangs: 30 * time.Second}, edits: []edit{
		{natsOf + "receiver.go", " && !r.marks.awaits()", ""},
	}},
	{name: "due messages are pulled whatever their size", test: test{pkg: "./internal/broker/nats",
		run: "^TestLargeDueMessagesAreForwardedInParts$"}, edits: []edit{
		{natsOf + "later.go", "jetstream.PullMaxMessagesWithBytesLimit(forwardAtOnce, limit)",
			"jetstream.PullMaxMessagesWithBytesLimit(forwardAtOnce, limit<<10)"},
	}},
	{name: "a late timer fires the other time limit", test: test{pkg: "./pkg/round",
		run: "^TestScenarios$/^order_of_time_limits$"}, edits: []edit{
		{roundOf + "inbox.go", "!c.Due.IsZero() && c.Due.Before(o.next())", "!c.Due.IsZero() && c.Due.After(o.next())"},
	}},
	{name: "the watermark of a round ignores the messages that it takes", test: test{pkg: "./services/orchestrator",
		run: "^TestNoTimerWaitsForAMessageBehindIt$"}, edits: []edit{
		{loopOf + "instances.go", "moments(all)[len(e.taken):]", "moments(e.waiting)"},
		{loopOf + "instances.go", "	all := append(slices.Clone(e.taken), e.waiting...)\n", ""},
	}},
	{name: "a nack on purpose counts as a death elsewhere", test: test{pkg: "./services/orchestrator",
		run: "^TestAForwardedMessageIsNoPoisonForItsNacks$"}, edits: []edit{
		{loopOf + "receive.go", "d.NumDelivered-d.Nacked-", "d.NumDelivered-"},
	}},
	{name: "a handover tells nothing of nacks", test: test{pkg: "./internal/broker/nats",
		run: "^TestConformance$/^a_delivery_is_handed_over_and_settled_by_the_other$"}, edits: []edit{
		{natsOf + "handover.go", "d.Nacked = max(0, min(n, d.NumDelivered-1))", "d.Nacked = min(n, 0)"},
	}},
	{name: "the end of a recovery overwrites a loss", test: test{pkg: "./services/orchestrator/maintenance",
		run: "^TestALossDuringARecoveryIsRecovered$"}, edits: []edit{
		{loopOf + "maintenance/maintenance.go", "	return k.broker.Replace(ctx, broker.KeyRecovered,",
			"	read, _ = k.broker.Get(ctx, broker.KeyRecovered)\n" +
				"	return k.broker.Replace(ctx, broker.KeyRecovered,"},
	}},
	{name: "a value is replaced whatever it is", test: test{pkg: "./internal/broker/nats",
		run: "^TestConformance$/^a_value_is_replaced_by_who_has_read_it$"}, edits: []edit{
		{natsOf + "kv.go", "there != nil && bytes.Equal(there, read)", "there != nil || bytes.Equal(there, read)"},
	}},
	{name: "a response of NATS counts as a message",
		test: test{pkg: "./pkg/events", run: "^TestResponsesOfNATSAreNoMessages$"}, edits: []edit{
			{"pkg/events/decode.go", "isAcknowledgement(body) || isAPIResponse(body)", "isAcknowledgement(body)"},
		}},
	// Two commits at once, and small ones that are delayed.
	{name: "the second commit publishes nothing",
		test: test{pkg: "./integration", run: "^TestTheSecondCommitPublishes$", hangs: 30 * time.Second}, edits: []edit{
			{loopOf + "committer.go", "	c.inFlight++\n	if x.heavy {\n",
				"	c.inFlight++\n	second := c.inFlight > 1\n	if x.heavy {\n"},
			{loopOf + "committer.go", "		if x.err == nil {\n			c.publish(ctx, decisions, x.result)\n",
				"		if x.err == nil && !second {\n			c.publish(ctx, decisions, x.result)\n"},
		}},
	{name: "two commits take the same turns", test: secondFails, edits: []edit{
		{loopOf + "committer.go", "	c.waiting = c.waiting[n:]\n",
			"	if c.inFlight > 0 {\n		c.waiting = c.waiting[n:]\n	}\n"},
	}},
	{name: "a failed second commit counts as done", test: secondFails, edits: []edit{
		{loopOf + "loop.go", "	case x.err != nil:\n		if d :=", `	case x.err != nil && l.commits.inFlight > 0:
		x.result.Outcomes = make([]history.Outcome, len(x.decisions))
		for i := range x.result.Outcomes {
			x.result.Outcomes[i].Status = history.Committed
		}
	case x.err != nil:
		if d :=`},
	}},
	{name: "a failed second commit is not tried again", test: secondFails, edits: []edit{
		{loopOf + "loop.go", "	case x.err != nil:\n		if d :=", `	case x.err != nil && l.commits.inFlight > 0:
		return
	case x.err != nil:
		if d :=`},
	}},
	{name: "a turn that was refused is published", seed: 38, edits: []edit{
		{loopOf + "committer.go",
			"		if result.Outcomes[i].Status == history.Committed {\n			x.Messages",
			"		if result.Outcomes[i].Status != history.Unstorable {\n			x.Messages"},
	}},
	{name: "a small commit that waits is not woken",
		test: test{pkg: "./services/orchestrator", run: "^TestTheLoopIsWokenAfterALull$"}, edits: []edit{
			{loopOf + "committer.go", "			c.wakeAfter(left)\n			return\n", "			return\n"},
		}},
	// What the broker does not have.
	{name: "tasks of the overdue are sent again at once",
		test: test{pkg: "./pkg/outbox", run: "^TestHealOverdueWaitsForTasks$"}, edits: []edit{
			{outboxOf + "heal.go", "		hold = holdTasks\n", "		hold = holdNothing\n"},
		}},
	{name: "a recovery sends tasks again at once",
		test: test{pkg: "./pkg/outbox", run: "^TestHealAllWaitsForTasksThatWerePassedDirectly$"}, edits: []edit{
			{outboxOf + "heal.go", "		hold = holdInstances\n", "		hold = holdNothing\n"},
		}},
	// Timers that are far off.
	{name: "a timer in flight is not withdrawn",
		test: test{pkg: "./pkg/outbox", run: "^TestPublisherWithdrawsTimersAfterThem$"}, edits: []edit{
			{outboxOf + "lane.go",
				"		case l.unsent[m.Subject] > 0:\n			behind = append(behind, " +
					"m)\n		default:\n			others = append(others, m)\n",
				"		case l.unsent[m.Subject] > 0:\n		default:\n			others = append(others, m)\n"},
		}},
	{name: "an entry is removed when one timer of it is withdrawn",
		test: test{pkg: "./pkg/outbox", run: "^TestPublisherTakesTimersBack$"}, edits: []edit{
			{outboxOf + "lane.go", "			if of.settle(1, nil) {\n",
				"			if of.settle(1, nil) || true {\n"},
		}},
	{name: "timers that are far off are dropped at the end",
		test: test{pkg: "./pkg/outbox", run: "^TestPublisherPublishesFarTimersAtTheEnd$"}, edits: []edit{
			{outboxOf + "lane.go",
				"	case <-time.After(l.rest):\n	case <-ctx.Done():\n	}\n}\n",
				"	case <-time.After(l.rest):\n	case <-ctx.Done():\n		l.take()\n	}\n}\n"},
		}},
	// Instances of one id.
	{name: "a start that is refused takes another one with it", test: test{
		pkg: "./services/orchestrator", run: "^TestOnlyTheRefusedStartIsDropped$",
	}, edits: []edit{
		{loopOf + "instances.go", "		if isStart(i) && i.message.ID == start {\n",
			"		if isStart(i) && start != \"\" {\n"},
	}},
	{name: "a former start that comes again begins an instance again", seed: 1, edits: []edit{
		{roundOf + "lifecycle.go", "	before := x.ledger.seen // old messages",
			"	before := seen{} // old messages"},
	}},
	{name: "a start replaces a running instance and nobody terminates it", seed: 7, edits: []edit{
		{roundOf + "lifecycle.go",
			"		x.append(&events.Terminated{Reason: \"replaced by a new start\", Message: m.ID, Age: " +
				"x.age(d)})\n", ""},
	}},
	{name: "the start of a deleted instance begins it again", test: test{pkg: "./pkg/history/sqlite",
		run: "^TestConformance$/^removal$/^tombstone_refuses_its_start$"}, edits: []edit{
		{sqliteOf + "commit.go",
			"	return c.Status != sqlrow.Deleted || c.StartMessage != e.Columns.StartMessage\n",
			"	return true\n"},
	}},
	{name: "an answer for a former instance is taken", test: test{pkg: "./pkg/round", run: "^TestScenarios$"},
		edits: []edit{
			{roundOf + "inbox.go", "	case incarnation != in.ledger.info.Incarnation:\n", "	case false:\n"},
		}},
	{name: "a late termination for a deletion ends another instance of the id", test: test{pkg: "./pkg/round",
		run: "^TestScenarios$/^terminate_for_deletion$"}, edits: []edit{
		{roundOf + "inbox.go", "	if c.Incarnation == \"\" || c.Incarnation == in.current().Incarnation {\n",
			"	if c.Incarnation == \"\" || in.known() {\n"},
	}},
	{name: "an instance that is about to be deleted begins again", test: test{pkg: "./pkg/round",
		run: "^TestScenarios$/^terminate_for_deletion$"}, edits: []edit{
		{roundOf + "effects.go", "	if r.ledger.outcome.deletion {\n", "	if false {\n"},
	}},
	{name: "a deletion by force terminates nothing", test: test{pkg: "./internal/query",
		run: "^TestForcedDeletionTerminatesFirst$"}, edits: []edit{
		{"internal/query/delete.go", "	if how.Force && d.Publisher != nil {\n",
			"	if how.Force && d.Publisher == nil {\n"},
	}},
	// Messages that no instance takes.
	{name: "a mailbox message for an unknown instance is dropped", seed: 9, edits: []edit{
		{roundOf + "inbox.go",
			"	detail += \", and none was started within \" + patience.String()\n	if !isMailboxMessage {\n",
			"	detail += \", and none was started within \" + patience.String()\n" +
				"	if isMailboxMessage || !isMailboxMessage {\n"},
	}},
	// Events as JSON.
	{name: "a share that is nearly nothing is written in the wrong form",
		test: test{pkg: "./internal/x/jsonw", run: "^TestSharesAreWrittenAsJSON$"}, edits: []edit{
			{"internal/x/jsonw/jsonw.go", "	case x >= 1e-6 && x < 1e21:\n", "	case x < 1e21:\n"},
		}},
	{name: "an event of a wrong type is kept", test: test{pkg: "./pkg/round", run: "^TestScenarios$"}, edits: []edit{
		{roundOf + "inbox.go", "	if err := in.config.refusesKept(&l.info, c); err != nil {\n",
			"	if err := in.config.refusesKept(&l.info, c); err != nil && l == nil {\n"},
	}},
	// Time, and the end of a process.
	{name: "a delayed message that is stored late counts as sent then",
		test: test{pkg: "./services/orchestrator", run: "^TestAForwardedEventKeepsItsMoment$"}, edits: []edit{
			{"internal/broker/broker.go", "	if d.WasDelayed() {\n", "	if d.NotBefore.After(d.StoredAt) {\n"},
		}},
	{name: "a request during a recovery has the next one look back as far",
		test: test{pkg: "./services/orchestrator/maintenance", run: "^TestALossDuringARecoveryIsRecovered$"},
		edits: []edit{
			{loopOf + "maintenance/maintenance.go", "k.setFlag(ctx, is, lostAt(began, true))",
				"k.setFlag(ctx, is, string(is))"},
		}},
	{name: "a message that is refused is tried again at once", test: test{pkg: "./services/orchestrator",
		run: "^TestARefusedMessageDelaysItsInstanceOnly$", hangs: 30 * time.Second}, edits: []edit{
		{loopOf + "loop.go", "		if e.refused = x.outcomes[i] == refused; e.refused {",
			"		if e.refused = false; e.refused {"},
	}},
	{name: "a process that does not end goes on", test: test{pkg: "./pkg/app",
		run: "^TestAnOverdueProcessExits", hangs: 30 * time.Second}, edits: []edit{
		{"pkg/app/overdue.go", "		exit(failed)\n", ""},
	}},
	{name: "a store waits for a database that hangs", test: test{pkg: "./pkg/history/cockroach",
		run: "^TestCloseDoesNotWaitForAServer$", hangs: 30 * time.Second}, edits: []edit{
		{"internal/x/bounded/bounded.go", "	case <-limit.C:\n		return false\n", ""},
	}},
}
