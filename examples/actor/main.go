// Command actor is a bank account that runs for ever: it takes commands from a queue, one after the
// other, and ends when it is closed.
//
// It teaches how an instance can own a state:
//
//   - commands come through a queue. They are kept in their order, also while nothing runs, and
//     only the account changes the state
//   - the state is a value, Book. Clients and other instances can read it at any time, and it goes
//     along when the account continues as new
//   - the account continues as new after so many commands, so its history stays small. Unread
//     commands go along, too: none is lost
//   - former executions are removed after a while, see keep
//   - a caller that wants an answer is an instance, too, and puts its id into the command: ask
//   - a command that cannot be decoded is dead-lettered. It must not end an account that is meant
//     to run for ever
//
// See it work, then end it with Ctrl-C:
//
//	go run ./examples/actor dev --demo
//
// Start it again, without --demo, and open an account from another terminal:
//
//	go build -o bin/rondo ./cmd/rondo
//	bin/rondo start account '{"owner":"ann"}' --id account-1
//	bin/rondo send account-1 commands '{"do":"deposit","cents":5000}'
//	bin/rondo start ask '{"account":"account-1","do":"withdraw","cents":1200}' --wait
//	bin/rondo start ask '{"account":"account-1","do":"withdraw","cents":9900}' --wait
//	bin/rondo show account-1
//
// Any NATS client can do the same:
//
//	nats pub rondo.mailbox.commands.account-1 '{"do":"deposit","cents":100}'
//	nats request rondo.api.value '{"instance":"account-1","key":"book"}'
//
// End the program and start it again: the account is there, with its balance. The orchestrator
// removes former executions when it starts, and about once an hour; this removes them at once:
//
//	bin/rondo prune account-1
//
// Close the account. Its output is its last state. A later command is dead-lettered, and an ask
// fails after a minute.
//
//	bin/rondo send account-1 commands '{"do":"close"}'
//	bin/rondo wait account-1
//	bin/rondo send account-1 commands '{"do":"deposit","cents":1}'
//	bin/rondo deadletters list
package main

import (
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Opening is the input of an account.
type Opening struct {
	Owner string `json:"owner"`
}

// State is the state of an account.
type State struct {
	Balance int `json:"balance"`
	// Handled counts the commands, Refused those of them that were not executed.
	Handled int  `json:"handled"`
	Refused int  `json:"refused"`
	Closed  bool `json:"closed,omitempty"`
}

// Command is a message to an account: deposit, withdraw or close.
type Command struct {
	Do    string `json:"do"`
	Cents int    `json:"cents,omitempty"`
	// ReplyTo is the instance that gets an Answer, if one is wanted.
	ReplyTo string `json:"reply_to,omitempty"`
}

// Answer is the outcome of a command. Refused says why it was not executed.
type Answer struct {
	Balance int    `json:"balance"`
	Refused string `json:"refused,omitempty"`
}

// Request is a command with the account that it is for.
type Request struct {
	Account string `json:"account"`
	Command
}

// The definitions.
var (
	Account  = orchestration.Define[Opening, State]("account")
	Commands = orchestration.DefineMailbox[Command]("commands")
	Book     = orchestration.DefineValue[State]("book")

	// Ask has a command carried out, and gives the answer. Its id is the request: two of the same
	// id are one.
	Ask     = orchestration.Define[Request, Answer]("ask")
	Answers = orchestration.DefineMailbox[Answer]("answers")
)

// noAnswer is the type of the error when an account says nothing for so long.
const (
	noAnswer = "no_answer"
	patience = time.Minute
)

// perExecution is after how many commands an account continues as new, unless they are so large
// that it has to do so sooner. Each costs three events, and one more if it is answered.
const perExecution = 500

// account executes commands. Those that are unread when it continues as new go along.
func account(ctx *orchestration.Context, opening Opening) (State, error) {
	s, _, err := Book.Get(ctx) // what the execution before this one has left
	if err != nil {
		return s, err
	}
	if err := Book.Set(ctx, s); err != nil {
		return s, err
	}
	for n := 0; n < perExecution && !ctx.ShouldContinueAsNew(); n++ {
		command, err := Commands.Receive(ctx)
		if err != nil {
			//lint:ignore nilerr a cancelled account counts as cancelled, and its state is its output
			return s, nil
		}
		if err := s.handle(ctx, command); err != nil {
			return s, err
		}
		if s.Closed && Commands.Len(ctx) == 0 { // earlier commands are answered, too
			return s, nil
		}
	}
	return Account.ContinueAsNew(ctx, opening)
}

// handle executes one command, and answers it. Messages that are not commands do not get here.
func (s *State) handle(ctx *orchestration.Context, c Command) error {
	var refused string
	switch s.Handled++; {
	case s.Closed:
		refused = "the account is closed"
	case c.Do == "close":
		s.Closed = true
	case c.Do != "deposit" && c.Do != "withdraw":
		refused = fmt.Sprintf("an account cannot %q", c.Do)
	case c.Cents <= 0:
		refused = "an amount has to be more than nothing"
	case c.Do == "deposit":
		s.Balance += c.Cents
	case c.Cents > s.Balance:
		refused = fmt.Sprintf("there are only %d cents", s.Balance)
	default:
		s.Balance -= c.Cents
	}
	if refused != "" {
		s.Refused++
	}
	if err := Book.Set(ctx, *s); err != nil {
		return err
	}
	if c.ReplyTo != "" {
		if err := Answers.SendFrom(ctx, c.ReplyTo, Answer{s.Balance, refused}); err != nil {
			ctx.Logger().Warn("there can be nobody of that name to answer", "error", err)
		}
	}
	return nil
}

// ask sends a command to an account and waits for the answer.
func ask(ctx *orchestration.Context, r Request) (Answer, error) {
	r.ReplyTo = ctx.Instance()
	if err := Commands.SendFrom(ctx, r.Account, r.Command); err != nil {
		return Answer{}, err
	}
	answer, silence := Answers.Next(ctx), ctx.Timer(patience)
	switch ctx.Race(answer, silence) {
	case answer:
		return answer.Get(ctx)
	case silence:
		return Answer{}, orchestration.Errorf(noAnswer, "%s has not answered within %v; it may do so later",
			r.Account, patience)
	}
	return Answer{}, ctx.Err()
}

// keep sets that the orchestrator keeps the last three executions of each account, and ended
// instances, asks and closed accounts, for thirty days.
func keep(c *app.Config) {
	c.Orchestrator.KeepExecutions, c.Orchestrator.Retention = 3, 30*24*time.Hour
}

// parts is the whole program.
var parts = []app.Part{Account.Bind(account), Ask.Bind(ask), app.Configure(keep), app.Demo(demo)}

func main() { app.Main(parts...) }
