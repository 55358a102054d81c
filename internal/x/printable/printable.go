// Package printable keeps control characters away from terminals: an escape sequence in a text of a
// client could set colors, move the cursor, and overwrite lines.
package printable

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Text replaces control characters but line breaks and tabs, characters that reverse the direction
// of a line, and bytes that are not UTF-8. The replacement is an escape of JSON (\u001b), so JSON
// keeps its meaning: there, such characters can stand in strings only.
func Text(s string) string {
	if isPlain(s) {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == '\n' || r == '\t' || !harms(r, n) {
			out.WriteString(s[:n])
		} else {
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		s = s[n:]
	}
	return out.String()
}

// Line is Text, and replaces line breaks and tabs, too: the result stays on one line, and in one
// cell of a table.
func Line(s string) string { return lineBreaks.Replace(Text(s)) }

// Below is Text with the later lines indented, so that none of them passes for a line of its own.
func Below(s, indent string) string { return strings.ReplaceAll(Text(s), "\n", "\n"+indent) }

var lineBreaks = strings.NewReplacer("\n", `\u000a`, "\t", `\u0009`)

// isPlain reports whether a text is ASCII without control characters but line breaks and tabs.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf-1 || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// harms reports whether a terminal may act on a character of n bytes. All of them fit into an
// escape of four digits.
func harms(r rune, n int) bool {
	return r == utf8.RuneError && n == 1 ||
		unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// Writer applies [Text] to all that is written. It is safe for concurrent use, one write after the
// other.
type Writer struct {
	mu   sync.Mutex
	to   io.Writer
	tail []byte // the beginning of a character whose other bytes may follow
}

// To returns a Writer in front of another one.
func To(w io.Writer) *Writer { return &Writer{to: w} }

// Write implements [io.Writer].
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := string(w.tail) + string(b)
	whole := len(text) - begun(text)
	w.tail = append(w.tail[:0], text[whole:]...)
	if _, err := io.WriteString(w.to, Text(text[:whole])); err != nil {
		return 0, err
	}
	return len(b), nil
}

// begun is the number of bytes at the end of a text that begin a character and do not end it.
func begun(text string) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if end := text[len(text)-n:]; utf8.RuneStart(end[0]) {
			if utf8.FullRuneInString(end) {
				return 0
			}
			return n
		}
	}
	return 0
}
