package simulation

const (
	scheduleOf  = "internal/schedule/"
	managerOf   = "services/orchestrator/schedules/"
	sqladminOf  = "pkg/history/internal/sqladmin/"
	commitStart = "	if err != nil || !ok {\n		return false, err\n	}\n	if row.Version++; "
)

// scheduleMutants are mistakes in schedules.
var scheduleMutants = []mutant{
	{name: "the row of a schedule has no fence", seed: 3, edits: []edit{
		{sqladminOf + "schedule_change.go", "\"data = $6 WHERE id = $1 AND version = $2\"",
			"\"data = $6 WHERE id = $1 AND version >= $2\""},
	}},
	{name: "starts of schedules are published and not stored", seed: 3, edits: []edit{
		{managerOf + "schedules.go", "Expected: row.Version, Messages: messages}", "Expected: row.Version}"},
	}},
	{name: "starts of schedules are published before the row is changed", seed: 3, edits: []edit{
		{managerOf + "schedules.go", "	entries, ok, err := m.store.ChangeSchedule(ctx, change)\n",
			"	_ = m.publisher.Publish(ctx, outbox.Committed{Messages: messages})\n" +
				"	entries, ok, err := m.store.ChangeSchedule(ctx, change)\n"},
	}},
	{name: "starts of schedules are stored and the row stays as it was", seed: 3, edits: []edit{
		{managerOf + "schedules.go", "	row.Data, row.WakeAt, row.ChangedAt = data, state.WakeAt(now), now\n",
			"	if row.WakeAt, row.ChangedAt = state.WakeAt(now), now; row.Version == 0 {\n" +
				"		row.Data = data\n	}\n"},
	}},
	{name: "a refused change of a schedule counts as done", seed: 6, edits: []edit{
		{managerOf + "schedules.go", commitStart,
			"	if err != nil || ok && err != nil {\n		return false, err\n	}\n	if row.Version++; "},
	}},
	{name: "a change of a schedule with an unknown outcome counts as done", seed: 6, edits: []edit{
		{managerOf + "schedules.go", commitStart,
			"	if (err != nil || !ok) && history.ClassOf(err) != history.Ambiguous {\n" +
				"		return false, err\n	}\n	if row.Version++; "},
	}},
	{name: "a run counts as seen before there is an instance", seed: 5, edits: []edit{
		{scheduleOf + "step.go", "			if r.Seen {\n				r.Ended, r.Status",
			"			if r.Seen = true; r.Seen {\n				r.Ended, r.Status"},
	}},
	{name: "the lost start of a run is not sent again", seed: 5, edits: []edit{
		{scheduleOf + "step.go", "	case since >= resendAfter:\n", "	case since >= 24*time.Hour:\n"},
	}},
	{name: "the lost start of a run is sent again with another id", seed: 5, edits: []edit{
		{scheduleOf + "step.go", "		r.Sent = d.now\n		d.add(Start{*r})\n",
			"		r.Sent, r.Message = d.now, r.Message+\"/again\"\n		d.add(Start{*r})\n"},
	}},
	{name: "the id of a run is made of the time of the look", seed: 5, edits: []edit{
		{scheduleOf + "step.go", "Instance: Instance(d.ID, o.Nominal)",
			"Instance: Instance(d.ID, d.now.Format(utcForm))"},
	}},
	{name: "skip starts a run beside another one", seed: 5, edits: []edit{
		{scheduleOf + "step.go", "	case running == 0 && len(waiting) == 0:\n		d.start",
			"	case running == 0 && len(waiting) == 0 || p.Overlap == Skip:\n		d.start"},
	}},
	{name: "all statuses of runs mean that they have ended", seed: 6, edits: []edit{
		{managerOf + "schedules.go", "			if x.Status.Ended() {\n", "			if x.Status != \"\" {\n"},
	}},
	{name: "the last of the buffered runs starts first", seed: 43, edits: []edit{
		{scheduleOf + "step.go", "	waiting := d.waiting()\n	if len(waiting) == 0 {\n		return\n	}\n",
			"	waiting := d.waiting()\n	if len(waiting) == 0 {\n		return\n	}\n" +
				"	slices.Reverse(waiting)\n"},
	}},
	{name: "a run that is replaced is not cancelled", seed: 6, edits: []edit{
		{scheduleOf + "step.go", "		d.end(ByCancel)\n", ""},
	}},
	{name: "a run that was not seen is not terminated later", seed: 7, edits: []edit{
		{scheduleOf + "step.go",
			"		if r.Ended || !r.Seen || r.Stop == \"\" || r.Told {\n" +
				"			continue\n		}\n		r.Told = true\n",
			"		if r.Ended || r.Stop == \"\" || r.Told {\n			continue\n		}\n" +
				"		if r.Told = true; !r.Seen {\n			continue\n		}\n"},
	}},
	{name: "the first occurrence that is caught up is dropped", seed: 6, edits: []edit{
		{scheduleOf + "step.go", "			reason = CaughtUp\n",
			"			reason = CaughtUp\n			if d.Cursor.Nominal != \"\" {\n" +
				"				d.Cursor = o\n				continue\n			}\n"},
	}},
	{name: "an occurrence is missed before its jitter has ended", seed: 7, edits: []edit{
		{scheduleOf + "step.go", "d.now.Add(-time.Duration(spec.CatchUp) - time.Duration(spec.Jitter))",
			"d.now.Add(-time.Duration(spec.CatchUp) / 2)"},
	}},
	{name: "a paused schedule starts runs", seed: 14, edits: []edit{
		{scheduleOf + "state.go", "return !s.Paused && (s.Spec.Limit == 0", "return (s.Spec.Limit == 0"},
	}},
	{name: "a resumed schedule starts what came due during the pause", seed: 16, edits: []edit{
		{scheduleOf + "state.go", "	s.Cursor = Occurrence{At: later(moment(now), s.Cursor.At)}\n", ""},
	}},
	{name: "the same put begins a schedule anew", seed: 5, edits: []edit{
		{scheduleOf + "state.go", "respecified := s.Edition == 0 || !s.Spec.equal(spec)", "respecified := true"},
	}},
	{name: "a backfill leaves out its last occurrence", seed: 39, edits: []edit{
		{scheduleOf + "step.go", "		case !ok || !o.At.Before(r.To):\n",
			"		case !ok || !o.At.Before(r.To.Add(-5 * time.Second)):\n"},
	}},
	{name: "runs beyond the limit start", seed: 14, edits: []edit{
		{scheduleOf + "step.go", "		d.Limited++\n", "		d.Limited = min(d.Limited+1, 1)\n"},
	}},
	{name: "an occurrence for which there is no room is dropped",
		test: test{pkg: "./internal/schedule", run: "^TestCatchUpOfMany$"}, edits: []edit{
			{scheduleOf + "step.go", "		case d.full(overlap):\n			d.polled()\n			return\n",
				"		case d.full(overlap):\n			d.Cursor = o\n			continue\n"},
		}},
}
