package main

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// A round whose code does not return is named by show, doctor, orchestrators, wait and terminate:
// the first one of an instance, which the database does not have, and a later one.
func TestARoundThatDoesNotEndIsNamed(t *testing.T) {
	t.Parallel()
	blocks, later := orchestration.Define[int, int]("blocks"), orchestration.Define[int, int]("later")
	release := make(chan struct{})
	d := deploy(t, t.TempDir(), []app.Part{
		blocks.Bind(func(_ *orchestration.Context, n int) (int, error) { <-release; return n, nil }),
		later.Bind(func(ctx *orchestration.Context, n int) (int, error) {
			if _, err := approve.Wait(ctx); err != nil {
				return 0, err
			}
			<-release
			return n, nil
		}),
	})
	defer close(release)
	const running = `its round has been running for [0-9hms]+ in orchestrator "dev": the code of `
	_, text := d.say("start", "blocks", "1", "--id", "first")
	if !regexp.MustCompile(`no orchestrator has decided it within 10s: ` + running).MatchString(text) {
		t.Errorf("start says %q", text)
	}
	d.until(`instance "first": there is no such instance yet: `+running+`blocks does not return.*must not loop`,
		"show", "first")
	d.until(`instance "first": there is no such instance yet: `+running+`blocks`, "history", "first")
	d.say("start", "later", "1", "--id", "second")
	d.until(`event "approve"`, "show", "second")
	d.say("raise", "second", "approve", `"yes"`)
	d.until(`note +`+running+`later 1\.0\.0 does not return.*must not loop`, "show", "second")
	for _, args := range [][]string{{"start", "blocks", "1", "--id", "third", "--wait"}, {"wait", "third"}} {
		d.until(`third has not ended: there is no such instance yet: `+running+
			`blocks does not return.*must not loop`, append(args, "--timeout", "4s")...)
	}
	d.until(`(look|bad) +code +the round of instance "first" has been running for [0-9hms]+ in orchestrator "dev": the code of `+
		`blocks does not`, "doctor")
	d.until(`long round: first, for [0-9hms]+ in orchestrator "dev": the code of blocks`, "orchestrators")
	d.until(`has not ended: it is running; `+running+`later 1\.0\.0`, "wait", "second", "--timeout", "10ms")
	d.until(`has not ended: there is no such instance yet: `+running+`blocks`, "wait", "first", "--timeout", "10ms")
	d.until(`has not ended: there is no such instance yet: `+running+`blocks`, "watch", "first", "--timeout", "10ms")
	d.until(`the message was sent, but instance "first": there is no such instance yet: `+running, "suspend", "first")
}

// An instance whose start is quarantined is named by show, doctor, orchestrators and wait: the
// database does not have it. So is one that the database has.
func TestQuarantinedMessagesAreNamed(t *testing.T) {
	t.Parallel()
	listens := orchestration.Define[int, string]("listens")
	d := deploy(t, t.TempDir(), []app.Part{
		listens.Bind(func(ctx *orchestration.Context, _ int) (string, error) { return approve.Wait(ctx) }),
	})
	d.say("start", "listens", "1", "--id", "known")
	since := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	b := natstest.Connect(t, at(d.address), natsbroker.Config{Setup: natsbroker.Use})
	stop, err := process.Handle(b, func(context.Context) process.Process {
		p := process.Process{Kind: process.Orchestrator, ID: "o-2", Quarantined: []process.Quarantined{
			{Instance: "first", Messages: 2, Start: true, Since: since, Attempt: 4},
			{Instance: "known", Messages: 3, Since: since}}}
		for i := range 300 {
			p.Quarantined = append(p.Quarantined, process.Quarantined{Instance: fmt.Sprint("more-", i), Messages: 1,
				Start: true, Since: since})
		}
		return p
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	const has = `orchestrator "o-2" has had its start in quarantine since 2027-01-01T12:00:00Z \(\S+\): `
	d.until(`instance "first": there is no such instance yet: `+has+`attempt 4 is in progress`+
		".*--message-attempts.*`rondo delete first` withdraws the start",
		"show", "first")
	d.until(`there is no such instance yet: `+has+`its turn has not come`, "show", "more-1")
	const known = `orchestrator "o-2" has had 3 of its messages in quarantine since .*: their turn has not come`
	d.until(`note +`+known, "show", "known")
	d.until(`it is running; `+known, "wait", "known", "--timeout", "10ms")
	d.until(`has not ended: there is no such instance yet: `+has, "wait", "first", "--timeout", "10ms")
	d.until(`look +code +orchestrator "o-2" has messages of 302 instances in quarantine, and is trying "first" `+
		`\(attempt 4\)`, "doctor")
}

// If the connection breaks before NATS has acknowledged a start, start does not claim that NATS has
// it.
func TestAStartThatMayBeLostIsNotClaimed(t *testing.T) {
	t.Parallel()
	blocks := orchestration.Define[int, int]("blocks")
	began, release := make(chan struct{}), make(chan struct{})
	server := natstest.Start(t)
	c := app.Defaults(app.Orchestrator)
	c.NATS.URLs, c.Database.URL = server.URL(), filepath.Join(t.TempDir(), "history.db")
	d := deployOn(t, c, []app.Part{
		blocks.Bind(func(_ *orchestration.Context, n int) (int, error) { close(began); <-release; return n, nil }),
	})
	defer close(release)
	line := natstest.NewLine(t, server)
	d.where = []string{"--nats", line.URL()}
	go func() { <-began; line.Lose() }()
	code, text := d.say("start", "blocks", "1", "--id", "lost", "--timeout", "12s")
	if code != timeIsOver || strings.Contains(text, "NATS has the start") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// NATS keeps a start of an orchestration that no orchestrator has, and a delayed start. delete
// withdraws them: they do not run when the code is deployed later.
func TestAStartThatWaitsForCodeCanBeDropped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := deploy(t, dir, stuck(1))
	const id, later = "order 7.b", "order-later"
	d.say("start", "misspelt", "1", "--id", id)
	d.say("start", "misspelt", "1", "--id", later, "--delay", "24h")
	for _, x := range []string{id, later} {
		d.until("`rondo delete '?"+x+"'?` withdraws the start", "show", x)
		if code, text := d.say("list", "--status", "pending", "--prefix-of-id", x); code != succeeded ||
			!strings.Contains(text, "misspelt") {
			t.Errorf("list exits with %d and says %q", code, text)
		}
		if code, text := d.say("cancel", x); code == succeeded || !strings.Contains(text, "withdraws the start") {
			t.Errorf("cancel exits with %d and says %q", code, text)
		}
		if code, text := d.say("delete", x); code != succeeded || text != x+": the start was withdrawn\n" {
			t.Errorf("delete exits with %d and says %q", code, text)
		}
		d.until("there is no such instance", "delete", x)
	}
	if _, text := d.say("list", "--status", "pending"); text != "no start is pending\n" {
		t.Errorf("list says %q", text)
	}
	d.stop()
	misspelt := orchestration.Define[int, int]("misspelt")
	d = deploy(t, dir, []app.Part{
		misspelt.Bind(func(_ *orchestration.Context, n int) (int, error) { return n, nil }),
	})
	if code, text := d.say("start", "misspelt", "1", "--id", "another", "--wait"); code != succeeded {
		t.Fatal(text)
	}
	if _, text := d.say("list"); strings.Contains(text, "order") {
		t.Errorf("it runs after all: %s", text)
	}
}
