package jobserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// This file executes the commands of docs/job-queues.md and of the scripts in testdata, and
// compares their output with the text. A command begins with "$ ", continues in the next line after
// a backslash, and its output follows. The tests' clock begins at the same time as that of the
// documents, and `sleep` moves it. Random ids in the text stand for those of the test: the same for
// the same.

const queuesDocument = "../../docs/job-queues.md"

// theExamples is the heading of the scripts in the document.
const theExamples = "\n## The examples of the former service\n"

// theDocument is the document before that, and the part with the scripts.
func theDocument(t *testing.T) (text, examples string) {
	t.Helper()
	text, examples, found := strings.Cut(read(t, queuesDocument), theExamples)
	if !found {
		t.Fatalf("%s has no heading %q", queuesDocument, theExamples)
	}
	return text, examples
}

// TestDocument runs all commands of the document, top to bottom.
func TestDocument(t *testing.T) {
	text, _ := theDocument(t)
	all := commands(t, "job-queues.md", text, true)
	if len(all) < 40 {
		t.Fatalf("%d commands were found; are they still read?", len(all))
	}
	onEach(t, func(t *testing.T, s *service) { newTypist(t, s).all(all) })
}

// TestScripts runs the four examples of the former service's document, each on a database of its
// own. They stand in the document as well.
func TestScripts(t *testing.T) {
	_, examples := theDocument(t)
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) != 4 {
		t.Fatalf("there are %d scripts (%v), want 4", len(paths), err)
	}
	found := 0
	for _, path := range paths {
		name, text := filepath.Base(path), read(t, path)
		all := commands(t, name, text, false)
		found += len(all)
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(examples, "```sh-session\n"+text+"```\n") {
				t.Errorf("%s does not have %s, word by word, in a block of its own", queuesDocument, path)
			}
			onEach(t, func(t *testing.T, s *service) { newTypist(t, s).all(all) })
		})
	}
	if all := commands(t, "job-queues.md", examples, true); len(all) != found {
		t.Errorf("the examples in %s have %d commands, and the scripts %d", queuesDocument, len(all), found)
	}
}

// TestDocumentWithCurl does the same with the program that users run.
func TestDocumentWithCurl(t *testing.T) {
	program, err := exec.LookPath("curl")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("THERE IS NO curl ON THIS MACHINE: only our reading of its options was tried")
	}
	if err != nil {
		t.Fatal(err)
	}
	text, _ := theDocument(t)
	scripts := map[string][]command{"job-queues.md": commands(t, "job-queues.md", text, true)}
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		scripts[filepath.Base(path)] = commands(t, filepath.Base(path), read(t, path), false)
	}
	for name, all := range scripts {
		t.Run(name, func(t *testing.T) {
			p := newTypist(t, onSQLite(t))
			p.curl = func(words []string) (string, error) {
				out, err := exec.CommandContext(t.Context(), program,
					append([]string{"-q", "-sS"}, words...)...).CombinedOutput()
				return string(out), err
			}
			p.all(all)
		})
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ---- Reading.

// command is a command line, and its output.
type command struct {
	at    string
	words []string
	want  string
}

// commands reads the commands of a text: all of it, or the blocks of a document.
func commands(t testing.TB, name, text string, blocks bool) (all []command) {
	t.Helper()
	inside, goesOn, typed := !blocks, false, ""
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		begun, begins := strings.CutPrefix(line, "$ ")
		switch {
		case blocks && strings.HasPrefix(line, "```"):
			inside = line == "```sh-session"
			continue
		case !inside, strings.HasPrefix(line, "#"):
			continue
		case begins:
			typed = begun
			all = append(all, command{at: fmt.Sprintf("%s:%d", name, number)})
		case goesOn:
			typed += strings.TrimSpace(line)
		case len(all) == 0:
			if strings.TrimSpace(line) != "" {
				t.Fatalf("%s:%d: no command stands before it: %s", name, number, line)
			}
			continue
		default:
			all[len(all)-1].want += line + "\n"
			continue
		}
		if typed, goesOn = strings.CutSuffix(typed, `\`); !goesOn {
			words, err := split(typed)
			if err != nil {
				t.Fatalf("%s:%d: %v", name, number, err)
			}
			all[len(all)-1].words = words
		}
	}
	return all
}

// split takes a line apart as a shell does that knows quotes and nothing else.
func split(line string) (words []string, err error) {
	var word strings.Builder
	inWord := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case '\'', '"':
			inWord = true
			end := strings.IndexByte(line[i+1:], c)
			if end < 0 {
				return nil, fmt.Errorf("a quote does not end: %s", line)
			}
			word.WriteString(line[i+1 : i+1+end])
			i += end + 1
		case ' ', '\t':
			if inWord {
				words = append(words, word.String())
			}
			inWord = false
			word.Reset()
		case '|', '&', ';', '>', '<', '`', '(', ')', '$', '*', '?', '\\':
			return nil, fmt.Errorf("%q means something to a shell; put quotes around it: %s", string(c), line)
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// ---- Doing.

// typist types commands, and reads the answers.
type typist struct {
	t    testing.TB
	s    *service
	curl func(words []string) (string, error)
	ids  chance
}

func newTypist(t testing.TB, s *service) *typist {
	return &typist{t: t, s: s, curl: func(words []string) (string, error) { return likeCurl(t, words) }, ids: chance{}}
}

func (p *typist) all(all []command) {
	p.t.Helper()
	for _, c := range all {
		if err := p.one(c); err != nil {
			p.t.Fatalf("%s: %s\n%v", c.at, strings.Join(c.words, " "), err)
		}
	}
}

func (p *typist) one(c command) error {
	switch {
	case len(c.words) == 2 && c.words[0] == "sleep":
		seconds, err := strconv.Atoi(c.words[1])
		p.s.clock.move(time.Duration(seconds) * time.Second)
		return err
	case len(c.words) == 0 || c.words[0] != "curl":
		return errors.New("only curl and sleep can be tried out")
	}
	words := slices.Clone(c.words[1:])
	for n := range words {
		for _, here := range []string{"http://127.0.0.1:8000", "http://localhost:8000"} {
			words[n] = strings.ReplaceAll(words[n], here, p.s.url)
		}
		for theirs, ours := range p.ids {
			words[n] = strings.ReplaceAll(words[n], theirs, ours)
		}
	}
	got, err := p.curl(words)
	if err != nil {
		return fmt.Errorf("%w: %s", err, got)
	}
	return p.ids.compare(got, c.want)
}

// likeCurl sends what curl would, for the options that are used here.
func likeCurl(t testing.TB, words []string) (string, error) {
	var method, url, after string
	var body io.Reader
	header := http.Header{"User-Agent": {"curl"}, "Accept": {"*/*"}}
	for n := 0; n < len(words); n++ {
		option := words[n]
		if !strings.HasPrefix(option, "-") {
			url = option
			continue
		}
		if n++; n == len(words) {
			return "", fmt.Errorf("%s: nothing stands behind it", option)
		}
		switch value := words[n]; option {
		case "-X":
			method = value
		case "-H":
			name, text, _ := strings.Cut(value, ":")
			header.Set(name, strings.TrimSpace(text))
		case "-d":
			body = strings.NewReader(value)
			if header.Get("Content-Type") == "" {
				header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
		case "-w":
			after = value
		default:
			return "", fmt.Errorf("the option %s of curl is not known here", option)
		}
	}
	if method == "" && body != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		return "", err
	}
	r.Header = header
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	return string(data) + strings.NewReplacer("%{http_code}", strconv.Itoa(answer.StatusCode), `\n`,
		"\n").Replace(after), err
}

// ---- Comparing.

// chance maps random ids of the document to those of the test.
type chance map[string]string

// byChance are the members with such ids.
var byChance = []string{"lock_id", "request_id"}

// compare returns how an answer differs. JSON may be written in any way.
func (c chance) compare(got, want string) error {
	if strings.TrimSpace(want) == "" {
		return fmt.Errorf("the answer is missing, which is:\n%s", got)
	}
	gotJSON, gotRest := cut(got)
	wantJSON, wantRest := cut(want)
	if !c.same(gotJSON, wantJSON, "") || gotRest != wantRest {
		return fmt.Errorf("the answer is\n%s\nand not\n%s", got, want)
	}
	return nil
}

// cut separates the JSON at the beginning from what follows.
func cut(text string) (value any, rest string) {
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&value); err != nil {
		return nil, strings.TrimSpace(text)
	}
	return value, strings.TrimSpace(text[d.InputOffset():])
}

// same compares the values under a name.
func (c chance) same(got, want any, name string) bool {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok || len(got) != len(want) {
			return false
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			value, there := got[name]
			if !there || !c.same(value, want[name], name) {
				return false
			}
		}
		return true
	case []any:
		got, ok := got.([]any)
		return ok && slices.EqualFunc(got, want, func(a, b any) bool { return c.same(a, b, "") })
	case string:
		got, ok := got.(string)
		if !ok || !slices.Contains(byChance, name) {
			return ok && got == want
		}
		if is, known := c[want]; known {
			return is == got
		}
		for _, other := range c {
			if other == got {
				return false
			}
		}
		c[want] = got
		return len(want) == len(got)
	}
	return reflect.DeepEqual(got, want)
}

// TestAnswersAreCompared makes sure that the checks above find differences.
func TestAnswersAreCompared(t *testing.T) {
	for _, x := range []struct {
		name, got, want string
		same            bool
	}{
		{"the same", `{"a":1,"b":[{"c":"x"}]}`, `{"a": 1, "b": [{"c": "x"}]}`, true},
		{"another order of members", `{"a":1,"b":2}`, "{\"b\": 2,\n \"a\": 1}", true},
		{"another value", `{"a":1}`, `{"a":2}`, false},
		{"a member more", `{"a":1,"b":2}`, `{"a":1}`, false},
		{"a member less", `{"a":1}`, `{"a":1,"b":2}`, false},
		{"another member", `{"a":1}`, `{"b":1}`, false},
		{"null for nothing", `{"a":null}`, `{"b":null}`, false},
		{"another order of items", `[1,2]`, `[2,1]`, false},
		{"an item more", `[1,2]`, `[1]`, false},
		{"another kind", `{"a":"1"}`, `{"a":1}`, false},
		{"an id", `{"lock_id":"abc"}`, `{"lock_id":"xyz"}`, true},
		{"an id twice", `[{"lock_id":"abc"},{"lock_id":"abc"}]`, `[{"lock_id":"xyz"},{"lock_id":"xyz"}]`, true},
		{"another id where the same should be", `[{"lock_id":"abc"},{"lock_id":"abd"}]`,
			`[{"lock_id":"xyz"},{"lock_id":"xyz"}]`, false},
		{"the same id where another should be", `[{"lock_id":"abc"},{"lock_id":"abc"}]`,
			`[{"lock_id":"xyz"},{"lock_id":"xyw"}]`, false},
		{"an id of another form", `{"lock_id":"abcdef"}`, `{"lock_id":"x"}`, false},
		{"an id that is none", `{"lock_id":5}`, `{"lock_id":"x"}`, false},
		{"a status", "{}\n423\n", "{}\n423\n", true},
		{"another status", "{}\n200\n", "{}\n423\n", false},
		{"a status is missing", "{}\n", "{}\n423\n", false},
		{"something follows", "{} {}", "{}", false},
		{"no JSON", "oh\n", "{}", false},
		{"no answer in the document", "{}", "\n", false},
	} {
		if err := (chance{}).compare(x.got, x.want); (err == nil) != x.same {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	for line, want := range map[string]string{
		`a 'b c' "d"e`: "a|b c|de", `a  b`: "a|b", `''`: "", `a 'b`: "does not end", "a | b": "quotes",
		"a ?b": "quotes",
	} {
		words, err := split(line)
		if got := strings.Join(words, "|") + fmt.Sprint(err); !strings.Contains(got, want) ||
			(err == nil) != (want == strings.Join(words, "|")) {
			t.Errorf("%q: %q, %v", line, words, err)
		}
	}
	for _, words := range [][]string{{"-k", "x"}, {"-X"}} {
		if _, err := likeCurl(t, words); err == nil {
			t.Errorf("curl %q: it was done", words)
		}
	}
}

// ---- The table of problems.

// TestProblemsAreExplained compares the codes and statuses of the table in the document with those
// in the code.
func TestProblemsAreExplained(t *testing.T) {
	told := make(map[string]int)
	for _, m := range regexp.MustCompile(
		"(?m)^\\| (\\d{3}) \\| `([A-Z_]+)` \\| [^|]{20,} \\| [^|]{10,} \\|$").FindAllStringSubmatch(read(t,
		queuesDocument), -1) {
		if _, twice := told[m[2]]; twice {
			t.Errorf("%s stands in the table twice", m[2])
		}
		told[m[2]], _ = strconv.Atoi(m[1])
	}
	is := problemsInCode(t)
	if len(is) < 15 {
		t.Errorf("%d problems are found in the code; are they still read?", len(is))
	}
	if !maps.Equal(told, is) {
		t.Errorf("%s explains\n%v\nand the code has\n%v", queuesDocument, told, is)
	}
}

// problemsInCode are the codes that problems are made with, and their statuses.
func problemsInCode(t *testing.T) map[string]int {
	statuses := make(map[string]int)
	for n := 400; n < 600; n++ {
		statuses["Status"+strings.ReplaceAll(http.StatusText(n), " ", "")] = n
	}
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name.Name == "jobserver" {
			files = append(files, f)
		}
	}
	inspect := func(look func(ast.Node) bool) {
		for _, f := range files {
			ast.Inspect(f, look)
		}
	}
	codes, used := make(map[string]string), make(map[string]int)
	inspect(func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == 1 && len(v.Values) == 1 &&
			strings.HasPrefix(v.Names[0].Name, "code") {
			if l, ok := v.Values[0].(*ast.BasicLit); ok {
				codes[v.Names[0].Name], _ = strconv.Unquote(l.Value)
			}
		}
		return true
	})
	inspect(func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 3 {
			return true
		}
		if f, ok := call.Fun.(*ast.Ident); !ok || f.Name != "newProblem" {
			return true
		}
		status, ok1 := call.Args[0].(*ast.SelectorExpr)
		code, ok2 := call.Args[1].(*ast.Ident)
		if !ok1 || !ok2 || statuses[status.Sel.Name] == 0 || codes[code.Name] == "" {
			t.Fatal("a problem is made with something else than a constant status and a constant code")
		}
		name, is := codes[code.Name], statuses[status.Sel.Name]
		if before := used[name]; before != 0 && before != is {
			t.Errorf("%s has the statuses %d and %d", name, before, is)
		}
		used[name] = is
		return true
	})
	if len(used) != len(codes) {
		t.Errorf("of the codes %v, only %v are used", codes, used)
	}
	return used
}
