package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/pkg/app"
)

// TestDoctorWithoutPermission shows that doctor distinguishes a sick system from a user without
// permission: with the users of the shipped configuration, only a client may ask orchestrators.
func TestDoctorWithoutPermission(t *testing.T) {
	t.Parallel()
	server := natstest.StartWith(t,
		embedded.Options{Config: filepath.Join("..", "..", "deploy", "nats", "one-circle-of-trust.conf")})
	natstest.Connect(t, server, natsbroker.Config{Login: natsbroker.Login{User: "setup", Password: "setup"}})
	c := app.Defaults(app.Orchestrator)
	c.Database.URL = filepath.Join(t.TempDir(), "rondo.db")
	c.NATS.URLs, c.NATS.User, c.NATS.Password, c.NATS.InboxPrefix, c.Streams.Verify = server.URL(), "orchestrator",
		"orchestrator", "_INBOX_orchestrator", true
	d := deployOn(t, c, stuck(1))
	login := func(user string) []string {
		return []string{"--nats", server.URL(), "--nats-user", user, "--nats-password", user, "--nats-inbox-prefix",
			"_INBOX_" + user}
	}
	d.where = login("client")
	d.until("ok +database", "doctor")
	for _, user := range []string{"orchestrator", "worker"} {
		d.where = login(user)
		code, text := d.say("doctor")
		if code != succeeded || strings.Contains(text, "bad ") {
			t.Errorf("doctor as %s exits with %d:\n%s", user, code, text)
		}
		for _, want := range []string{"look  orchestrators  unknown: this user may not ask them",
			"look  database       unknown: this user may not ask the orchestrators", "docs/nats.md#rights"} {
			if !strings.Contains(text, want) {
				t.Errorf("doctor as %s says\n%s\nwant %q", user, text, want)
			}
		}
	}
}

// TestAWrongInboxPrefixIsNamed: NATS denies subscribing to responses. Commands and services say
// which setting is wrong, at once.
func TestAWrongInboxPrefixIsNamed(t *testing.T) {
	t.Parallel()
	server := natstest.StartWith(t,
		embedded.Options{Config: filepath.Join("..", "..", "deploy", "nats", "one-circle-of-trust.conf")})
	natstest.Connect(t, server, natsbroker.Config{Login: natsbroker.Login{User: "setup", Password: "setup"}})
	for _, prefix := range []string{"_INBOX", "_INBOX_worker"} {
		d := &deployed{t: t, where: []string{"--nats", server.URL(), "--nats-user", "client", "--nats-password",
			"client", "--nats-inbox-prefix", prefix}}
		for _, args := range [][]string{{"doctor"}, {"show", "i"}, {"start", "naps", "1"}} {
			code, text := d.say(args...)
			if code != failed || !strings.Contains(text, "responses on "+prefix+".>; set --nats-inbox-prefix") ||
				strings.Contains(text, "rondo dev") || strings.Contains(text, "orchestrator") {
				t.Errorf("%v with %s exits with %d:\n%s", args, prefix, code, text)
			}
		}
	}
	_, err := natsbroker.Connect(t.Context(), natsbroker.Config{URLs: server.URL(), Setup: natsbroker.Verify,
		Login: natsbroker.Login{User: "orchestrator", Password: "orchestrator"}})
	if !errors.Is(err, broker.ErrPermission) || !strings.Contains(err.Error(), "--nats-inbox-prefix") {
		t.Errorf("an orchestrator: %v", err)
	}
}

// TestDoctorTellsWhoSharesAnAccount runs doctor as a client and as an operator with both shipped
// configurations. Where each role has an account, a client shares it with no service, and an
// operator with orchestrators only.
func TestDoctorTellsWhoSharesAnAccount(t *testing.T) {
	t.Parallel()
	const none, first, both = "no orchestrator or worker is", "orchestrators are", "orchestrators and workers are"
	for _, test := range []struct{ file, tenant, client, operator string }{
		{"one-circle-of-trust.conf", "", both, both}, {"accounts.conf", "shop-", none, first},
	} {
		t.Run(test.file, func(t *testing.T) {
			t.Parallel()
			server := natstest.StartWith(t,
				embedded.Options{Config: filepath.Join("..", "..", "deploy", "nats", test.file)})
			as := func(user string) natsbroker.Login {
				return natsbroker.Login{User: test.tenant + user, Password: test.tenant + user}
			}
			natstest.Connect(t, server, natsbroker.Config{Login: as("setup")})
			for _, kind := range []string{process.Orchestrator, process.Worker} {
				b := natstest.Connect(t, server, natsbroker.Config{Login: as(kind), InboxPrefix: "_INBOX_" + kind,
					Setup: natsbroker.Verify})
				stop, err := process.Handle(b, func(context.Context) process.Process {
					return process.Process{Kind: kind, ID: kind}
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(stop)
			}
			for user, want := range map[string]string{"client": test.client, "setup": test.operator} {
				inbox := "_INBOX_" + user
				if user == "setup" {
					inbox = "_INBOX_operator"
				}
				d := &deployed{t: t, where: []string{"--nats", server.URL(), "--nats-user", test.tenant + user,
					"--nats-password", test.tenant + user, "--nats-inbox-prefix", inbox}}
				code, text := d.say("doctor")
				if !strings.Contains(text, "ok    accounts       "+want+" in the NATS account of this user") {
					t.Errorf("doctor as %s exits with %d:\n%s\nwant %q", user, code, text, want)
				}
			}
		})
	}
}

// TestSchedulesNeedNoStream: a client in an account of its own sees no streams. It asks the
// orchestrators for schedules, as for instances.
func TestSchedulesNeedNoStream(t *testing.T) {
	t.Parallel()
	server := natstest.StartWith(t,
		embedded.Options{Config: filepath.Join("..", "..", "deploy", "nats", "accounts.conf")})
	natstest.Connect(t, server, natsbroker.Config{Login: natsbroker.Login{User: "shop-setup", Password: "shop-setup"}})
	d := &deployed{t: t, where: []string{"--nats", server.URL(), "--nats-user", "shop-client", "--nats-password",
		"shop-client", "--nats-inbox-prefix", "_INBOX_client"}}
	for _, args := range [][]string{{"list"}, {"schedules"}, {"schedules", "show", "nightly"}} {
		code, text := d.say(args...)
		if code != unavailable || !strings.Contains(text, "no orchestrator answers with the prefix") {
			t.Errorf("%v exits with %d:\n%s", args, code, text)
		}
	}
}
