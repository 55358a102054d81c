package simulation

import "time"

// receiptMutants are mistakes in the receipts of messages, and in starts that bring messages along.
var receiptMutants = []mutant{
	{name: "what was forgotten counts as never taken", seed: 1, edits: []edit{
		{roundOf + "receipts.go", "	return s.forgotten == 0 || sent.UnixMicro() > s.forgotten\n",
			"	return true\n"},
	}},
	{name: "what an execution has forgotten does not go along", seed: 1, edits: []edit{
		{roundOf + "receipts.go", "	if forgets.forgotten != 0 {\n", "	if false {\n"},
	}},
	{name: "only one former execution is asked", seed: 14, edits: []edit{
		{roundOf + "receipts.go", "	f.seen.forgotten = before.forgotten\n", "	f.seen.forgotten = 0\n"},
	}},
	{name: "a message counts as sent when it is stored", seed: 2, edits: []edit{
		{roundOf + "receipts.go", "	case said.IsZero():\n", "	case true:\n"},
	}},
	{name: "a start for a running instance loses its messages", seed: 1, edits: []edit{
		{roundOf + "state.go", "	return len(start.Messages) > 0 && start.Parent == nil",
			"	return false && start.Parent == nil"},
	}},
	{name: "what a start has brought and nobody has read is lost with the end", seed: 1, edits: []edit{
		{roundOf + "effects.go", "			r.notifyParent(r.current())\n			r.startOnceMore()\n",
			"			r.notifyParent(r.current())\n"},
	}},
	{name: "a start that comes again begins an incarnation once more", seed: 1, edits: []edit{
		{roundOf + "starts.go", "	if len(s.Messages) == 0 {\n		return []string{m.ID}\n",
			"	if true {\n		return []string{m.ID}\n"},
	}},
	{name: "outbox entries that a failed commit was to remove are left to a sweep, which sends a new id", seed: 1,
		edits: []edit{
			{loopOf + "committer.go", "			c.publisher.Keep(batch.Published) // a sweep",
				"			_ = batch.Published // what"},
			{outboxOf + "sweep.go", "	messages, err = s.wanted(ctx, messages)\n",
				"	for i := range messages {\n		if id := messages[i].Header[events.HeaderMsgID]; len(id) > " +
					"0 {\n			messages[i].Header[events.HeaderMsgID] = []string{id[0] + " +
					"\"/again\"}\n		}\n	}\n	messages, err = s.wanted(ctx, messages)\n"},
		}},
	{name: "quarantined messages of an instance wait in the order of their arrival",
		test: test{pkg: "./integration", run: "^TestQuarantinedMessagesInAnyOrderHoldUpNoOther$", hangs: time.Minute},
		edits: []edit{
			{loopOf + "watermarks.go", "			inOrder(e.waiting)\n", ""},
			{loopOf + "loop.go", "		l.settler.quarantine.putFirst(e.waiting)\n", ""}, // which hides the other
		}},
	{name: "an event that comes early is dropped", seed: 1, edits: []edit{
		{roundOf + "inbox.go", "	if len(waits) == 0 && how.most == 0 {\n", "	if len(waits) == 0 {\n"},
	}},
	{name: "an early event replaces the one before it", seed: 1, edits: []edit{
		{roundOf + "inbox.go", "; kept >= how.most {\n		if !how.latest {\n",
			"; kept >= 1 {\n		if !how.latest && false {\n"},
	}},
	{name: "kept events do not go along when the instance continues as new",
		test: test{pkg: "./pkg/round", run: "^TestScenarios$"}, edits: []edit{
			{roundOf + "lifecycle.go", "		if m.mailbox.event {\n",
				"		if m.mailbox.event {\n			continue\n"},
		}},
	{name: "a kept event is lost with a wait that is given up",
		test: test{pkg: "./pkg/round", run: "^TestScenarios$"}, edits: []edit{
			{roundOf + "inbox.go", "		Keep: how.most > 0})\n", "	})\n"},
		}},
	{name: "what a setting prevents is refused for good", seed: 25, edits: []edit{
		{outboxOf + "send.go", "	waits, never := refused.Misconfigured()\n",
			"	waits, never := (*broker.Refused)(nil), refused\n"},
	}},
	{name: "a result that a setting prevents is a failure", seed: 66, edits: []edit{
		{"services/worker/complete.go", "errors.Is(reason, broker.ErrMisconfigured) && !x.goes:",
			"false && errors.Is(reason, broker.ErrMisconfigured) && !x.goes:"},
	}},
}
