package tidy

import (
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"path"
	"strings"
	"testing"
)

// This file keeps true what code in comments of the user packages names: functions, types, fields,
// and methods of contracts that a snippet defines. The compiler does not see these snippets.

func TestCodeInCommentsNamesWhatExists(t *testing.T) {
	s := newSnippets()
	for _, dir := range userPackages {
		for _, f := range filesOf(t, dir) {
			s.read(f)
		}
	}
	s.define()
	for _, dir := range userPackages {
		for _, f := range filesOf(t, dir) {
			report(t, s.check(f))
		}
	}
}

// snippets is what code in comments may name.
type snippets struct {
	packages map[string]bool
	names    map[string]bool     // package.Name, package.Type.Method, package.Type.Field
	methods  map[string]bool     // names of methods and fields, of any type
	results  map[string]string   // type that a function gives, by package.Function
	defined  map[string][]string // types of the variables that snippets define, by name
	blocks   []snippet
}

// snippet is the code of one comment, split into tokens.
type snippet struct {
	file   *source
	tokens []codeToken
}

type codeToken struct {
	token.Token
	text string
	line int
}

func newSnippets() *snippets {
	return &snippets{packages: make(map[string]bool), names: make(map[string]bool), methods: make(map[string]bool),
		results: make(map[string]string), defined: make(map[string][]string)}
}

// read notes what a file exports, and the code in its comments.
func (s *snippets) read(f *source) {
	name := path.Base(f.dir)
	s.packages[name] = true
	for _, d := range exportedOf(f) {
		s.names[name+"."+d.name] = true
		if _, member, ok := strings.Cut(d.name, "."); ok {
			s.methods[member] = true
		}
	}
	for _, d := range f.file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Type.Results != nil {
			if of := typeName(fn.Type.Results.List[0].Type); of != "" {
				s.results[name+"."+fn.Name.Name] = name + "." + of
			}
		}
	}
	for _, group := range f.file.Comments {
		if b := codeOf(f, group); len(b.tokens) > 0 {
			s.blocks = append(s.blocks, b)
		}
	}
}

// typeName is the name of a type of the same package; "" for other types.
func typeName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.StarExpr:
		return typeName(x.X)
	case *ast.IndexExpr:
		return typeName(x.X)
	case *ast.IndexListExpr:
		return typeName(x.X)
	}
	return ""
}

// codeOf splits the code of a comment into tokens: lines that begin with a tab.
func codeOf(f *source, group *ast.CommentGroup) snippet {
	b := snippet{file: f}
	for _, c := range group.List {
		code, found := strings.CutPrefix(c.Text, "//\t")
		if !found {
			continue
		}
		line := f.fset.Position(c.Pos()).Line
		var scan scanner.Scanner
		fset := token.NewFileSet()
		scan.Init(fset.AddFile("", fset.Base(), len(code)), []byte(code), func(token.Position, string) {}, 0)
		for _, kind, text := scan.Scan(); kind != token.EOF; _, kind, text = scan.Scan() {
			if kind != token.SEMICOLON {
				b.tokens = append(b.tokens, codeToken{kind, text, line})
			}
		}
	}
	return b
}

// is reports whether the tokens from a place on are of these kinds.
func (b snippet) is(at int, kinds ...token.Token) bool {
	if at < 0 || at+len(kinds) > len(b.tokens) {
		return false
	}
	for i, kind := range kinds {
		if b.tokens[at+i].Token != kind {
			return false
		}
	}
	return true
}

// define notes the types of variables that a function of a user package defines: X = package.F.
func (s *snippets) define() {
	for _, b := range s.blocks {
		for i := range b.tokens {
			if !b.is(i, token.IDENT, token.ASSIGN, token.IDENT, token.PERIOD, token.IDENT) {
				continue
			}
			name := b.tokens[i].text
			if of := s.results[b.tokens[i+2].text+"."+b.tokens[i+4].text]; of != "" && token.IsExported(name) {
				s.defined[name] = append(s.defined[name], of)
			}
		}
	}
}

// check lists the names in the comments of a file that nothing has.
func (s *snippets) check(f *source) (bad []string) {
	for _, b := range s.blocks {
		if b.file != f {
			continue
		}
		for i := range b.tokens {
			if b.is(i-1, token.PERIOD) || !b.is(i, token.IDENT, token.PERIOD, token.IDENT) {
				continue
			}
			of, name := b.tokens[i].text, b.tokens[i+2].text
			switch {
			case !s.exists(of, name):
				bad = append(bad, fmt.Sprintf("%s:%d: the code in the comment names %s.%s, which does not exist",
					f.path, b.tokens[i].line, of, name))
			case s.packages[of] && b.is(i+3, token.LBRACE):
				bad = append(bad, s.checkFields(b, i+3, of+"."+name)...)
			}
		}
	}
	return bad
}

func (s *snippets) exists(of, name string) bool {
	switch {
	case s.packages[of]:
		return s.names[of+"."+name]
	case len(s.defined[of]) > 0:
		for _, t := range s.defined[of] {
			if s.names[t+"."+name] {
				return true
			}
		}
		return false
	case of == "ctx" && token.IsExported(name):
		return s.names["orchestration.Context."+name]
	}
	return !token.IsExported(of) || !token.IsExported(name) || s.methods[name]
}

// checkFields looks up the fields of a literal, of which the first token is the brace.
func (s *snippets) checkFields(b snippet, at int, of string) (bad []string) {
	depth := 0
	for i := at; i < len(b.tokens); i++ {
		switch b.tokens[i].Token {
		case token.LBRACE, token.LPAREN, token.LBRACK:
			depth++
		case token.RBRACE, token.RPAREN, token.RBRACK:
			depth--
		}
		switch {
		case depth == 0:
			return bad
		case depth == 1 && b.is(i+1, token.IDENT, token.COLON) && !s.names[of+"."+b.tokens[i+1].text]:
			bad = append(bad, fmt.Sprintf("%s:%d: the code in the comment names the field %s.%s, which does not exist",
				b.file.path, b.tokens[i+1].line, of, b.tokens[i+1].text))
		}
	}
	return bad
}

// TestSnippetCheckNotices makes sure that the check finds what it is there to find, and nothing
// else.
func TestSnippetCheckNotices(t *testing.T) {
	const contracts = "//\tvar (\n//\t\tAsk = client.DefineEvent[int](\"ask\")\n" +
		"//\t\tBox = client.DefineMailbox[int](\"box\")\n//\t)\n"
	for _, c := range []struct{ name, code, want string }{
		{"a function", `c := client.Connect(ctx, "client.Nothing") // client.Nothing`, ""},
		{"no function", `c := client.Dial(ctx)`, "pkg/client/a.go:6: the code in the comment names client.Dial"},
		{"a method", `err := Ask.Raise(ctx, c)`, ""},
		{"a method of another contract", `err := Ask.Send(ctx, c)`, "names Ask.Send"},
		{"a method of a chain", `v, err := Box.Send(ctx, c).Get(ctx)`, ""},
		{"a contract that is defined elsewhere", `err := orders.Other.Send(ctx, c)`, ""},
		{"a method that no type has", `err := Other.Emit(ctx, c)`, "names Other.Emit"},
		{"fields", `f := client.Filter{Name: g(client.Filter{}), Limit: 3}`, ""},
		{"no field", `f := []client.Filter{{}, client.Filter{Name: "a", Item: 3}}`, "the field client.Filter.Item"},
		{"placeholders", `if x { … }`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := parse("pkg/client/a.go", "// Package client is one.\n"+contracts+"//\t"+c.code+
				"\npackage client\n\n"+`
				type Filter struct { Name string; Limit int }
				type Event[T any] struct{}
				type Mailbox[T any] struct{}
				func Connect() {}
				func DefineEvent[T any](string) Event[T] { return Event[T]{} }
				func DefineMailbox[T any](string) *Mailbox[T] { return nil }
				func (Event[T]) Raise() {}
				func (*Mailbox[T]) Send() {}`)
			if err != nil {
				t.Fatal(err)
			}
			s := newSnippets()
			s.read(f)
			s.define()
			got := strings.Join(s.check(f), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}
