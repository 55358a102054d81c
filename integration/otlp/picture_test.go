package otlp_test

import (
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// This file draws a trace, and reads the tree of spans back from a picture.

// picture is where the trace of an order is drawn.
var picture = filepath.Join(root, "docs", "trace.svg")

// What a picture measures.
const (
	pictureWidth = 1160.0
	margin       = 20.0
	chartLeft    = 300.0
	chartRight   = 985.0 // behind it, there is room for the labels of bars that end there
	rowHeight    = 21.0
	chartTop     = 92.0
	indent       = 15.0
	barHeight    = 12.0
	shortest     = 2.0 // of bars
)

// colours are those of services: for work, and for waiting.
var colours = map[string][2]string{
	"web":             {"#7c4dbd", "#d9c9f0"},
	byOrchestrator:    {"#1f6feb", "#bcd6fb"},
	byWorker:          {"#d9730d", "#f8d9b6"},
	"somebody else's": {"#57606a", "#d0d7de"},
}

func (s span) colours() [2]string {
	for _, k := range []string{byOrchestrator, byWorker} {
		if strings.HasSuffix(s.Service, k) {
			return colours[k]
		}
	}
	if c, ok := colours[s.Service]; ok {
		return c
	}
	return colours["somebody else's"]
}

// waits reports whether a span only waits for others.
func (s span) waits() bool {
	return slices.Contains([]string{"orchestration", "activity", "child", "timer", "event", "mailbox"}, s.sort())
}

// label is the label of a row. The reason of a failure is beside its bar.
func (s span) label() string {
	s.Failed = ""
	return s.what()
}

// row is the content of a picture about a span, without its times.
type row struct {
	depth          int
	label, service string
}

func (r row) String() string { return strings.Repeat("  ", r.depth) + r.label + " [" + r.service + "]" }

// rows are those that the picture of a trace has.
func (n node) rows() (out []row) {
	n.each(func(n node) { out = append(out, row{n.depth, n.label(), n.Service}) })
	return out
}

// drawing is a picture that is being drawn.
type drawing struct {
	b     strings.Builder
	begin time.Time
	whole time.Duration
}

// draw draws a trace. Others are those that it may have links to.
func draw(trace node, title string, others []span) string {
	d := &drawing{begin: trace.Start}
	var all []node
	trace.each(func(n node) {
		all = append(all, n)
		d.whole = max(d.whole, n.End.Sub(d.begin))
	})
	height := chartTop + rowHeight*float64(len(all)) + margin
	d.say(`<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %g %g" font-family="ui-sans-serif, system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif" font-size="12">`,
		pictureWidth, height, pictureWidth, height)
	d.say(`<title>%s</title>`, escape(title))
	d.say(`<rect width="%g" height="%g" fill="#ffffff"/>`, pictureWidth, height)
	d.say(`<text x="%g" y="30" font-size="15" font-weight="600" fill="#1f2328">%s</text>`, margin, escape(title))
	d.legend(all)
	d.axis(height - margin + 4)
	there := byPlace(others)
	for i, n := range all {
		d.row(i, n, there)
	}
	d.say(`</svg>`)
	return d.b.String()
}

func (d *drawing) say(format string, args ...any) { fmt.Fprintf(&d.b, format+"\n", args...) }

// legend draws the colours of the services.
func (d *drawing) legend(all []node) {
	x := margin
	var seen []string
	entry := func(colour, text string) {
		d.say(`<rect x="%.1f" y="43" width="%g" height="%g" rx="2" fill="%s"/><text x="%.1f" y="53" fill="#424a53">%s</text>`, x, barHeight, barHeight, colour, x+18, escape(text))
		x += 18 + float64(len([]rune(text)))*6.5 + 22
	}
	for _, n := range all {
		if !slices.Contains(seen, n.Service) {
			seen = append(seen, n.Service)
			entry(n.colours()[0], n.Service)
		}
	}
	entry(colours[byOrchestrator][1], "waits for others")
}

// axis draws lines at round times.
func (d *drawing) axis(bottom float64) {
	step := niceStep(d.whole)
	for at := time.Duration(0); at <= d.whole; at += step {
		x := d.x(d.begin.Add(at))
		d.say(`<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" stroke="#e6e9ed"/><text x="%.1f" y="%g" text-anchor="middle" font-size="11" fill="#6e7781">%s</text>`,
			x, chartTop-8, x, bottom, x, chartTop-14, at)
	}
}

// niceStep is a round time of which a whole has about six.
func niceStep(whole time.Duration) time.Duration {
	least := float64(whole) / 7
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= least {
			return time.Duration(n * power)
		}
	}
	return time.Duration(10 * power)
}

func (d *drawing) x(at time.Time) float64 {
	return chartLeft + (chartRight-chartLeft)*float64(at.Sub(d.begin))/float64(d.whole)
}

// row draws a span: its label, its bar, and beside that its duration, the reason of a failure, and
// the causes from outside.
func (d *drawing) row(i int, n node, others map[link]span) {
	top := chartTop + rowHeight*float64(i)
	colour, weight := n.colours()[0], "400"
	if n.waits() {
		colour = n.colours()[1]
	}
	if n.depth < 2 {
		weight = "600"
	}
	d.say(`<g class="row" data-depth="%d" data-service="%s">`, n.depth, escape(n.Service))
	if i%2 == 1 {
		d.say(`<rect x="0" y="%g" width="%g" height="%g" fill="#1f2328" fill-opacity="0.028"/>`, top,
			pictureWidth, rowHeight)
	}
	for depth := range n.depth {
		x := margin + indent*float64(depth) + 4
		d.say(`<line x1="%g" y1="%g" x2="%g" y2="%g" stroke="#d0d7de"/>`, x, top, x, top+rowHeight)
	}
	base := top + 15
	d.say(`<text class="name" x="%g" y="%g" font-weight="%s" fill="#1f2328">%s</text>`, margin+indent*float64(n.depth),
		base, weight, escape(n.label()))
	from, to := d.x(n.Start), d.x(n.End)
	to = max(to, from+shortest)
	d.say(`<rect x="%.1f" y="%.1f" width="%.1f" height="%g" rx="2" fill="%s"/>`, from, top+(rowHeight-barHeight)/2,
		to-from, barHeight, colour)
	said := fmt.Sprintf(`<tspan fill="#57606a">%s</tspan>`, short(n.End.Sub(n.Start)))
	if n.Failed != "" {
		said += fmt.Sprintf(`<tspan fill="#cf222e">  ✕ %s</tspan>`, escape(n.Failed))
	}
	for _, l := range n.Links {
		if o, ok := others[l]; ok && l.Trace != n.Trace {
			said += fmt.Sprintf(`<tspan fill="#7c4dbd">  ⟵ %s</tspan>`, escape(o.Name))
		}
	}
	d.say(`<text x="%.1f" y="%g" font-size="11" xml:space="preserve">%s</text>`, to+6, base-0.5, said)
	d.say(`</g>`)
}

// short is a time as it is read at a glance.
func short(d time.Duration) string {
	for _, digit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= digit*10 {
			return d.Round(digit).String()
		}
		if d >= digit {
			return d.Round(digit / 10).String()
		}
	}
	return d.String()
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a builder takes everything
	return b.String()
}

// readPicture returns the rows of a picture.
func readPicture(text string) (out []row, err error) {
	var p struct {
		Rows []struct {
			Class   string `xml:"class,attr"`
			Depth   string `xml:"data-depth,attr"`
			Service string `xml:"data-service,attr"`
			Texts   []struct {
				Class string `xml:"class,attr"`
				Text  string `xml:",chardata"`
			} `xml:"text"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal([]byte(text), &p); err != nil {
		return nil, err
	}
	for _, g := range p.Rows {
		if g.Class != "row" {
			continue
		}
		r := row{service: g.Service}
		if r.depth, err = strconv.Atoi(g.Depth); err != nil {
			return nil, err
		}
		for _, x := range g.Texts {
			if x.Class == "name" {
				r.label = x.Text
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// checkPicture compares the picture in the documents with a trace, but for the times; or draws it.
func checkPicture(t *testing.T, trace node, others []span) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(picture,
			[]byte(draw(trace, "An order that is approved, and whose card fails once: one trace over three programs",
				others)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readPicture(string(text))
	if err != nil {
		t.Fatalf("%s: %v", picture, err)
	}
	if want := trace.rows(); !slices.Equal(got, want) {
		t.Errorf("the picture in %s is not that of the trace; look at what has changed, and draw it anew with\n\tgo "+
			"test -run TestOrdersAreTraced -rewrite\nit shows:\n%s\nwant:\n%s", picture, list(got), list(want))
	}
}

func list(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintln(&b, r)
	}
	return b.String()
}

func TestNiceSteps(t *testing.T) {
	for whole, want := range map[time.Duration]time.Duration{
		700 * time.Microsecond: 100 * time.Microsecond, 250 * time.Millisecond: 50 * time.Millisecond,
		time.Second: 200 * time.Millisecond, 30 * time.Second: 5 * time.Second,
	} {
		if got := niceStep(whole); got != want {
			t.Errorf("the axis of %v has steps of %v, want %v", whole, got, want)
		}
	}
}
