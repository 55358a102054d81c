package tidy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// budgeted are phrases that comments must lose, and what to write instead. A budget for each file
// bounds how often they are left.
var budgeted = []struct {
	phrase *regexp.Regexp
	cure   string
}{
	{inProse(`who|whoever|whom|somebody|nobody|someone|anybody|everybody|people`),
		"name the actor: the client, the worker, the operator, the caller"},
	{inProse(`what (is|are|was|were|has|have|had|does|did|may|might|must|can|cannot|could|will|would|should|comes|came)`),
		"name the thing"},
	{inProse(`life|lives|graves?|bury|buries|buried`), "incarnation; tombstone; dead-letter"},
	{inProse(`promises?|promised|promising`), "outbox entry"},
	{inProse(`put aside|puts aside|came to nothing`), "dead-lettered"},
	{inProse(`the short way|past the streams`), "direct delivery"},
	{inProse(`handed out again|hands? out again`), "redelivered"},
	{inProse(`give back|gives back|given back|gave back`), "nack"},
	{inProse(`pieces? of work|queues? of work|work queues?`), "activity task; task queue"},
	{inProse(`mail|letters?`), "mailbox message"},
	{inProse(`roll calls?`), "discovery request"},
	{inProse(`(a|the|these|those|such) notices?|announced?|announces|announcements?`), "notification"},
	{inProse(`lulls?|slowness`), "group commit; backoff"},
	{inProse(`enlivens?|enlivened|unrest|thaws?|thawed`), "hydrate, evict, park, idle"},
	{inProse(`under way|on its way`), "in flight"},
	{inProse(`unless you say otherwise|unless it says otherwise|if nobody says`), "Default: …"},
}

func inProse(alternatives string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(` + alternatives + `)\b`)
}

// exempt are the parts of a comment that are not prose, and terms that contain a budgeted word.
var exempt = regexp.MustCompile("(?i)`[^`]*`|\"[^\"]*\"|\\[[^\\]]*\\]|dead[ -]letters?|letters,? (and )?digits")

// TestWordBudgets counts the phrases that the comments of each file must lose.
func TestWordBudgets(t *testing.T) {
	r := newRatchet("words")
	eachFile(t, func(f *source) []string {
		for _, site := range budgetedIn(f) {
			r.add(f.path, site)
		}
		return nil
	})
	r.check(t)
}

func budgetedIn(f *source) (sites []string) {
	if f.dir == "internal/tidy" {
		return nil // its comments name the phrases
	}
	for _, line := range commentLines(f) {
		text := exempt.ReplaceAllString(line.text, "")
		for _, b := range budgeted {
			for _, found := range b.phrase.FindAllString(text, -1) {
				sites = append(sites, fmt.Sprintf("%s:%d: %q: %s", f.path, line.number, strings.ToLower(found), b.cure))
			}
		}
	}
	return sites
}

func TestBudgetedWordsAreFound(t *testing.T) {
	f, err := parse("pkg/a/a.go", `package a
// Whoever waits is told what is left, and nobody else; the client whose task is redelivered is not.
// An echo of "nobody" and `+"`who`"+` and [life] is no prose. Dead letters are not letters.
//go:generate who
var nobody = "somebody"
`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, site := range budgetedIn(f) {
		got = append(got, strings.Split(site, `"`)[1])
	}
	if want := []string{"whoever", "nobody", "what is", "letters"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
