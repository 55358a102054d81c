package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// labelRef is where a layout says how its images are called.
const labelRef = "org.opencontainers.image.ref.name"

// The names in the directory with the result, besides those of every OCI layout. Git must not see
// the directory: Go calls a program modified if there are files that git does not know, so the next
// image would be another one.
const (
	ignored = ".gitignore"
	boms    = "sbom"
	tars    = "tar"
)

// checkOutput makes sure that nothing is lost when the directory is replaced.
func checkOutput(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0:
		return nil
	case err != nil:
		return fmt.Errorf("--output: %w", err)
	}
	known, layout := []string{ignored, "blobs", "index.json", "oci-layout", boms, tars}, false
	for _, e := range entries {
		layout = layout || e.Name() == "oci-layout"
		if !slices.Contains(known, e.Name()) {
			return fmt.Errorf("--output: in %s is %s, which is not from here, and the directory would be replaced: "+
				"name another one, or remove it", dir, e.Name())
		}
	}
	if !layout {
		return fmt.Errorf("--output: %s is not empty, and no OCI layout: name another directory, or remove it", dir)
	}
	return nil
}

// write creates the directory with the result. The previous result stays until the new one is
// complete.
func (o order) write(products []product) (err error) {
	output, err := filepath.Abs(o.output)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(output), "."+filepath.Base(output)+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	if err := os.WriteFile(filepath.Join(fresh, ignored), []byte("*\n"), 0o644); err != nil {
		return err
	}
	if err := writeLayout(fresh, products); err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	if err := writeDocuments(filepath.Join(fresh, boms), products); err != nil {
		return fmt.Errorf("writing the SBOM: %w", err)
	}
	if o.tarballs {
		if err := writeTarballs(filepath.Join(fresh, tars), products); err != nil {
			return fmt.Errorf("writing the tarballs: %w", err)
		}
	}
	if err := open(fresh); err != nil {
		return err
	}
	if err := checkOutput(output); err != nil { // again: building takes its time
		return err
	}
	if err := os.RemoveAll(output); err != nil {
		return err
	}
	return os.Rename(fresh, output)
}

// open makes all files of a directory readable for all users, and none executable. Without that,
// blobs would be readable for their owner only.
func open(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(name, 0o755)
		}
		return os.Chmod(name, 0o644)
	})
}

func writeLayout(dir string, products []product) error {
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	for _, p := range products {
		ref := p.tag
		if len(products) > 1 {
			ref = p.program.name + "-" + ref
		}
		if err := l.AppendIndex(p.index, layout.WithAnnotations(map[string]string{labelRef: ref})); err != nil {
			return err
		}
	}
	for _, p := range products {
		for _, v := range p.variants {
			if err := l.AppendImage(v.bill); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeDocuments(dir string, products []product) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, p := range products {
		for _, v := range p.variants {
			if err := os.WriteFile(filepath.Join(dir, v.fileName(p)+".spdx.json"), v.bom, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeTarballs makes a file for each platform, as docker load needs it.
func writeTarballs(dir string, products []product) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, p := range products {
		tag, err := name.NewTag(p.name + ":" + p.tag)
		if err != nil {
			return err
		}
		for _, v := range p.variants {
			if err := tarball.WriteToFile(filepath.Join(dir, v.fileName(p)+".tar"), tag, v.image); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v variant) fileName(p product) string {
	return binary{program: p.program, platform: v.platform}.bomName()
}

// push sends the images of a product to a registry, and after them their bills of materials, which
// refer to them. The digest is what it gives.
func push(ctx context.Context, to string, p product) (string, error) {
	ref, err := name.ParseReference(to, name.WithDefaultTag(p.tag))
	if err != nil {
		return "", err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(ref, p.index, options...); err != nil {
		return "", fmt.Errorf("pushing to %s: %w", ref, err)
	}
	for _, v := range p.variants {
		if err := pushBill(ref, v.bill, options); err != nil {
			return "", fmt.Errorf("%s is pushed, but not its SBOM for %s: %w", ref, v.platform, err)
		}
	}
	digest, err := p.index.Digest()
	return ref.Context().Digest(digest.String()).String(), err
}

func pushBill(ref name.Reference, bill v1.Image, options []remote.Option) error {
	digest, err := bill.Digest()
	if err != nil {
		return err
	}
	return remote.Write(ref.Context().Digest(digest.String()), bill, options...)
}
