package tidy

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// timeoutsPage lists every timeout of the services. Its last column names each in the code:
// constants, default values of settings, and flags.
const timeoutsPage = "docs/timeouts.md"

// TestTimeoutsPage ties the page to the code, in both directions: each duration that shipped
// packages have as a constant, as a default value or as the default of a flag is on the page, or on
// the list of internal intervals; and the page has the values of the code.
func TestTimeoutsPage(t *testing.T) {
	code := shippedDurations(t)
	text, err := readFile(timeoutsPage)
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkTimeouts(string(text), code, internalIntervals))
}

func checkTimeouts(page string, code map[string][]time.Duration, internal map[string][]string) (problems []string) {
	shown := make(map[string]bool)
	for _, names := range internal {
		for _, name := range names {
			if code[name] == nil {
				problems = append(problems, name+" is on the list of internal intervals, and not in the code")
			}
			shown[name] = true
		}
	}
	for i, line := range strings.Split(page, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if len(cells) != 6 || !strings.HasPrefix(line, "|") || strings.Contains(cells[0], "---") {
			continue
		}
		at := timeoutsPage + ":" + strconv.Itoa(i+1) + ": "
		values, names := valuesIn(cells[1]), codeNames.FindAllStringSubmatch(cells[5], -1)
		used := make(map[time.Duration]bool)
		for _, n := range names {
			name := n[1]
			shown[name] = true
			is := code[name]
			if is == nil {
				problems = append(problems, at+name+" is not in the code")
				continue
			}
			found := false
			for _, d := range is {
				if slices.Contains(values, d) {
					found, used[d] = true, true
				}
			}
			if !found {
				problems = append(problems, at+name+" is "+is[0].String()+" in the code; the page has "+cells[1])
			}
		}
		for _, v := range values {
			if len(names) > 0 && !used[v] {
				problems = append(problems, at+"none of the names has "+v.String())
			}
		}
	}
	for name, is := range code {
		if !shown[name] {
			problems = append(problems, name+" ("+is[0].String()+"): add it to "+timeoutsPage+
				", or to internalIntervals with the reason")
		}
	}
	slices.Sort(problems)
	return problems
}

// TestTimeoutsPageIsChecked shows what the comparison finds.
func TestTimeoutsPageIsChecked(t *testing.T) {
	t.Parallel()
	code := map[string][]time.Duration{"a.wait": {time.Second}, "--grace": {20 * time.Second}, "a.tick": {time.Minute}}
	row := func(value, names string) string { return "| x | " + value + " | y | z | z | " + names + " |" }
	for _, c := range []struct {
		page, internal string
		want           int
	}{
		{row("1 s, then 20 s", "`a.wait`, `--grace`"), "a.tick", 0},
		{row("1 s", "`a.wait`"), "a.tick", 1},                         // --grace is missing
		{row("1 s, then 30 s", "`a.wait`, `--grace`"), "a.tick", 2},   // another value on either side
		{row("1 s, then 20 s", "`a.wait`, `--grace`"), "a.gone", 2},   // a.tick is missing, a.gone is not in the code
		{row("20 s, 1 s, 3 h", "`a.wait`, `--grace`"), "a.tick", 1},   // nothing has 3 h
		{row("1 s, 20 s", "`a.wait`, `--grace`, `b.x`"), "a.tick", 1}, // b.x is not in the code
	} {
		if got := checkTimeouts(c.page, code, map[string][]string{"why": {c.internal}}); len(got) != c.want {
			t.Errorf("%s: %q", c.page, got)
		}
	}
}

var (
	codeNames = regexp.MustCompile("`([^`]+)`")
	pageValue = regexp.MustCompile(`\b([0-9.]+) (ms|s|min|h|days?)\b`)
)

func valuesIn(cell string) (all []time.Duration) {
	units := map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour,
		"day": 24 * time.Hour, "days": 24 * time.Hour}
	for _, m := range pageValue.FindAllStringSubmatch(cell, -1) {
		n, _ := strconv.ParseFloat(m[1], 64)
		all = append(all, time.Duration(n*float64(units[m[2]])))
	}
	return all
}

// notShipped are the folders whose code is for tests and tools.
var notShipped = regexp.MustCompile(`test$|^internal/(tools|tidy|pgfault|elapsed)|/brokersim$|^integration|^bench|^examples|^deploy`)

// shippedDurations returns the durations of the shipped packages: "package.name" for constants,
// variables and defaults of settings, "--flag" for flags.
func shippedDurations(t *testing.T) map[string][]time.Duration {
	t.Helper()
	var files []*source
	for _, f := range tree(t) {
		if !f.test && !notShipped.MatchString(f.dir) {
			files = append(files, f)
		}
	}
	all := make(map[string][]time.Duration)
	add := func(name string, d time.Duration) {
		if d > 0 && !slices.Contains(all[name], d) {
			all[name] = append(all[name], d)
		}
	}
	for range 3 { // constants are made of others
		for _, f := range files {
			durationsOf(f, all, add)
		}
	}
	text, err := readFile("pkg/app/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(--[a-z-]+)` \\| [^|]* \\| `([0-9][0-9a-z.]*)`").
		FindAllStringSubmatch(string(text), -1) {
		if d, err := time.ParseDuration(m[2]); err == nil {
			add(m[1], d)
		}
	}
	if os.Getenv("RONDO_SHOW_TIMEOUTS") != "" {
		for name, d := range all {
			t.Log(name, d)
		}
	}
	return all
}

// durationsOf finds the durations of one file.
func durationsOf(f *source, known map[string][]time.Duration, add func(string, time.Duration)) {
	pkg := path.Base(f.dir)
	eval := func(e ast.Expr) (time.Duration, bool) {
		v, unit := durationOf(e, pkg, known)
		return time.Duration(v), unit
	}
	for _, d := range f.file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST && g.Tok != token.VAR {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			for i := range min(len(v.Names), len(v.Values)) {
				if d, ok := eval(v.Values[i]); ok {
					add(pkg+"."+v.Names[i].Name, d)
				}
			}
		}
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok || len(c.Args) != 2 {
			return true
		}
		field, ok := defaultOf(c)
		if d, is := eval(c.Args[1]); ok && is {
			add(pkg+"."+field, d)
		}
		return true
	})
}

// defaultOf returns the field that a call gives its default value, as in
// duration(&c.StuckAfter, 30*time.Second).
func defaultOf(c *ast.CallExpr) (field string, ok bool) {
	name := ""
	switch f := c.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	if !slices.Contains([]string{"duration", "or", "set", "sooner", "Or"}, name) {
		return "", false
	}
	arg := c.Args[0]
	if u, is := arg.(*ast.UnaryExpr); is {
		arg = u.X
	}
	s, ok := arg.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	return s.Sel.Name, true
}

var timeUnits = map[string]time.Duration{"Nanosecond": 1, "Microsecond": time.Microsecond,
	"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}

// durationOf evaluates an expression, and reports whether it has a unit of time.
func durationOf(e ast.Expr, pkg string, known map[string][]time.Duration) (v float64, unit bool) {
	lookUp := func(name string) (float64, bool) {
		if d := known[name]; len(d) > 0 {
			return float64(d[0]), true
		}
		return 0, false
	}
	switch x := e.(type) {
	case *ast.BasicLit:
		v, _ = strconv.ParseFloat(strings.ReplaceAll(x.Value, "_", ""), 64)
		return v, false
	case *ast.ParenExpr:
		return durationOf(x.X, pkg, known)
	case *ast.Ident:
		return lookUp(pkg + "." + x.Name)
	case *ast.SelectorExpr:
		in, ok := x.X.(*ast.Ident)
		switch {
		case ok && in.Name == "time" && timeUnits[x.Sel.Name] > 0:
			return float64(timeUnits[x.Sel.Name]), true
		case ok:
			return lookUp(in.Name + "." + x.Sel.Name)
		}
	case *ast.BinaryExpr:
		a, isA := durationOf(x.X, pkg, known)
		b, isB := durationOf(x.Y, pkg, known)
		unit = isA || isB
		switch x.Op {
		case token.ADD:
			return a + b, unit
		case token.SUB:
			return a - b, unit
		case token.MUL:
			return a * b, unit
		case token.QUO:
			if b != 0 {
				return a / b, unit && !isB
			}
		}
	}
	return 0, false
}

// internalIntervals are the durations that are no timeouts for operators, by the reason.
var internalIntervals = map[string][]string{
	"a pause between two attempts, which repeat what changes nothing": {
		"schedule.resendAfter",
		"app.firstPause", "app.longestPause", "cockroach.firstPause", "cockroach.lastPause", "cockroach.holdAgain",
		"jobpushed.firstPause", "jobpushed.longestPause", "nats.forwardAgain", "nats.takeAgain",
		"orchestrator.refusedPause", "worker.pausedFor", "worker.refusedPause",
		"nats.lookAgain", "nats.mendEvery", "nats.mendAfter", "orchestrator.compareAgain", "orchestrator.loadAgain",
		"schedules.againAfter",
		"orchestrator.receiveAgain", "ownership.receiveAgain", "report.lookAgain", "sqlite.firstPause",
		"sqlite.lastPause", "client.publishAgain", "client.longestDelay", "client.probeAgain",
	},
	"how often a process looks": {
		"app.filesEvery", "app.readyEvery", "identity.warnEvery", "nats.warnEvery", "outbox.RefusedEvery",
		"worker.warnEvery",
		"schedule.pollFast", "schedule.pollFastFor", "schedule.pollSlow", "schedule.longestLook",
		"schedule.invalidWait",
		"identity.decidesAgain", "worker.pausedAgain",
		"cockroach.holdPolled", "jobs.readEvery", "jobs.warnEvery", "jobs.watchEvery", "maintenance.pruneEvery",
		"maintenance.renewEvery", "maintenance.requestsEvery",
		"maintenance.retainEvery", "schedules.readEvery", "schedules.unreadableEvery", "schedules.standInAfter",
		"maintenance.tidyEvery",
		"nats.anchorEvery", "nats.answerEvery", "nats.busyAfter", "nats.lookEvery", "nats.reconnected", "nats.tend",
		"orchestrator.Every", "orchestrator.MeasureEvery", "orchestrator.forgetEvery", "ownership.lookEvery",
		"report.searchEvery", "--sweep-every", "telemetry.askEvery", "telemetry.readyEvery", "telemetry.warnEvery",
		"client.firstAsk", "client.lastAsk", "worker.Discover", "nats.heartbeat",
	},
	"the bound of one request that is sent again": {
		"app.askFor", "health.requestTimeout", "jobs.headerTimeout", "jobs.operationFor", "nats.catchUpWithin",
		"nats.settleFor", "orchestrator.answersWithin", "orchestrator.asideFor", "orchestrator.compareWithin",
		"schedules.lookWithin", "schedules.faultLasts",
		"orchestrator.formerWithin",
		"process.AnswerWithin", "process.quiet", "query.patience", "report.lookFor", "sqlite.busyTimeout",
		"telemetry.askFor", "worker.noteTimeout", "worker.publishFor", "client.unanswered", "cockroach.holdFor",
	},
	"how long messages gather for one request": {
		"client.hearsWithin", "client.listensWithin", "jobs.gatherFor", "orchestrator.groupCommitDelay",
		"outbox.farFor", "scheduler.GatherFor", "scheduler.Patience", "scheduler.ReservedFor", "scheduler.soon",
	},
	"how long memory of facts is kept that are found out anew": {
		"jobpushed.keyFor", "jobs.keyFor", "jobs.rememberLocks", "jobs.writerAge", "maintenance.beginsWithin",
		"nats.avoidBriefly", "nats.avoidDenied", "nats.avoidFor", "nats.avoidUnserved", "nats.congestionFor",
		"nats.markerFor", "nats.receivedLately", "nats.remembered", "orchestrator.returnedFor",
		"orchestrator.takeoverWithin", "outbox.keptFor", "outbox.recent", "ownership.unknownFor", "query.keepParts",
		"sqladmin.shortTombstoneTTL", "worker.withdrawnFor", "cockroach.markSlack", "cockroach.markStep",
		"history.ScheduleSlack",
		"cockroach.WakeStep", "maintenance.heldLong", "maintenance.settleFor", "nats.loadSlice",
	},
	"how the times of a schedule are named and found": {"schedule.lateAfter", "schedule.widest"},
	"part of a timeout on the page": {
		"worker.surelyStored", "worker.maxLastMoment", "steps.stepGrace", "client.skew",
		"jobs.startTTL",
	},
	"how NATS is asked for delayed messages": {
		"nats.early", "nats.near", "nats.takeFor", "outbox.laterFrom", "outbox.farFrom", "nats.minReturn",
		"nats.maxReturn",
	},
	"a bound of what callers may ask for": {
		"schedule.DefaultCatchUp", "schedule.minCatchUp", "schedule.maxJitter",
		"events.MaxDelay", "jobs.MaxDelay", "jobs.MaxTTL", "jobs.MinTTL", "jobs.DefaultTTL", "jobs.longWait",
		"jobs.longestWait", "jobs.preventedWait", "jobs.shortWait", "telemetry.maxFor", "check.Overdue",
	},
	"how wrong a clock may be": {"check.MaxClockDifference", "nats.wrongAfter"},
	"the command rondo, or the end of a process": {
		"app.endTelemetryFor", "app.givesBackFor", "app.oneSignal", "embedded.loginWithin", "embedded.ready",
		"jobs.endFor", "jobs.endWithin",
		"rondo.decidedWithin", "rondo.dialFor", "rondo.heldAfter", "rondo.lookEvery", "rondo.maxSkew", "rondo.patience",
		"rondo.progressAfter", "rondo.systemWithin", "rondo.takenWithin",
	},
	"programs always override it with the setting": {"worker.ShutdownTimeout"},
}
