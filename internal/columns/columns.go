// Package columns breaks text for a terminal of 80 columns.
package columns

import (
	"strings"
	"unicode/utf8"
)

// Width is that of the narrowest terminal in use.
const Width = 80

// Wrap breaks text at spaces, so that no line has more columns than Width. Lines after the first
// begin with indent; at is the column in which the text itself begins. A word that is too long
// stays whole.
func Wrap(text, indent string, at int) string {
	var b strings.Builder
	column := at
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > Width:
			b.WriteString("\n" + indent)
			column = utf8.RuneCountInString(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// Paragraphs wraps each paragraph of a text. Indented lines, such as lists, are wrapped one by one
// and keep their indentation.
func Paragraphs(text string) string {
	var out, paragraph []string
	end := func() {
		if len(paragraph) > 0 {
			out = append(out, Wrap(strings.Join(paragraph, " "), "", 0))
		}
		paragraph = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		switch indent := line[:len(line)-len(trimmed)]; {
		case trimmed == "":
			end()
			out = append(out, "")
		case indent != "" && utf8.RuneCountInString(line) <= Width:
			end()
			out = append(out, line)
		case indent != "":
			end()
			out = append(out, indent+item(trimmed, len(indent)))
		default:
			paragraph = append(paragraph, trimmed)
		}
	}
	end()
	return strings.Join(out, "\n")
}

// item wraps a line of a list. Text behind a name and two spaces stays in its column.
func item(line string, at int) string {
	name, what, found := strings.Cut(line, "  ")
	if !found || strings.Contains(name, " ") {
		return Wrap(line, strings.Repeat(" ", at+2), at)
	}
	gap := len(what) - len(strings.TrimLeft(what, " ")) + 2
	at += utf8.RuneCountInString(name) + gap
	return name + strings.Repeat(" ", gap) + Wrap(what, strings.Repeat(" ", at), at)
}

// Row returns a name and a text in two columns: the text begins at a column, in as many lines as it
// takes.
func Row(name, what string, at int) string {
	first := "  " + name
	if n := utf8.RuneCountInString(first); n < at {
		first += strings.Repeat(" ", at-n)
	} else {
		first += "\n" + strings.Repeat(" ", at)
	}
	return first + Wrap(what, strings.Repeat(" ", at), at)
}
