package broker_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestMessagesKeepTheirHeaders compares the carried headers with those that messages have.
func TestMessagesKeepTheirHeaders(t *testing.T) {
	t.Parallel()
	kept := broker.Carry(headersOfEvents(t))
	if len(broker.Carry(map[string][]string{"Rondo-Receipt": {"true"}})) != 1 {
		t.Error("Rondo-Receipt is lost")
	}
	// NATS acts on this one. The other one is for the message as it is published now: a task that
	// is stored again gets that of its publisher.
	lost := []string{events.HeaderNATSMsgID, events.HeaderDirectReply}
	for name := range headersOfEvents(t) {
		if _, keeps := kept[name]; keeps == slices.Contains(lost, name) {
			t.Errorf("%s is kept: %t", name, keeps)
		}
	}
}

// headersOfEvents are the headers that package events defines.
func headersOfEvents(t *testing.T) map[string][]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../pkg/events/wire.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]string)
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, v := range s.Values {
			if lit, ok := v.(*ast.BasicLit); ok && strings.HasPrefix(s.Names[i].Name, "Header") {
				value, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				all[value] = []string{"x"}
			}
		}
		return true
	})
	if len(all) < 25 {
		t.Fatalf("only %d headers are found", len(all))
	}
	return all
}

// TestReceivedHeaders compares the headers that a received message keeps with those that it has.
func TestReceivedHeaders(t *testing.T) {
	t.Parallel()
	all := headersOfEvents(t)
	n := len(all)
	all["X"], all["Rondo-Something-New"] = []string{"x"}, []string{"x"}
	kept := broker.Received(all)
	for name := range headersOfEvents(t) {
		if len(kept[name]) != 1 || kept[name][0] != "x" {
			t.Errorf("%s is %q", name, kept[name])
		}
	}
	if len(kept) != n {
		t.Errorf("%d headers are kept, want %d: %v", len(kept), n, kept)
	}
	if h := broker.Received(events.Header{}); h != nil {
		t.Errorf("a message without headers has %v", h)
	}
	only := broker.Received(events.Header{"X": {"x"}})
	if again := broker.Received(only); len(only) != 1 || len(again) != 1 || again[broker.HeaderOthers] == nil {
		t.Errorf("a message with an unknown header has %v, and then %v", only, again)
	}
}
