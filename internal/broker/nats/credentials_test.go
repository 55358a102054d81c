package natsbroker_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
)

// refusals counts the errors of the connection that a log has.
type refusals chan string

func (r refusals) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "authorization violation") {
		select {
		case r <- string(line):
		default:
		}
	}
	return len(line), nil
}

// TestServersThatRefuseTheLoginForAWhile has a server refuse the login of a process that is
// connected, as when its users are changed or its resolver of accounts has not loaded them yet.
func TestServersThatRefuseTheLoginForAWhile(t *testing.T) {
	t.Parallel()
	const users = `authorization { user: me, password: "%" }`
	file := configFile(t, strings.Replace(users, "%", "right", 1))
	s := natstest.StartWith(t, embedded.Options{Config: file})
	refused := make(refusals, 100)
	b := natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: "me", Password: "right"},
		Logger: slog.New(slog.NewTextHandler(refused, nil))})
	change := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Replace(users, "%", password, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	change("wrong")
	for range 2 { // after that, the client would give up if it were not told otherwise
		<-refused
	}
	change("right")
	natstest.Eventually(t, "it is connected again", func() bool { return b.Connected() == nil })
}
