package tidy

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// words are what must not be in Go and Markdown files, and what to do instead. Those in capitals
// are only meant in capitals. They are written in pieces, so that this file does not find itself.
var words = map[string]string{
	"TO" + "DO": unplanned, "FIX" + "ME": unplanned, "XX" + "X": unplanned,

	"age" + "nt": unnamed, "age" + "nts": unnamed, "subage" + "nt": unnamed, "subage" + "nts": unnamed,
	"sub-age" + "nt": unnamed, "sub-age" + "nts": unnamed,

	"bla" + "zing": boasted, "cutting-" + "edge": boasted, "effort" + "less": boasted, "effort" + "lessly": boasted,
	"next-" + "generation": boasted,
	"seam" + "less":        boasted, "seam" + "lessly": boasted, "world-" + "class": boasted,
}

const (
	unplanned = "do it now, or leave it out; what is planned does not belong into the files"
	unnamed   = "name the thing by what it does: worker, client, process"
	boasted   = "say what it does, with a number if there is one"
)

var (
	// conversation finds references that only make sense to those who were there.
	conversation = regexp.MustCompile(`(?i)\b(issue|task|ticket|session|pull request) ?` + `#\d+`)
	// machinePath finds absolute paths of somebody's machine, in files of every kind; not when
	// beforePath is before it.
	machinePath = regexp.MustCompile(`/(wo` + `rk|ro` + `ot|ho` + `me|Us` + `ers)/`)
)

// beforePath are the characters after which a path is no absolute one (letters and digits are,
// too).
const beforePath = "_./$})*-"

func TestWords(t *testing.T) {
	err := walk(func(name string) error {
		data, err := readFile(name)
		if err == nil && utf8.Valid(data) {
			report(t, checkWords(name, string(data)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkWords(name, text string) []string {
	prose := strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".md")
	var bad []string
	number := 0
	for line := range strings.Lines(text) {
		number++
		at := name + ":" + strconv.Itoa(number)
		if m := findMachinePath(line); m != "" {
			bad = append(bad, fmt.Sprintf(
				"%s: %q is a path of one machine only: write it relative to the repository, or "+
					"make a temporary directory", at, m))
		}
		if !prose {
			continue
		}
		if m := findConversation(line); m != "" {
			bad = append(bad, fmt.Sprintf(
				"%s: %q: say in the text itself what the reader must know; name a bug of somebody else's by its "+
					"full address", at, m))
		}
		for w := range strings.FieldsFuncSeq(line, isBetweenWords) {
			w = strings.Trim(w, ".-")
			if cure := cmp.Or(words[w], words[strings.ToLower(w)]); cure != "" {
				bad = append(bad, fmt.Sprintf("%s: %q: %s", at, w, cure))
			}
		}
	}
	return bad
}

// isBetweenWords tells where a word ends. What is joined by a dot or a hyphen is one word.
func isBetweenWords(r rune) bool { return !unicode.IsLetter(r) && r != '.' && r != '-' }

// findConversation finds a number that a reader could not look up. Most lines are told apart by one
// character.
func findConversation(line string) string {
	if !strings.Contains(line, "#") {
		return ""
	}
	return conversation.FindString(line)
}

func findMachinePath(line string) string {
	if !strings.Contains(line, "/") {
		return ""
	}
	for _, m := range machinePath.FindAllStringIndex(line, -1) {
		before, _ := utf8.DecodeLastRuneInString(line[:m[0]])
		if m[0] == 0 || !unicode.IsLetter(before) && !unicode.IsDigit(before) &&
			!strings.ContainsRune(beforePath, before) {
			return line[m[0]:m[1]]
		}
	}
	return ""
}

func wordsOf(f *source) []string { return checkWords(f.path, f.text) }
