package main

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The labels. They are annotations, too, because some tools look at the one and some at the other.
const (
	labelTitle       = "org.opencontainers.image.title"
	labelDescription = "org.opencontainers.image.description"
	labelSource      = "org.opencontainers.image.source"
	labelVersion     = "org.opencontainers.image.version"
	labelRevision    = "org.opencontainers.image.revision"
	labelCreated     = "org.opencontainers.image.created"
	labelLicenses    = "org.opencontainers.image.licenses"
)

// labels are the labels of an image. Only those of Rondo's own programs have a source, a license
// and a description: this command does not know them of a user's program.
func (b binary) labels(created time.Time) map[string]string {
	all := map[string]string{
		labelTitle:    b.program.name,
		labelCreated:  created.Format(time.RFC3339),
		labelRevision: b.setting("vcs.revision"),
	}
	if v := b.info.Main.Version; v != "(devel)" {
		all[labelVersion] = v
	}
	if b.info.Main.Path == rondo {
		all[labelSource] = "https://" + rondo
		all[labelLicenses] = "Apache-2.0"
		all[labelDescription] = "Durable execution over NATS JetStream and PostgreSQL, CockroachDB or SQLite"
	}
	return all
}

var noTag = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// tagOf makes a tag of a version. A tag cannot have a plus.
func tagOf(version string) string {
	tag := strings.TrimLeft(noTag.ReplaceAllString(version, "-"), ".-")
	if tag == "" {
		return "latest"
	}
	return tag[:min(len(tag), 128)]
}

// variant makes the image of a binary, and its bill of materials.
func (b binary) variant(common []file, about map[string]string, created time.Time) (variant, error) {
	entrypoint := path.Join(binaries, b.program.name)
	files := append(slices.Clone(common), file{entrypoint[1:], 0o755, b.content})
	slices.SortFunc(files, func(x, y file) int { return strings.Compare(x.name, y.name) })
	packed, err := layer(files, created)
	if err != nil {
		return variant{}, err
	}
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON), &v1.ConfigFile{
		OS: "linux", Architecture: b.platform.arch, Variant: b.platform.variant, Created: v1.Time{Time: created},
		Config: v1.Config{
			Entrypoint: []string{entrypoint},
			User:       strconv.Itoa(user) + ":" + strconv.Itoa(user),
			WorkingDir: "/",
			Env:        []string{"PATH=" + binaries, "ZONEINFO=" + zonesFile},
			Labels:     about,
		},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return variant{}, err
	}
	image, err = mutate.Append(image, mutate.Addendum{Layer: packed, MediaType: types.OCILayer, History: v1.History{
		Created: v1.Time{Time: created}, CreatedBy: self, Comment: b.program.path,
	}})
	if err != nil {
		return variant{}, err
	}
	image = mutate.Annotations(image, about).(v1.Image)

	bom, err := b.bom(about, created)
	if err != nil {
		return variant{}, err
	}
	bill, err := attach(bom, image, b.bomName(), created)
	return variant{platform: b.platform, image: image, size: int64(len(b.content)), bom: bom, bill: bill}, err
}

// index has the images of all platforms.
func index(variants []variant, about map[string]string) (v1.ImageIndex, error) {
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, v := range variants {
		all = mutate.AppendManifests(all,
			mutate.IndexAddendum{Add: v.image, Descriptor: v1.Descriptor{Platform: v.platform.described()}})
	}
	all = mutate.Annotations(all, about).(v1.ImageIndex)
	_, err := all.Digest() // returns the errors of all steps before
	return all, err
}
