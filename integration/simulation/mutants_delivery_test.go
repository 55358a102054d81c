package simulation

import "time"

const (
	workerOf  = "services/worker/"
	natsOf    = "internal/broker/nats/"
	delivered = "./services/worker"
)

// secondFails finds mistakes in a commit that fails while another one is under way.
var secondFails = test{pkg: "./integration", run: "^TestTheSecondCommitFails$", hangs: 20 * time.Second}

// mutantsOfDelivery are mistakes in what was made for speed: direct delivery, two commits at once,
// small commits that are delayed, timers that are far off; and in what keeps instances of one id
// apart.
var mutantsOfDelivery = []mutant{
	// Direct delivery of tasks.
	{name: "the entry of a task that is delivered directly is removed at once", seed: 7, edits: []edit{
		{outboxOf + "outbox.go", "	if p.work != nil {\n		w.parts.Store(4)\n	}\n", "	_ = p\n"},
		{outboxOf + "outbox.go", "	if x.whole.parts.Add(-1) > 0 || x.whole.failed.Load() {\n",
			"	if x.whole.parts.Add(-1) != 0 || x.whole.failed.Load() {\n"},
	}},
	{name: "a worker accepts a task that it does not have",
		test: test{pkg: delivered, run: "^TestNoHoldIsTakenOverWithoutItsTask$"}, edits: []edit{
			{workerOf + "lasting.go",
				"	if !w.lasted.has(keyOf(d)) {\n		return errors.New(\"it is not here any " +
					"more\")\n	}\n	d.Hold.Ack()\n	return nil\n",
				"	_ = errors.ErrUnsupported\n	d.Hold.Ack()\n	return nil\n"},
		}},
	{name: "a worker forgets at once that it has done a task", test: test{pkg: delivered, run: "^TestPassedWork"},
		edits: []edit{
			{workerOf + "lasting.go", "	default:\n		a.w.lasted.keep(keyOf(a.d), time.Now())\n",
				"	default:\n		a.w.lasted.forget(keyOf(a.d))\n"},
		}},
	{name: "a worker does not take over what is stored of a task that it executes", seed: 6, edits: []edit{
		{workerOf + "lasting.go", "		if a.incarnation() == incarnationOf(d) && a.join(d.Hold) {\n",
			"		if a.incarnation() != incarnationOf(d) && a.join(d.Hold) {\n"},
	}},
	{name: "a worker executes a task that another one still executes", seed: 6, edits: []edit{
		{workerOf + "lasting.go", "	if by == \"\" {\n		return false\n	}\n",
			"	if by != w.config.ID {\n		return false\n	}\n"},
	}},
	{name: "a worker that executes a task executes it again when it is delivered twice", seed: 4, edits: []edit{
		{workerOf + "receive.go", "		if a.sameAs(b) && b.join(a.d.Hold) {\n",
			"		if !a.sameAs(b) && b.join(a.d.Hold) {\n"},
	}},
	{name: "a task that a worker may have begun counts as new",
		test: test{pkg: "./internal/broker/nats", run: "^TestPassedWorkIsLost$"}, edits: []edit{
			{natsOf + "pass.go", "	return withHeader(w, headerAgain, \"true\")\n", "	return w\n"},
		}},
	{name: "a task that is still executed is told as settled",
		test: test{pkg: "./internal/broker/nats", run: "^TestPassedWorkThatLasts$"}, edits: []edit{
			{natsOf + "bundle.go", "		b.said[i], b.news = resultLasts, true\n",
				"		b.said[i], b.news = resultSettled, true\n"},
		}},
	{name: "a withdrawal does not wait for its task", seed: 1, edits: []edit{
		{outboxOf + "outbox.go",
			"		if l.unsent[m.Subject] > 0 {\n			behind = append(behind, m)\n		} else {\n",
			"		if l.unsent[m.Subject] < 0 {\n			behind = append(behind, m)\n		} else {\n"},
	}},
	{name: "a sweep takes what is not old", seed: 6, edits: []edit{
		{outboxOf + "sweep.go", "history.Take{Before: now.Add(-s.After)", "history.Take{Before: now.Add(s.After)"},
	}},
	// Direct delivery of results.
	{name: "a result is settled before it is committed", test: test{pkg: "./internal/broker/nats",
		run: "^TestResultsTakeTheShortWay$|^TestBundlesAreSettledOneByOne$"}, edits: []edit{
		{natsOf + "back.go", "	r.push(&waiting{d: d, since: d.StoredAt})\n	return \"\"\n",
			"	d.Hold.Ack()\n	r.push(&waiting{d: d, since: d.StoredAt})\n	return \"\"\n"},
	}},
	{name: "the result of a redelivered task is delivered directly",
		test: test{pkg: delivered, run: "^TestResultsOfRedeliveredTasksAreStored$"}, edits: []edit{
			{workerOf + "complete.go", "len(back) > 0 && a.d.NumDelivered == 1 {", "len(back) > 0 {"},
		}},
	// Two commits at once, and small ones that are delayed.
	{name: "the second commit publishes nothing",
		test: test{pkg: "./integration", run: "^TestTheSecondCommitPublishes$"}, edits: []edit{
			{loopOf + "commit.go", "	l.commits++\n	go func() {\n",
				"	l.commits++\n	second := l.commits > 1\n	go func() {\n"},
			{loopOf + "commit.go", "		if x.err == nil {\n			l.publish(ctx, decisions, x.result)\n",
				"		if x.err == nil && !second {\n			l.publish(ctx, decisions, x.result)\n"},
		}},
	{name: "two commits take the same turns", test: secondFails, edits: []edit{
		{loopOf + "commit.go", "	l.toCommit = l.toCommit[n:]\n",
			"	if l.commits > 0 {\n		l.toCommit = l.toCommit[n:]\n	}\n"},
	}},
	{name: "a failed second commit counts as done", test: secondFails, edits: []edit{
		{loopOf + "commit.go", "	case x.err != nil:\n		l.takeUnstored(x)\n		return\n", `	case x.err != nil && l.commits > 0:
		x.result.Outcomes = make([]history.Outcome, len(x.decisions))
		for i := range x.result.Outcomes {
			x.result.Outcomes[i].Status = history.Committed
		}
	case x.err != nil:
		l.takeUnstored(x)
		return
`},
	}},
	{name: "a failed second commit is not tried again", test: secondFails, edits: []edit{
		{loopOf + "commit.go", "	case x.err != nil:\n		l.takeUnstored(x)\n		return\n", `	case x.err != nil && l.commits > 0:
		return
	case x.err != nil:
		l.takeUnstored(x)
		return
`},
	}},
	{name: "a turn that was refused is published", seed: 38, edits: []edit{
		{loopOf + "commit.go",
			"		if result.Outcomes[i].Status == history.Committed {\n			x.Messages",
			"		if result.Outcomes[i].Status != history.Unstorable {\n			x.Messages"},
	}},
	{name: "a small commit that waits is not woken",
		test: test{pkg: "./services/orchestrator", run: "^TestTheLoopIsWokenAfterALull$"}, edits: []edit{
			{loopOf + "commit.go", "			l.wakeAfter(left)\n			return\n", "			return\n"},
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
			{outboxOf + "outbox.go",
				"		case l.unsent[m.Subject] > 0:\n			behind = append(behind, " +
					"m)\n		default:\n			others = append(others, m)\n",
				"		case l.unsent[m.Subject] > 0:\n		default:\n			others = append(others, m)\n"},
		}},
	{name: "an entry is removed when one timer of it is withdrawn",
		test: test{pkg: "./pkg/outbox", run: "^TestPublisherTakesTimersBack$"}, edits: []edit{
			{outboxOf + "outbox.go", "		case there && len(left.messages) == 0:\n", "		case there:\n"},
			{outboxOf + "outbox.go", "			done = append(done, left)\n		case there:\n",
				"			done = append(done, left)\n"},
		}},
	{name: "timers that are far off are dropped at the end",
		test: test{pkg: "./pkg/outbox", run: "^TestPublisherPublishesFarTimersAtTheEnd$"}, edits: []edit{
			{outboxOf + "outbox.go", "	case <-time.After(l.rest):\n	case <-ctx.Done():\n	}\n}\n",
				"	case <-time.After(l.rest):\n	case <-ctx.Done():\n		l.take()\n	}\n}\n"},
		}},
	// Instances of one id.
	{name: "a start that is refused takes another one with it", test: test{
		pkg: "./services/orchestrator", run: "^TestOnlyTheRefusedStartIsDropped$",
	}, edits: []edit{
		{loopOf + "commit.go", "; isStart && i.message.ID == start {\n", "; isStart && start != \"\" {\n"},
	}},
	{name: "a former start that comes again begins an instance again", seed: 1, edits: []edit{
		{roundOf + "decide.go", "	before := in.ledger.seen // what is old", "	before := seen{} // what is old"},
	}},
	{name: "a start replaces a running instance and nobody terminates it", seed: 7, edits: []edit{
		{roundOf + "decide.go",
			"		in.append(&events.Terminated{Reason: \"replaced by a new start\", Message: m.ID, Age: " +
				"in.age(d)})\n", ""},
	}},
	{name: "the start of a deleted instance begins it again", test: test{pkg: "./pkg/history/sqlite",
		run: "^TestConformance$/^removal$/^tombstone_refuses_its_start$"}, edits: []edit{
		{sqliteOf + "commit.go",
			"	return c.Status != relational.Deleted || c.StartMessage != e.Columns.StartMessage\n",
			"	return true\n"},
	}},
	{name: "an answer for a former instance is taken", test: test{pkg: "./pkg/round", run: "^TestScenarios$"},
		edits: []edit{
			{roundOf + "inbox.go", "	case incarnation != in.ledger.info.Incarnation:\n", "	case false:\n"},
		}},
	// What nobody takes.
	{name: "a letter to nobody is dropped", seed: 9, edits: []edit{
		{roundOf + "inbox.go",
			"	detail += \", and none was started within \" + patience.String()\n	if !isLetter {\n",
			"	detail += \", and none was started within \" + patience.String()\n	if isLetter || !isLetter {\n"},
	}},
	// Events as JSON.
	{name: "a share that is nearly nothing is written in the wrong form",
		test: test{pkg: "./internal/x/jsonw", run: "^TestSharesAreWrittenAsJSON$"}, edits: []edit{
			{"internal/x/jsonw/jsonw.go", "	case x >= 1e-6 && x < 1e21:\n", "	case x < 1e21:\n"},
		}},
}
