package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// open opens an account in virtual time.
func open(t *testing.T, how ...rondotest.Part) (*rondotest.Env, orchestration.Handle[State]) {
	t.Helper()
	env := rondotest.New(t, append(how, Account.Bind(account), Ask.Bind(ask))...)
	h, err := Account.Start(t.Context(), env, Opening{Owner: "ann"}, orchestration.ID("account-1"))
	if err != nil {
		t.Fatal(err)
	}
	env.Settle()
	return env, h
}

func push(t *testing.T, c orchestration.Client, commands ...Command) {
	t.Helper()
	for _, command := range commands {
		if err := Commands.Send(t.Context(), c, "account-1", command); err != nil {
			t.Fatal(err)
		}
	}
}

func wantState(t *testing.T, h orchestration.Handle[State], want State) {
	t.Helper()
	if got, err := h.Wait(t.Context()); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestAsk(t *testing.T) {
	env, h := open(t, rondotest.Cold())
	for _, c := range []struct {
		command Command
		want    Answer
	}{
		{Command{Do: "deposit", Cents: 500}, Answer{500, ""}},
		{Command{Do: "withdraw", Cents: 501}, Answer{500, "there are only 500 cents"}},
		{Command{Do: "withdraw", Cents: 100}, Answer{400, ""}},
		{Command{Do: "deposit", Cents: -100}, Answer{400, "an amount has to be more than nothing"}},
		{Command{Do: "rob", Cents: 100}, Answer{400, `an account cannot "rob"`}},
	} {
		got, err := Ask.Run(t.Context(), env, Request{Account: h.ID, Command: c.command})
		if err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v; want %+v", c.command, got, err, c.want)
		}
	}
	want := State{Balance: 400, Handled: 5, Refused: 3}
	if got, ok, err := Book.Read(t.Context(), env, h.ID); err != nil || !ok || got != want {
		t.Errorf("the book says %+v, want %+v", got, want)
	}
}

// TestAskTwice asks the same thing twice by the same id. It is done once, and answered twice.
func TestAskTwice(t *testing.T) {
	env, h := open(t)
	for range 2 {
		got, err := Ask.Run(t.Context(), env, Request{Account: h.ID, Command: Command{Do: "deposit", Cents: 500}},
			orchestration.ID("salary-1"))
		if err != nil || got.Balance != 500 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestAskNobody(t *testing.T) {
	env, _ := open(t)
	request := Request{Account: "account-2", Command: Command{Do: "deposit", Cents: 1}}
	if _, err := Ask.Run(t.Context(), env, request); !errors.Is(err, orchestration.OfType(noAnswer)) {
		t.Error(err)
	}
}

// TestUnreadable sends a message that is not a command, and commands whose senders cannot be
// answered. The account continues.
func TestUnreadable(t *testing.T) {
	env, h := open(t)
	if err := orchestration.DefineMailbox[string](Commands.Name()).Send(t.Context(), env, h.ID, "hello"); err != nil {
		t.Fatal(err)
	}
	push(t, env, Command{Do: "deposit", Cents: 1, ReplyTo: "\x00"}, Command{Do: "deposit", Cents: 1, ReplyTo: "nobody"},
		Command{Do: "close"})
	wantState(t, h, State{Balance: 2, Handled: 3, Closed: true})
	if dead := env.DeadLetters(); len(dead) == 0 || dead[0].Reason != "wrong_type" {
		t.Errorf("the dead letters are %+v", dead)
	}
}

// TestLarge sends large commands that the account refuses. The account continues as new before its
// history has reached a limit.
func TestLarge(t *testing.T) {
	env, h := open(t)
	for range 12 {
		push(t, env, Command{Do: strings.Repeat("x", 900<<10)})
		env.Settle()
	}
	push(t, env, Command{Do: "close"})
	wantState(t, h, State{Handled: 13, Refused: 12, Closed: true})
	if row, _ := env.Instance(h.ID); row.Execution != 2 {
		t.Errorf("it has ended in execution %d, want 2", row.Execution)
	}
}

// TestClose closes an account while commands are waiting behind. They are answered, too, also
// across a continue-as-new.
func TestClose(t *testing.T) {
	env, h := open(t)
	if err := h.Suspend(t.Context(), "so that commands wait"); err != nil {
		t.Fatal(err)
	}
	push(t, env, Command{Do: "deposit", Cents: 7}, Command{Do: "close"})
	for range perExecution {
		push(t, env, Command{Do: "deposit", Cents: 1})
	}
	late, err := Ask.Start(t.Context(), env, Request{Account: h.ID, Command: Command{Do: "withdraw", Cents: 1}})
	if err != nil {
		t.Fatal(err)
	}
	env.Settle()
	if err := h.Resume(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	wantState(t, h, State{Balance: 7, Handled: perExecution + 3, Refused: perExecution + 1, Closed: true})
	if got, err := late.Wait(t.Context()); err != nil || got != (Answer{7, "the account is closed"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCancel(t *testing.T) {
	env, h := open(t)
	push(t, env, Command{Do: "deposit", Cents: 7})
	if err := h.Cancel(t.Context(), "no longer wanted"); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Wait(t.Context()); !errors.Is(err, orchestration.ErrCancelled) || got.Balance != 7 {
		t.Errorf("%+v, %v", got, err)
	}
}

// pairs makes commands of which none is refused if they are handled in their order, and some are if
// one is lost, comes twice or is overtaken.
func pairs(n int) (all []Command) {
	for i := range n {
		all = append(all, Command{Do: "deposit", Cents: i + 1}, Command{Do: "withdraw", Cents: i + 1})
	}
	return all
}

// TestOrder sends thousands of commands: to an account that takes them as they come, and to one
// that finds them all waiting.
func TestOrder(t *testing.T) {
	for name, how := range map[string][]rondotest.Part{
		"warm":  nil,
		"cold":  {rondotest.Cold()},
		"chaos": {rondotest.Chaos(11)},
	} {
		t.Run(name, func(t *testing.T) {
			env, h := open(t, how...)
			const each = 400
			for i, c := range pairs(each) {
				push(t, env, c)
				if i%50 == 0 {
					env.Settle()
				}
			}
			env.Settle()
			if err := h.Suspend(t.Context(), "so that commands wait"); err != nil {
				t.Fatal(err)
			}
			push(t, env, pairs(each)...)
			push(t, env, Command{Do: "close"})
			env.Settle()
			if err := h.Resume(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			wantState(t, h, State{Handled: 4*each + 1, Closed: true})
			wantSmall(t, env, h.ID, 4*each/perExecution+1)
		})
	}
}

// wantSmall checks the number of executions, and that the history of each is bounded: the events of
// its own commands, and the commands that were unread when it began and when it ended.
func wantSmall(t *testing.T, env *rondotest.Env, id string, executions int) {
	t.Helper()
	all := env.ExportAll(id)
	if len(all) != executions {
		t.Errorf("there were %d executions, want %d", len(all), executions)
	}
	waiting := 0 // when the next execution began
	for i, data := range slices.Backward(all) {
		var x events.Export
		if err := json.Unmarshal(data, &x); err != nil {
			t.Fatal(err)
		}
		carried := x.Events[0].Fact.(*events.Started).Carried
		if n := len(x.Events); n > carried+3*perExecution+waiting+10 {
			t.Errorf("execution %d has %d events; %d were waiting when it began, %d when it ended", i+1, n,
				carried, waiting)
		}
		waiting = carried
	}
}
