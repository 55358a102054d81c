package jobserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/events"
)

// accessFile is the YAML of an access file.
type accessFile struct {
	Callers []accessCaller `yaml:"callers"`
}

type accessCaller struct {
	Name         word          `yaml:"name"`
	TokenSHA256  []word        `yaml:"token_sha256"`
	Certificates []word        `yaml:"certificates"`
	Allow        []accessGrant `yaml:"allow"`
	Rate         word          `yaml:"rate"`
}

type accessGrant struct {
	Queues      []word `yaml:"queues"`
	Permissions []word `yaml:"permissions"`
	Start       []word `yaml:"start"`
}

// word is a value, and the line in which it stands.
type word struct {
	text string
	line int
}

// UnmarshalYAML takes any scalar as text: the digits of a hash are not a number.
func (w *word) UnmarshalYAML(n *yaml.Node) error {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf(
			"line %d: want one value here, and no list, no map and not nothing", n.Line)}}
	}
	w.text, w.line = n.Value, n.Line
	return nil
}

// readCallers reads an access file. The error lists all problems, with lines, and repeats no token.
func readCallers(data []byte) (*callers, error) {
	var f accessFile
	r := &accessReader{names: map[string]int{},
		callers: callers{byToken: map[[sha256.Size]byte]*Caller{}, byCertificate: map[string]*Caller{}}}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	var wrong *yaml.TypeError
	switch err := d.Decode(&f); {
	case errors.Is(err, io.EOF):
	case errors.As(err, &wrong):
		for _, text := range wrong.Errors {
			r.problems = append(r.problems, plainly(text))
		}
	case err != nil:
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		r.bad(0, "there is something behind the first document; keep one")
	}
	for i, c := range f.Callers {
		r.caller(i+1, c)
	}
	if len(f.Callers) == 0 && len(r.problems) == 0 {
		r.bad(0, "it lists no callers, so nobody could do anything; begin with\n  callers:\n    - name: shop\n      "+
			"token_sha256: [HASH]\n      allow: [{queues: [orders-*], permissions: [push, pop]}]")
	}
	switch len(r.problems) {
	case 0:
		return &r.callers, nil
	case 1:
		return nil, errors.New(r.problems[0])
	}
	return nil, fmt.Errorf("%d things are wrong:\n  %s", len(r.problems), strings.Join(r.problems, "\n  "))
}

// accessReader converts the YAML to callers, and lists the problems.
type accessReader struct {
	callers  callers
	names    map[string]int // the line of each
	problems []string
}

func (r *accessReader) bad(line int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if line > 0 {
		text = fmt.Sprintf("line %d: %s", line, text)
	}
	r.problems = append(r.problems, text)
}

func (r *accessReader) caller(number int, f accessCaller) {
	c := &Caller{Name: f.Name.text}
	called := fmt.Sprintf("caller %q", c.Name)
	if strings.TrimSpace(c.Name) == "" {
		called = "caller " + strconv.Itoa(number)
		r.bad(f.Name.line, "%s has no name; give it one, by which logs and metrics can tell of it", called)
	} else if line, twice := r.names[c.Name]; twice {
		r.bad(f.Name.line, "there is another %s in line %d; give each its own name, or make one of them", called, line)
	}
	r.names[c.Name] = f.Name.line
	if len(f.TokenSHA256)+len(f.Certificates) == 0 {
		r.bad(f.Name.line, "%s has neither token_sha256 nor certificates, so nobody could be it", called)
	}
	for _, w := range f.TokenSHA256 {
		r.token(c, called, w)
	}
	for _, w := range f.Certificates {
		switch other := r.callers.byCertificate[w.text]; {
		case strings.TrimSpace(w.text) == "":
			r.bad(w.line, "%s: an empty name of a certificate; write one of its URIs or DNS names, or its common name",
				called)
		case other != nil:
			r.bad(w.line, "%s: caller %q has the certificate %q, too; a certificate belongs to one caller", called,
				other.Name, w.text)
		default:
			r.callers.byCertificate[w.text] = c
		}
	}
	if len(f.Allow) == 0 {
		r.bad(f.Name.line, "%s may do nothing; say what under allow, like allow: [{queues: [orders-*], permissions: "+
			"[push, pop]}]", called)
	}
	for _, g := range f.Allow {
		c.allow = append(c.allow, r.grant(called, f.Name.line, g))
	}
	if f.Rate.line > 0 {
		rate, err := strconv.ParseFloat(f.Rate.text, 64)
		if err != nil || !(rate > 0) || math.IsInf(rate, 0) {
			r.bad(f.Rate.line, "%s: the rate %q is no number above 0; write how many requests a second it may make, "+
				"or leave it out", called, f.Rate.text)
		}
		c.Rate = rate
	}
	r.callers.all = append(r.callers.all, c)
}

// token adds a hash. An error does not repeat the value, because it may be the token itself by
// mistake.
func (r *accessReader) token(c *Caller, called string, w word) {
	hash, err := hex.DecodeString(w.text)
	if err != nil || len(hash) != sha256.Size {
		r.bad(w.line, "%s: token_sha256 wants %d hexadecimal digits, not these %d characters; `printf %%s "+
			"\"$TOKEN\" | sha256sum` prints them", called, 2*sha256.Size, len(w.text))
		return
	}
	if bytes.Equal(hash, emptyHash[:]) {
		r.bad(w.line, "%s: token_sha256 is the hash of an empty token; was the variable empty?", called)
		return
	}
	if other := r.callers.byToken[[sha256.Size]byte(hash)]; other != nil {
		r.bad(w.line, "%s: caller %q has this token, too; a token belongs to one caller, and is written down once",
			called, other.Name)
		return
	}
	r.callers.byToken[[sha256.Size]byte(hash)] = c
}

var emptyHash = sha256.Sum256(nil)

func (r *accessReader) grant(called string, line int, f accessGrant) (g grant) {
	for _, w := range slices.Concat(f.Queues, f.Permissions) {
		line = w.line
		break
	}
	if len(f.Queues) == 0 {
		r.bad(line, "%s: allow without queues; list names, or patterns like orders-* and *", called)
	}
	if len(f.Permissions) == 0 {
		r.bad(line, "%s: allow without permissions; want some of %s, or \"*\"", called, permissionNames())
	}
	for _, w := range f.Queues {
		// A pattern with a character that no name may have would match nothing.
		if name := strings.ReplaceAll(w.text, "*", ""); w.text == "" {
			r.bad(w.line, "%s: an empty pattern fits no queue; write a name, or a pattern like orders-* or *", called)
		} else if name != "" && jobs.CheckName(name) != nil {
			r.bad(w.line, "%s: the pattern %q fits no queue: %v", called, w.text, jobs.CheckName(name))
		}
		g.queues = append(g.queues, w.text)
	}
	for _, w := range f.Permissions {
		switch right := Permission(w.text); {
		case w.text == "*":
			g.permissions = append(g.permissions, permissions...)
		case slices.Contains(permissions, right):
			g.permissions = append(g.permissions, right)
		default:
			r.bad(w.line, "%s: there is no right %q; want some of %s, or \"*\"", called, w.text, permissionNames())
		}
	}
	for _, w := range f.Start {
		if name := strings.ReplaceAll(w.text, "*", ""); w.text == "" {
			r.bad(w.line, "%s: an empty pattern fits no orchestration; write a name, or a pattern like mail-* or *",
				called)
		} else if name != "" && events.CheckName("orchestration", name) != nil {
			r.bad(w.line, "%s: the pattern %q fits no orchestration: %v", called, w.text,
				events.CheckName("orchestration", name))
		}
		g.start = append(g.start, w.text)
	}
	if len(f.Start) > 0 && !slices.Contains(g.permissions, Manage) {
		r.bad(f.Start[0].line, "%s: start without manage; add manage to the permissions, because only settings start "+
			"orchestrations", called)
	}
	return g
}

func permissionNames() string {
	var names []string
	for _, r := range permissions {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

var (
	unknownField = regexp.MustCompile(`^(line \d+: )field (.+) not found in type \w+\.(\w+)$`)
	wrongKind    = regexp.MustCompile(`(?s)^(line \d+: )cannot unmarshal (!!\w+)(?: .*)? into (.+)$`)
	fieldsOf     = map[string]string{
		"accessFile": "callers", "accessCaller": "name, token_sha256, certificates, allow, rate",
		"accessGrant": "queues, permissions, start",
	}
)

// plainly rewrites an error of the YAML package, without Go's types, and without the values.
func plainly(text string) string {
	if m := unknownField.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%s%q is not known here; there are %s", m[1], m[2], fieldsOf[m[3]])
	}
	if m := wrongKind.FindStringSubmatch(text); m != nil {
		want := "a map"
		if strings.HasPrefix(m[3], "[]") {
			want = "a list"
		}
		return m[1] + "want " + want + " here"
	}
	return text
}
