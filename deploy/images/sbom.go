package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The parts of SPDX 2.3 that are needed here: https://spdx.github.io/spdx-spec/v2.3/
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Files         []spdxFile         `json:"files"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name             string         `json:"name"`
		ID               string         `json:"SPDXID"`
		Version          string         `json:"versionInfo,omitempty"`
		Purpose          string         `json:"primaryPackagePurpose,omitempty"`
		Download         string         `json:"downloadLocation"`
		FilesAnalyzed    bool           `json:"filesAnalyzed"`
		LicenseConcluded string         `json:"licenseConcluded"`
		LicenseDeclared  string         `json:"licenseDeclared"`
		Copyright        string         `json:"copyrightText"`
		Checksums        []spdxChecksum `json:"checksums,omitempty"`
		References       []spdxExternal `json:"externalRefs,omitempty"`
		Comment          string         `json:"comment,omitempty"`
	}
	spdxFile struct {
		Name             string         `json:"fileName"`
		ID               string         `json:"SPDXID"`
		Types            []string       `json:"fileTypes"`
		Checksums        []spdxChecksum `json:"checksums"`
		LicenseConcluded string         `json:"licenseConcluded"`
		Copyright        string         `json:"copyrightText"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxExternal struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const (
	spdxMediaType = "application/spdx+json"
	spdxSelf      = "SPDXRef-DOCUMENT"
	spdxBinary    = "SPDXRef-File-binary"
	nobodySays    = "NOASSERTION"
)

func (b binary) bomName() string {
	return b.program.name + strings.ReplaceAll("-"+b.platform.String(), "/", "-")
}

// bom lists the contents of an image: the binary with the modules in its build information, and the
// files beside it. The list follows from the binary and its labels, so that the same image has the
// same document.
func (b binary) bom(about map[string]string, created time.Time) ([]byte, error) {
	d := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: spdxSelf, Name: b.bomName(),
		Namespace: "https://spdx.org/spdxdocs/" + url.PathEscape(b.bomName()) + "-" + b.sha256,
		Creation:  spdxCreation{created.Format(time.RFC3339), []string{"Tool: " + self}},
		Files: []spdxFile{{
			Name: "." + binaries + "/" + b.program.name, ID: spdxBinary, Types: []string{"BINARY"},
			Checksums:        []spdxChecksum{{"SHA1", b.sha1}, {"SHA256", b.sha256}},
			LicenseConcluded: nobodySays, Copyright: nobodySays,
		}},
	}
	d.relate(spdxSelf, "DESCRIBES", spdxBinary)

	main := modulePackage(&b.info.Main)
	main.Purpose = "APPLICATION"
	if license := about[labelLicenses]; license != "" {
		main.LicenseDeclared = license
	}
	if source, revision := about[labelSource], b.setting("vcs.revision"); strings.HasPrefix(source, "https://") &&
		revision != "" {
		main.Download = "git+" + source + "@" + revision
	}
	program := d.add(main)
	d.relate(spdxSelf, "DESCRIBES", program)
	d.relate(spdxBinary, "GENERATED_FROM", program)

	d.relate(program, "DEPENDS_ON", d.add(goPackage(b.info.GoVersion)))
	for _, m := range b.info.Deps {
		d.relate(program, "DEPENDS_ON", d.add(modulePackage(m)))
	}

	certificates := modulePackage(&debug.Module{Path: "golang.org/x/crypto/x509roots/fallback",
		Version: rootsVersion()})
	certificates.Comment = "the certificates in " + rootsFile
	d.relate(spdxSelf, "DESCRIBES", d.add(certificates))
	zones := goPackage(b.info.GoVersion)
	zones.Name, zones.References, zones.Comment = "tzdata", nil,
		"the time zones in "+zonesFile+", as they come with "+b.info.GoVersion
	d.relate(spdxSelf, "DESCRIBES", d.add(zones))

	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(d)
	return out.Bytes(), err
}

func (d *spdxDocument) relate(element, how, related string) {
	d.Relationships = append(d.Relationships, spdxRelationship{element, how, related})
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// add gives a package an id of its own, and gives that back.
func (d *spdxDocument) add(p spdxPackage) string {
	p.ID = "SPDXRef-Package-" + strconv.Itoa(len(d.Packages)) + "-" + notInID.ReplaceAllString(p.Name, "-")
	d.Packages = append(d.Packages, p)
	return p.ID
}

func spdxPackageNamed(name string) spdxPackage {
	return spdxPackage{Name: name, Download: nobodySays, LicenseConcluded: nobodySays, LicenseDeclared: nobodySays,
		Copyright: nobodySays}
}

// modulePackage describes a module, or its replacement, if it has one.
func modulePackage(m *debug.Module) spdxPackage {
	comment := ""
	if m.Replace != nil {
		comment = "in place of " + strings.TrimSpace(m.Path+" "+m.Version)
		if r := m.Replace; r.Version == "" || r.Version == "(devel)" { // a directory, whose name says nothing to others
			m = &debug.Module{Path: m.Path, Version: m.Version}
			comment = "from a directory, " + comment
		} else {
			m = r
		}
	}
	p := spdxPackageNamed(m.Path)
	p.Version, p.Comment = m.Version, comment
	p.Purpose = "LIBRARY"
	p.References = []spdxExternal{{"PACKAGE-MANAGER", "purl", purl(m.Path, m.Version)}}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); m.Sum != "" && err == nil {
		p.Checksums = []spdxChecksum{{"SHA256", hex.EncodeToString(sum)}}
		p.Comment = strings.TrimPrefix(comment+"; the checksum is that of go.sum: "+m.Sum, "; ")
	}
	return p
}

// goPackage is the standard library and the runtime, under the name that the databases of
// vulnerabilities have for them.
func goPackage(version string) spdxPackage {
	p := spdxPackageNamed("stdlib")
	p.Version, p.Purpose, p.LicenseDeclared = version, "LIBRARY", "BSD-3-Clause"
	number, _, _ := strings.Cut(strings.TrimPrefix(version, "go"), " ") // experiments may follow
	p.References = []spdxExternal{{"PACKAGE-MANAGER", "purl", purl("stdlib", number)}}
	return p
}

// purl is the address of a Go module: https://github.com/package-url/purl-spec
func purl(path, version string) string {
	parts := strings.Split(strings.ToLower(path), "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	at := "pkg:golang/" + strings.Join(parts, "/")
	if version != "" && version != "(devel)" {
		at += "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
	}
	return at
}

// rootsVersion is the version of the module from which the certificates are, as this program was
// built with it.
func rootsVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "golang.org/x/crypto/x509roots/fallback" {
				return m.Version
			}
		}
	}
	return ""
}

// artifact is a manifest that holds one document and says to which image it belongs. Registries
// list it as a referrer of that image.
type artifact struct {
	manifest []byte
	document v1.Layer
}

var emptyConfig = []byte("{}")

func (a artifact) RawConfigFile() ([]byte, error)      { return emptyConfig, nil }
func (a artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a artifact) RawManifest() ([]byte, error)        { return a.manifest, nil }
func (a artifact) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	if d, err := a.document.Digest(); err != nil || d != h {
		return nil, fmt.Errorf("there is no %s: %w", h, err)
	}
	return a.document, nil
}

// attach makes the artifact with the bill of materials of an image.
func attach(bom []byte, image v1.Image, name string, created time.Time) (v1.Image, error) {
	subject, err := partial.Descriptor(image)
	if err != nil {
		return nil, err
	}
	document := static.NewLayer(bom, spdxMediaType)
	held, err := partial.Descriptor(document)
	if err != nil {
		return nil, err
	}
	held.Annotations = map[string]string{labelTitle: name + ".spdx.json"}
	digest, size, err := v1.SHA256(bytes.NewReader(emptyConfig))
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: spdxMediaType,
		Config: v1.Descriptor{MediaType: "application/vnd.oci.empty.v1+json", Digest: digest, Size: size,
			Data: emptyConfig},
		Layers:      []v1.Descriptor{*held},
		Subject:     &v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
		Annotations: map[string]string{labelCreated: created.Format(time.RFC3339)},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artifact{manifest, document})
}
