package simulation

// receiptMutants are mistakes in what is known of messages that were taken, and in starts that
// bring messages along.
var receiptMutants = []mutant{
	{"what was forgotten counts as never taken", 10, []edit{
		{roundOf + "receipts.go", "	return s.forgotten == 0 || sent.UnixMicro() > s.forgotten\n", "	return true\n"},
	}},
	{"what an execution has forgotten does not go along", 10, []edit{
		{roundOf + "receipts.go", "	if forgets.forgotten != 0 {\n", "	if false {\n"},
	}},
	{"only one former execution is asked", 14, []edit{
		{roundOf + "receipts.go", "	f.seen.forgotten = before.forgotten\n", "	f.seen.forgotten = 0\n"},
	}},
	{"a message counts as sent when it is stored", 2, []edit{
		{roundOf + "receipts.go", "	case said.IsZero():\n", "	case true:\n"},
	}},
	{"a start for a running instance loses its messages", 1, []edit{
		{roundOf + "joining.go", "	return len(s.Messages) > 0 && s.Parent == nil", "	return false && s.Parent == nil"},
	}},
	{"what a start has brought and nobody has read is lost with the end", 1, []edit{
		{roundOf + "promise.go", "			in.tellParent(in.current())\n			in.startOnceMore()\n", "			in.tellParent(in.current())\n"},
	}},
	{"a start that comes again begins a life once more", 1, []edit{
		{roundOf + "inbox.go", "	if len(s.Messages) == 0 {\n		return []string{m.ID}\n", "	if true {\n		return []string{m.ID}\n"},
	}},
	{"outbox entries that a failed commit was to remove are left to a sweep, which sends a new id", 1, []edit{
		{loopOf + "commit.go", "			l.o.publisher.Keep(batch.Published) // what", "			_ = batch.Published // what"},
		{outboxOf + "sweep.go", "	messages, err = s.wanted(ctx, messages)\n", "	for i := range messages {\n		if id := messages[i].Header[events.HeaderMsgID]; len(id) > 0 {\n			messages[i].Header[events.HeaderMsgID] = []string{id[0] + \"/again\"}\n		}\n	}\n	messages, err = s.wanted(ctx, messages)\n"},
	}},
}
