package jobserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Tokens of callers in tests.
const (
	shopToken  = "shop-0123456789abcdef"
	otherToken = "other-0123456789abcdef"
)

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// manual is a clock that goes when it is told to.
type manual struct {
	mu     sync.Mutex
	at     time.Time
	passed time.Duration
}

func newManual() *manual { return &manual{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (m *manual) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

func (m *manual) pass(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.passed = m.at.Add(d), m.passed+d
}

// leap sets the wall clock, while no time passes.
func (m *manual) leap(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = m.at.Add(d)
}

func (m *manual) elapsed() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.passed
}

// said keeps the log.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *said) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func file(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func shopFile() string {
	return fmt.Sprintf(`
callers:
  - name: shop
    token_sha256: [%s]
    certificates: [spiffe://example.org/shop]
    allow:
      - queues: [orders-*, mail]
        permissions: [push, pop]
      - queues: ["*"]
        permissions: [look]
    rate: 200
  - name: keeper
    token_sha256:
      - %s
    allow:
      - {queues: ["*"], permissions: ["*"]}
`, hash(shopToken), strings.ToUpper(hash(otherToken)))
}

func request(header ...string) *http.Request {
	r := &http.Request{Method: http.MethodPost, Host: "localhost", Header: http.Header{}}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestAFileSaysWhoMayDoWhat(t *testing.T) {
	a, err := OpenAccess(file(t, filepath.Join(t.TempDir(), "access.yaml"), shopFile()), nil)
	if err != nil {
		t.Fatal(err)
	}
	shop, err := a.Caller(request("Authorization", "Bearer "+shopToken))
	if err != nil || shop.Name != "shop" || shop.Rate != 200 {
		t.Fatalf("%+v, %v", shop, err)
	}
	keeper, err := a.Caller(request("Authorization", "bearer "+otherToken))
	if err != nil || keeper.Name != "keeper" || keeper.Rate != 0 {
		t.Fatalf("%+v, %v", keeper, err)
	}
	for _, c := range []struct {
		caller *Caller
		right  Permission
		queue  string
		may    bool
	}{
		{shop, Push, "orders-1", true}, {shop, Pop, "orders-", true}, {shop, Push, "mail", true},
		{shop, Look, "else", true},
		{shop, Push, "else", false}, {shop, Pop, "mails", false}, {shop, Pop, "a-orders-1", false},
		{shop, Manage, "orders-1", false}, {shop, "", "orders-1", false},
		{keeper, Push, "x", true}, {keeper, Pop, "x", true}, {keeper, Look, "x", true}, {keeper, Manage, "x", true},
	} {
		if got := c.caller.May(c.right, c.queue); got != c.may {
			t.Errorf("%s may %s %s: %v", c.caller.Name, c.right, c.queue, got)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"mail", "mail", true}, {"mail", "mails", false}, {"mail", "", false}, {"*", "", true}, {"*", "a", true},
		{"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "abc", true}, {"a*b*c", "a-b-b-c", true},
		{"a*b*c", "a-c-b", false}, {"*ab*ab", "ab", false}, {"*ab*ab", "abab", true},
		{"*-dead-*", "x-dead-y", true}, {"**", "x", true}, {"*.*", "x", false}, {"a*bc", "abcbc", true},
		{"*b*", "abc", true},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("%q fits %q: %v", c.name, c.pattern, got)
		}
	}
}

func TestTokensThatAreNotTaken(t *testing.T) {
	a, err := OpenAccess(file(t, filepath.Join(t.TempDir(), "access.yaml"), shopFile()), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		header []string
		want   string
	}{
		{nil, "Send a token in the header `Authorization: Bearer TOKEN`, or connect with a client certificate"},
		{[]string{"Authorization", ""}, "another scheme than Bearer"},
		{[]string{"Authorization", "Bearer"}, "malformed"},
		{[]string{"Authorization", "Bearer "}, "malformed"},
		{[]string{"Authorization", "Bearer  " + shopToken}, "malformed"},
		{[]string{"Authorization", "Bearer " + shopToken + " x"}, "malformed"},
		{[]string{"Authorization", "Bearer " + shopToken + ","}, "malformed"},
		{[]string{"Authorization", "Bearer " + strings.Repeat("x", maxToken+1)}, "malformed"},
		{[]string{"Authorization", "Basic " + shopToken}, "another scheme than Bearer"},
		{[]string{"Authorization", shopToken}, "another scheme than Bearer"},
		{[]string{"Authorization", "Bearer " + shopToken, "Authorization", "Bearer " + otherToken},
			"several Authorization headers"},
		{[]string{"Authorization", "Bearer " + shopToken + "x"}, "nobody has this token"},
		{[]string{"Authorization", "Bearer " + hash(shopToken)}, "nobody has this token"},
	} {
		who, err := a.Caller(request(c.header...))
		if who != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, %v; want %s", c.header, who, err, c.want)
			continue
		}
		if strings.Contains(err.Error(), shopToken) {
			t.Errorf("%q: the error tells the token: %v", c.header, err)
		}
	}
}

// TestEverythingThatIsWrongWithAFileIsToldAtOnce checks texts and lines, because an operator has to
// repair the file.
func TestEverythingThatIsWrongWithAFileIsToldAtOnce(t *testing.T) {
	const secret = "this-is-the-token-itself"
	_, err := readCallers([]byte(fmt.Sprintf(`callers:
  - name: shop
    token_sha256: [%[1]s, %[2]s]
    alow: []
  - name: shop
    token_sha256: [%[1]s]
    certificates: [""]
    allow:
      - queues: []
        permissions: [push, sell]
      - queues: ["", "a b", "x/*"]
    rate: fast
  - certificates: [one]
    allow: [{queues: ["*"], permissions: ["*"]}]
    rate: 0
  - name: other
    certificates: [one]
    allow: [{queues: ["*"], permissions: ["*"], never: 1}]
  - name: last
    token_sha256: %[2]s
    allow: {}
  - name: empty
    token_sha256: [%[3]s]
    allow: [{queues: ["*"], permissions: ["*"]}]
  - name: starter
    certificates: [starter]
    allow:
      - {queues: ["*"], permissions: [push], start: [mail-*]}
      - {queues: ["*"], permissions: [manage], start: ["", "rondo.timer"]}
`, hash(shopToken), secret, hash(""))))
	if err == nil {
		t.Fatal("nothing is wrong with it")
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error tells the token: %v", err)
	}
	for _, want := range []string{
		`line 4: "alow" is not known here; there are name, token_sha256, certificates, allow, rate`,
		`line 18: "never" is not known here; there are queues, permissions, start`,
		`line 20: want a list here`,
		`line 21: want a list here`,
		"line 3: caller \"shop\": token_sha256 wants 64 hexadecimal digits, not these 24 characters; `printf %s " +
			"\"$TOKEN\" | sha256sum` prints them",
		`line 2: caller "shop" may do nothing; say what under allow`,
		`line 5: there is another caller "shop" in line 2`,
		`line 6: caller "shop": caller "shop" has this token, too`,
		`line 7: caller "shop": an empty name of a certificate`,
		`line 10: caller "shop": allow without queues`,
		`line 10: caller "shop": there is no right "sell"; want some of push, pop, look, manage, or "*"`,
		`line 11: caller "shop": allow without permissions`,
		`line 11: caller "shop": an empty pattern fits no queue`,
		`line 11: caller "shop": the pattern "a b" fits no queue: the name of a queue has letters`,
		`line 11: caller "shop": the pattern "x/*" fits no queue`,
		`line 12: caller "shop": the rate "fast" is no number above 0`,
		`caller 3 has no name`,
		`line 15: caller 3: the rate "0" is no number above 0`,
		`line 17: caller "other": caller "" has the certificate "one", too`,
		`line 19: caller "last" has neither token_sha256 nor certificates`,
		`line 23: caller "empty": token_sha256 is the hash of an empty token`,
		`line 28: caller "starter": start without manage`,
		`line 29: caller "starter": an empty pattern fits no orchestration`,
		`line 29: caller "starter": the pattern "rondo.timer" fits no orchestration`,
		` things are wrong:`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin: %v", want, err)
		}
	}
}

func TestFilesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "it lists no callers, so nobody could do anything; begin with",
		"# nothing\n":                     "it lists no callers",
		"callers: []":                     "it lists no callers",
		"callers: {":                      "line 1: ",
		"shop: x":                         `line 1: "shop" is not known here; there are callers`,
		"callers: []\n---\ncallers: []\n": "something behind the first document",
		"just words":                      "want a map here",
		"callers: [{name: [x]}]":          "line 1: want one value here",
		"callers: [{name: a, name: b}]":   "already defined at line 1",
	} {
		if _, err := readCallers([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
	if _, err := OpenAccess(filepath.Join(t.TempDir(), "none.yaml"), nil); err == nil ||
		!strings.Contains(err.Error(), "none.yaml: no such file") {
		t.Error(err)
	}
}

func TestAnAccessFileIsReadAgainWhenItChanges(t *testing.T) {
	clock, log := newManual(), &said{}
	path := file(t, filepath.Join(t.TempDir(), "access.yaml"), shopFile())
	a, err := openAccess(path, log.logger(), clock.now, clock.elapsed)
	if err != nil {
		t.Fatal(err)
	}
	const newToken = "fresh-0123456789abcdef"
	knows := func(token string, want bool) {
		t.Helper()
		if who, err := a.Caller(request("Authorization", "Bearer "+token)); (err == nil) != want {
			t.Fatalf("%s: %v, %v; the log: %s", token, who, err, log)
		}
	}
	fresh := strings.Replace(shopFile(), hash(shopToken), hash(newToken), 1) // of the same size
	file(t, path, fresh)
	knows(shopToken, true) // not yet
	clock.pass(readEvery)
	knows(shopToken, false)
	knows(newToken, true)

	// A broken file changes nothing, and is logged once, also after many reads.
	file(t, path, "callers: [{name: "+newToken+"}]")
	for range 3 {
		clock.pass(readEvery)
		knows(newToken, true)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		clock.pass(readEvery)
		knows(newToken, true)
	}
	if got := strings.Count(log.String(), "level=ERROR"); got != 2 || !strings.Contains(log.String(),
		"has neither token_sha256") || !strings.Contains(log.String(), "no such file") {
		t.Errorf("%d errors were logged, want one of the content and one of the file that is gone: %s", got, log)
	}
	file(t, path, shopFile())
	clock.pass(readEvery)
	knows(shopToken, true)
	knows(newToken, false)

	// A wall clock that is set back does not keep a token valid.
	clock.leap(-time.Hour)
	file(t, path, fresh)
	clock.pass(readEvery)
	knows(shopToken, false)
	if got := strings.Count(log.String(), "read again"); got != 3 {
		t.Errorf("%d changes were logged: %s", got, log)
	}
}

func TestManyAskWhileAFileChanges(t *testing.T) {
	clock := newManual()
	path := file(t, filepath.Join(t.TempDir(), "access.yaml"), shopFile())
	a, err := openAccess(path, nil, clock.now, clock.elapsed)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 200 {
				if _, err := a.Caller(request("Authorization", "Bearer "+otherToken)); err != nil {
					t.Error(err)
					return
				}
				clock.pass(readEvery / 10)
			}
		})
	}
	for n := range 20 { // by renaming, so that no read sees half of it
		next := file(t, path+".new", shopFile()+strings.Repeat("#", n))
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	wait.Wait()
}

// TestTheAccessFileOfTheDocuments reads the example that operators start from.
func TestTheAccessFileOfTheDocuments(t *testing.T) {
	page, err := os.ReadFile(filepath.FromSlash("../../docs/job-queues.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(page), "```yaml\ncallers:")
	example, _, ended := strings.Cut(example, "```")
	known, err := readCallers([]byte("callers:" + example))
	if !ok || !ended || err != nil {
		t.Fatalf("%v, %v, %v", ok, ended, err)
	}
	if len(known.all) != 4 || !known.all[0].May(Push, "orders-1") || known.all[0].May(Pop, "orders-1") ||
		known.byCertificate["spiffe://example.org/packing"] != known.all[1] {
		t.Errorf("%+v", known)
	}
	for orchestration, may := range map[string]bool{"mail-welcome": true, "fulfil": false} {
		if c := known.byCertificate["mailer.example.org"]; c == nil || c.MayStart(orchestration, "mail") != may {
			t.Errorf("%+v may have the queue mail start %s; want %t", c, orchestration, may)
		}
	}
	for _, right := range permissions {
		if !strings.Contains(string(page), "| `"+string(right)+"` |") {
			t.Errorf("the page does not explain the right to %s", right)
		}
	}
}
