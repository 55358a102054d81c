package events_test

import (
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rondo-run/rondo/pkg/events"
)

const goldenMessages = "testdata/messages"

// goldenName turns a type's name into that of its golden file: TaskDone is in task_done.txt.
func goldenName(typ string) string {
	var b strings.Builder
	for i, r := range typ {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func contentName(c events.Content) string { return goldenName(reflect.TypeOf(c).Elem().Name()) }

// contentTypes reads from the source which types a message can say.
func contentTypes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "message.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "Verb" {
			names = append(names, f.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name)
		}
	}
	return names
}

func TestEveryMessageHasAGoldenFile(t *testing.T) {
	var want, examples []string
	for _, typ := range contentTypes(t) {
		if typ != "StepDone" { // it does not travel
			want = append(want, goldenName(typ))
		}
	}
	for _, x := range messageExamples {
		examples = append(examples, contentName(x.message.Content))
	}
	sameNames(t, "examples", examples, want)
	if !*rewrite {
		sameNames(t, goldenMessages, goldenNames(t, goldenMessages, ".txt"), want)
	}
}

func TestMessagesAreWrittenAsInTheGoldenFiles(t *testing.T) {
	files := map[string]string{}
	for _, x := range messageExamples {
		name := contentName(x.message.Content)
		files[name] += "== " + x.name + "\n" + printed(wire(t, x.message)) + "\n"
	}
	for name, text := range files {
		t.Run(name, func(t *testing.T) {
			golden(t, filepath.Join(goldenMessages, name+".txt"), []byte(strings.TrimSuffix(text, "\n")))
		})
	}
}

func TestGoldenMessagesAreReadAsTheyWere(t *testing.T) {
	for _, x := range messageExamples {
		if withdraws(x.message) {
			continue
		}
		t.Run(contentName(x.message.Content)+"/"+x.name, func(t *testing.T) {
			w := goldenMessage(t, x)
			got, err := events.Decode(events.DefaultPrefix, w.Subject, w.Header, w.Body, "fallback")
			if err != nil {
				t.Fatal(err)
			}
			want := x.message
			want.NotBefore = time.Time{} // the broker has waited
			if !reflect.DeepEqual(got, want) {
				t.Errorf("read back as\n%+v %+v\nwant\n%+v %+v", got, got.Content, want, want.Content)
			}
		})
	}
}

// goldenMessage is an example as it stands in its file.
func goldenMessage(t *testing.T, x messageExample) events.Wire {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(goldenMessages, contentName(x.message.Content)+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(file), "== "+x.name+"\n")
	if !ok {
		t.Fatalf("the file has no example %q", x.name)
	}
	text, _, _ = strings.Cut(text, "\n\n")
	w := events.Wire{Header: events.Header{}}
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		key, value, isHeader := strings.Cut(line, ": ")
		switch {
		case !isHeader:
			if subject, ok := strings.CutPrefix(line, "publish "); ok {
				w.Subject = subject
			}
		case key == "body":
			w.Body = []byte(value)
		case key == "body in hex":
			if w.Body, err = hex.DecodeString(value); err != nil {
				t.Fatal(err)
			}
		default:
			w.Header[key] = []string{value}
		}
	}
	return w
}

func TestWithdrawalsPurgeTheSubjectOfWhatTheyTakeBack(t *testing.T) {
	tests := []struct {
		name           string
		sent, withdraw events.Content
	}{
		{"task", &events.Task{Ref: ref, Tag: "gpu", Activity: "charge", Attempt: 1},
			&events.WithdrawTask{Ref: ref, Tag: "gpu", Activity: "charge"}},
		{"work without a tag", &events.Task{Ref: ref, Activity: "charge", Attempt: 1},
			&events.WithdrawTask{Ref: ref, Activity: "charge"}},
		{"work with the tag _", &events.Task{Ref: ref, Tag: "_", Activity: "charge", Attempt: 1},
			&events.WithdrawTask{Ref: ref, Tag: "_", Activity: "charge"}},
		{"timer", &events.TimerDue{Ref: ref, Due: at}, &events.WithdrawTimer{Ref: ref}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sent, withdrawn := wire(t, say(tt.sent)), wire(t, say(tt.withdraw))
			if sent.Purge || !withdrawn.Purge {
				t.Errorf("purge is %v for the message and %v for its withdrawal", sent.Purge, withdrawn.Purge)
			}
			if withdrawn.Subject != sent.Subject {
				t.Errorf("purges %s, not %s", withdrawn.Subject, sent.Subject)
			}
			if withdrawn.Header != nil || withdrawn.Body != nil {
				t.Errorf("a purge carries headers %v and body %q", withdrawn.Header, withdrawn.Body)
			}
		})
	}
}

func TestSubjectsAreWordsThatNATSTakes(t *testing.T) {
	for _, x := range messageExamples {
		subject := wire(t, x.message).Subject
		if strings.ContainsAny(subject, "*> \t\r\n") || slices.Contains(strings.Split(subject, "."), "") {
			t.Errorf("%s: subject %q", contentName(x.message.Content), subject)
		}
		verb := string(x.message.Content.Verb())
		if x.message.Internal {
			verb = "internal_" + verb
		}
		if !strings.HasPrefix(subject, "rondo."+verb+".") {
			t.Errorf("%s: subject %q, verb %q", contentName(x.message.Content), subject, verb)
		}
		if n := strings.Count(subject, "."); n != 3 && x.message.Content.Verb() != events.VerbTask {
			t.Errorf("%s: subject %q has %d dots", contentName(x.message.Content), subject, n)
		}
	}
}

// printed shows a message as the broker takes it.
func printed(w events.Wire) string {
	var b strings.Builder
	verb := "publish"
	if w.Purge {
		verb = "purge"
	}
	fmt.Fprintf(&b, "%s %s\n", verb, w.Subject)
	if !w.NotBefore.IsZero() {
		fmt.Fprintf(&b, "not before %s\n", w.NotBefore.Format(time.RFC3339Nano))
	}
	for _, key := range slices.Sorted(maps.Keys(w.Header)) {
		for _, value := range w.Header[key] {
			fmt.Fprintf(&b, "%s: %s\n", key, value)
		}
	}
	switch {
	case len(w.Body) == 0:
	case utf8.Valid(w.Body):
		fmt.Fprintf(&b, "body: %s\n", w.Body)
	default:
		fmt.Fprintf(&b, "body in hex: %s\n", hex.EncodeToString(w.Body))
	}
	return b.String()
}
