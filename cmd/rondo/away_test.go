package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/history"
)

// TestTheDatabaseIsAway shows that commands name the reason and the remedy while the orchestrators
// do not reach their database.
func TestTheDatabaseIsAway(t *testing.T) {
	pgtest.Need(t)
	t.Parallel()
	database, server := pgtest.Start(t), natstest.Start(t)
	c := app.Defaults(app.Orchestrator)
	c.NATS.URLs, c.Database.URL = server.URL(), database.Database(t)
	d := deployOn(t, c, stuck(1))
	d.where = []string{"--nats", server.URL()}
	if code, text := d.say("start", "naps", "1", "--id", "i"); code != succeeded {
		t.Fatal(text)
	}
	d.until("it is due in", "show", "i")
	database.Kill(t)
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"show", "i"}, unavailable,
			[]string{"connection refused", "do not reach their database", "rondo doctor"}},
		{[]string{"list"}, unavailable, []string{"do not reach their database"}},
		{[]string{"history", "i"}, unavailable, []string{"do not reach their database"}},
		{[]string{"doctor"}, failed,
			[]string{"bad   orchestrators", "bad   database", "look whether the database runs"}},
		{[]string{"orchestrators"}, succeeded, []string{"not ready", "connection refused"}},
		{[]string{"start", "naps", "1", "--id", "j"}, succeeded, nil}, // it waits in NATS
	} {
		code, text := d.say(c.args...)
		if code != c.code {
			t.Errorf("rondo %v exits with %d, want %d", c.args, code, c.code)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("rondo %v says\n%s\nwant %q", c.args, text, want)
			}
		}
	}
	database.Restart(t)
	d.until("it is due in", "show", "i")
	d.until("it is due in", "show", "j")
}

// TestAnUnreadStartIsNamed: a database that refuses connections ends the wait of a start that NATS
// has. The error names its id.
func TestAnUnreadStartIsNamed(t *testing.T) {
	unread := &history.Error{Class: history.Permanent, Op: "read an instance", Err: errors.New("refused")}
	unsent := &history.Error{Class: history.Retry, Op: "publish", Err: errors.New("refused")}
	for _, c := range []struct {
		id   string
		err  error
		want string
	}{
		{"i", unread, "NATS has the start of i, and its instance cannot be read: history: read an instance: refused; " +
			"`rondo wait i` waits for it, and `--id i` starts it once if you repeat the command"},
		{"", unread, unread.Error()},
		{"i", unsent, unsent.Error()},
		{"i", errors.New("no stream"), "no stream"},
	} {
		if err := startUnread(c.id, c.err); err.Error() != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: %v, want %q", c.id, err, c.want)
		}
	}
}
