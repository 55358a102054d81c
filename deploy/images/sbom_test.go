package main

import (
	"crypto/sha1"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// checkBill looks at the bill of materials of an image: the file and what refers to the image are
// the same document, which is as SPDX wants it, and has the binary and all its modules.
func checkBill(t *testing.T, output string, image v1.Image, name, inImage, program string) spdxDocument {
	t.Helper()
	text := mustRead(t, filepath.Join(output, "sbom", name+".spdx.json"))
	l, err := layout.ImageIndexFromPath(output)
	if err != nil {
		t.Fatal(err)
	}
	if got := referring(t, l, image, l.Image); string(got) != string(text) {
		t.Errorf("what refers to the image has %d bytes, the file %d, and they are not the same", len(got), len(text))
	}
	d := readBill(t, text)
	if d.Name != name {
		t.Errorf("the document is called %q, want %q", d.Name, name)
	}
	if len(d.Files) != 1 || d.Files[0].Name != "./"+inImage {
		t.Fatalf("the files are %v, want ./%s", d.Files, inImage)
	}
	binary := mustRead(t, program)
	one, other := sha1.Sum(binary), sha256.Sum256(binary)
	want := []spdxChecksum{{"SHA1", hex.EncodeToString(one[:])}, {"SHA256", hex.EncodeToString(other[:])}}
	if !slices.Equal(d.Files[0].Checksums, want) {
		t.Errorf("the checksums of the binary are %v, want %v", d.Files[0].Checksums, want)
	}

	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	checkModules(t, d, info)
	return d
}

// checkModules looks for each module of a binary in a document, with its version and its checksum,
// and for nothing else.
func checkModules(t *testing.T, d spdxDocument, info *buildinfo.BuildInfo) {
	t.Helper()
	want := []string{
		"stdlib " + info.GoVersion + " pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go"),
		"tzdata " + info.GoVersion + " ",
		"golang.org/x/crypto/x509roots/fallback " + rootsVersion() +
			" pkg:golang/golang.org/x/crypto/x509roots/fallback@" + rootsVersion(),
	}
	for _, m := range append(info.Deps, &info.Main) {
		at := "pkg:golang/" + strings.ToLower(m.Path)
		if m.Version != "(devel)" {
			at += "@" + strings.ReplaceAll(m.Version, "+", "%2B")
		}
		want = append(want, m.Path+" "+m.Version+" "+at)
	}
	var got []string
	sums := make(map[string]string)
	for _, p := range d.Packages {
		at := ""
		for _, r := range p.References {
			at += r.Locator
		}
		got = append(got, p.Name+" "+p.Version+" "+at)
		sums[p.Name] = fmt.Sprint(p.Checksums) + p.Comment
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the packages are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if rootsVersion() == "" {
		t.Error("nobody knows from which version the certificates are")
	}
	for _, m := range info.Deps {
		if m.Replace == nil && !strings.Contains(sums[m.Path], m.Sum) {
			t.Errorf("%s has the checksums %s, want %s", m.Path, sums[m.Path], m.Sum)
		}
	}
}

var (
	spdxID        = regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`)
	spdxChecksums = map[string]*regexp.Regexp{"SHA1": regexp.MustCompile(`^[0-9a-f]{40}$`),
		"SHA256": regexp.MustCompile(`^[0-9a-f]{64}$`)}
)

// readBill reads a document, and makes sure that it has what SPDX 2.3 wants of every document.
func readBill(t *testing.T, text []byte) spdxDocument {
	t.Helper()
	var d spdxDocument
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Version != "SPDX-2.3" || d.License != "CC0-1.0" || d.ID != "SPDXRef-DOCUMENT" {
		t.Errorf("it begins with %q %q %q", d.Version, d.License, d.ID)
	}
	if !strings.HasPrefix(d.Namespace, "https://") || strings.Contains(d.Namespace, "#") {
		t.Errorf("the namespace is %q", d.Namespace)
	}
	if _, err := time.Parse("2006-01-02T15:04:05Z", d.Creation.Created); err != nil || len(d.Creation.Creators) != 1 ||
		!strings.HasPrefix(d.Creation.Creators[0], "Tool: ") {
		t.Errorf("it was created %q by %q", d.Creation.Created, d.Creation.Creators)
	}
	ids := map[string]bool{d.ID: true}
	add := func(id string, sums []spdxChecksum) {
		if ids[id] || !spdxID.MatchString(id) {
			t.Errorf("%q is twice there, or no id", id)
		}
		ids[id] = true
		for _, s := range sums {
			if form := spdxChecksums[s.Algorithm]; form == nil || !form.MatchString(s.Value) {
				t.Errorf("%s has the checksum %v", id, s)
			}
		}
	}
	for _, p := range d.Packages {
		add(p.ID, p.Checksums)
		if p.Name == "" || p.Version == "" || p.Download == "" || p.LicenseConcluded == "" || p.LicenseDeclared == "" ||
			p.Copyright == "" || p.FilesAnalyzed {
			t.Errorf("something is missing in %+v", p)
		}
	}
	for _, f := range d.Files {
		add(f.ID, f.Checksums)
		if !strings.HasPrefix(f.Name, "./") || f.LicenseConcluded == "" || f.Copyright == "" ||
			!slices.ContainsFunc(f.Checksums, func(s spdxChecksum) bool {
				return s.Algorithm == "SHA1"
			}) {
			t.Errorf("something is missing in %+v", f)
		}
	}
	mentioned := map[string]bool{d.ID: true}
	for _, r := range d.Relationships {
		if !ids[r.Element] || !ids[r.Related] || r.Type == "" {
			t.Errorf("a relationship leads nowhere: %+v", r)
		}
		mentioned[r.Related] = true
	}
	for id := range ids {
		if !mentioned[id] {
			t.Errorf("nothing says how %s belongs to the rest", id)
		}
	}
	return d
}

// referring finds the one document in a list that refers to an image.
func referring(t *testing.T, all v1.ImageIndex, image v1.Image, get func(v1.Hash) (v1.Image, error)) []byte {
	t.Helper()
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	m, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var found []byte
	for _, d := range m.Manifests {
		if d.MediaType != types.OCIManifestSchema1 {
			continue
		}
		bill, err := get(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		m, err := bill.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject == nil || m.Subject.Digest != digest {
			continue
		}
		if found != nil {
			t.Fatal("two documents refer to the image")
		}
		found = documentOf(t, bill)
	}
	if found == nil {
		t.Fatalf("nothing refers to the image %s", digest)
	}
	return found
}

// documentOf gives what an artifact holds.
func documentOf(t *testing.T, bill v1.Image) []byte {
	t.Helper()
	m, err := bill.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if m.ArtifactType != "application/spdx+json" || len(m.Layers) != 1 ||
		m.Layers[0].MediaType != "application/spdx+json" {
		t.Fatalf("the artifact is %q with %v", m.ArtifactType, m.Layers)
	}
	l, err := bill.LayerByDigest(m.Layers[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return readAll(t, r)
}

func TestModulesInTheBill(t *testing.T) {
	const sum = "h1:1BOWQJweNyvZMlpAHXGLiZQn9S+QXGcz3xh94lC0w6E="
	cases := map[string]struct {
		module  debug.Module
		want    string
		checked bool
	}{
		"a module": {debug.Module{Path: "example.com/a", Version: "v1.0.0", Sum: sum},
			"example.com/a v1.0.0 pkg:golang/example.com/a@v1.0.0; the checksum is that of go.sum: " + sum, true},
		"capitals, which purl does not have": {debug.Module{Path: "github.com/Masterminds/Semver",
			Version: "v3.0.0+incompatible"},
			"github.com/Masterminds/Semver v3.0.0+incompatible " +
				"pkg:golang/github.com/masterminds/semver@v3.0.0%2Bincompatible", false},
		"another one in its place": {debug.Module{Path: "example.com/a", Version: "v1.0.0",
			Replace: &debug.Module{Path: "example.com/b", Version: "v2.0.0", Sum: sum}},
			"example.com/b v2.0.0 pkg:golang/example.com/b@v2.0.0; in place of example.com/a v1.0.0; the checksum " +
				"is that of go.sum: " + sum, true},
		"a directory in its place": {debug.Module{Path: "example.com/a", Version: "v1.0.0",
			Replace: &debug.Module{Path: "../somewhere", Version: "(devel)"}},
			"example.com/a v1.0.0 pkg:golang/example.com/a@v1.0.0; from a directory, in place of example.com/a v1.0.0",
			false},
		"no version": {debug.Module{Path: "example.com/a", Version: "(devel)"},
			"example.com/a (devel) pkg:golang/example.com/a", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := modulePackage(&c.module)
			got := p.Name + " " + p.Version + " " + p.References[0].Locator
			if p.Comment != "" {
				got += "; " + p.Comment
			}
			if got != c.want || c.checked != (len(p.Checksums) == 1) {
				t.Errorf("got %s with %v, want %s", got, p.Checksums, c.want)
			}
		})
	}
}
