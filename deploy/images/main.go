// Command images builds container images of Go programs without a Docker engine: of the command
// line rondo, or of a program of yours. It is a module of its own, because the product does not
// need its dependencies. It imports nothing of the product and replaces nothing, so that `go run
// github.com/rondo-run/rondo/deploy/images@VERSION` works from anywhere.
//
//	main.go      the flags, and the order of the steps
//	platform.go  the target platforms
//	program.go   the selection of a program; go build, and the build information of the binary
//	layer.go     the files of an image
//	image.go     labels and settings of an image, and the index over its platforms
//	sbom.go      the contents of a binary as an SPDX document, and its attachment to the image
//	store.go     the directory with the result, tarballs, registries
//
// The same sources, the same Go and the same version of this command give the same bytes: there is
// no time in the result but that of the commit (or SOURCE_DATE_EPOCH), and no path of the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "images: %v\n", err)
		os.Exit(1)
	}
}

// order has the values of the flags and arguments.
type order struct {
	dir       string // where the go command runs
	packages  []string
	platforms []platform
	output    string
	tarballs  bool
	name, tag string // of the image; if empty, they follow from the program
	push      string
	labels    map[string]string
}

const usage = `Builds container images of Go programs, without a Docker engine.

    go run . [flags] [package ...]

Without a package, it builds the command line rondo, in a clone of Rondo. In a module of your own: go run github.com/rondo-run/rondo/deploy/images@VERSION ./cmd/orders

`

// readOrder understands the arguments.
func readOrder(args []string, problems io.Writer) (order, error) {
	o := order{labels: make(map[string]string)}
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.Usage = func() { fmt.Fprint(problems, usage); flags.PrintDefaults() }
	flags.StringVar(&o.dir, "C", ".", "the `directory` from which packages are looked for")
	flags.Func("platform",
		"for what to build, such as linux/arm64; several with commas, or said again (default linux/amd64,linux/arm64)",
		func(s string) error {
			more, err := parsePlatforms(s)
			o.platforms = append(o.platforms, more...)
			return err
		})
	flags.StringVar(&o.output, "output", "images",
		"the `directory` for the result, an OCI layout. What was built there before is replaced")
	flags.BoolVar(&o.tarballs, "tar", false,
		"also write a tarball for each platform into the directory, for docker load and podman load")
	flags.StringVar(&o.name, "name", "",
		"what the image is called, such as ghcr.io/me/orders (default the name of the program)")
	flags.StringVar(&o.tag, "tag", "", "its tag (default the version of the program)")
	flags.StringVar(&o.push, "push", "",
		"also push image and SBOM to a `reference`, such as ghcr.io/me/orders:v1; who you are is taken from where "+
			"docker login and podman login write it")
	flags.Func("label", "a label of your own, or another value for one, as `key=value`; no value takes it away",
		func(s string) error {
			key, value, ok := strings.Cut(s, "=")
			if !ok || key == "" {
				return errors.New("write key=value")
			}
			o.labels[key] = value
			return nil
		})
	if err := flags.Parse(args); err != nil {
		return order{}, err
	}
	o.packages = flags.Args()
	if o.platforms == nil {
		o.platforms, _ = parsePlatforms("linux/amd64,linux/arm64")
	}
	return o, o.check()
}

// check finds contradictions before anything is built.
func (o order) check() error {
	seen := make(map[string]bool)
	for _, p := range o.platforms {
		if seen[p.String()] {
			return fmt.Errorf("--platform says %s twice", p)
		}
		seen[p.String()] = true
	}
	for i, p := range o.packages {
		if strings.HasPrefix(p, "-") {
			return fmt.Errorf("%s stands behind the package %s: flags come first", p, o.packages[max(i-1, 0)])
		}
	}
	if len(o.packages) > 1 && (o.name != "" || o.push != "") {
		return errors.New("--name and --push are for one image: run this once for each package")
	}
	if o.name != "" {
		if _, err := name.NewRepository(o.name); err != nil {
			return fmt.Errorf("--name: %w", err)
		}
	}
	if o.tag != "" {
		if _, err := name.NewTag("x:" + o.tag); err != nil {
			return fmt.Errorf("--tag: %w", err)
		}
	}
	if o.push != "" {
		if _, err := name.ParseReference(o.push); err != nil {
			return fmt.Errorf("--push: %w", err)
		}
		if strings.Contains(o.push, "@") {
			return fmt.Errorf("--push %s: the digest follows from what is built; name a tag, or none", o.push)
		}
	}
	return checkOutput(o.output)
}

// product is a program with its images.
type product struct {
	program  program
	name     string // of the image
	tag      string
	index    v1.ImageIndex
	variants []variant
}

// variant is the image for one platform.
type variant struct {
	platform platform
	image    v1.Image
	size     int64  // of the binary
	bom      []byte // the SPDX document
	bill     v1.Image
}

func run(ctx context.Context, args []string, out, problems io.Writer) error {
	o, err := readOrder(args, problems)
	if err != nil {
		return err
	}
	programs, err := findPrograms(ctx, o.dir, o.packages)
	if err != nil {
		return err
	}
	if len(programs) > 1 && (o.name != "" || o.push != "") {
		return errors.New("--name and --push are for one image: run this once for each package")
	}
	scratch, err := os.MkdirTemp("", "images-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }() // the system empties its temporary directory

	var products []product
	for _, p := range programs {
		made, err := o.make(ctx, p, scratch, problems)
		if err != nil {
			return err
		}
		products = append(products, made)
	}
	if err := o.write(products); err != nil {
		return err
	}
	if err := tell(out, o, products); err != nil {
		return err
	}
	if o.push == "" {
		return nil
	}
	pushed, err := push(ctx, o.push, products[0])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "pushed %s\n", pushed)
	return err
}

// make builds a program and its images.
func (o order) make(ctx context.Context, p program, scratch string, problems io.Writer) (product, error) {
	var built []binary
	for _, at := range o.platforms {
		b, err := p.build(ctx, at, filepath.Join(scratch, p.name+strings.ReplaceAll("-"+at.String(), "/", "-")))
		if err != nil {
			return product{}, err
		}
		built = append(built, b)
	}
	with, err := settingsOfGo(ctx, p.dir)
	if err != nil {
		return product{}, err
	}
	if remark := built[0].remark(with.GOFLAGS); remark != "" {
		fmt.Fprintf(problems, "images: %s\n", remark)
	}
	created, err := creation(os.Getenv("SOURCE_DATE_EPOCH"), built[0].setting("vcs.time"))
	if err != nil {
		return product{}, err
	}
	about := built[0].labels(created)
	maps.Copy(about, o.labels)
	maps.DeleteFunc(about, func(_, value string) bool { return value == "" })
	common, err := commonFiles(with.GOROOT)
	if err != nil {
		return product{}, err
	}

	made := product{program: p, name: o.name, tag: o.tag}
	if made.name == "" {
		made.name = strings.ToLower(p.name)
	}
	if _, err := name.NewRepository(made.name); err != nil {
		return product{}, fmt.Errorf("%s cannot be the name of an image: %w; say another one with --name",
			made.name, err)
	}
	if made.tag == "" {
		made.tag = tagOf(about[labelVersion])
	}
	for _, b := range built {
		v, err := b.variant(common, about, created)
		if err != nil {
			return product{}, fmt.Errorf("the image of %s for %s: %w", p.name, b.platform, err)
		}
		made.variants = append(made.variants, v)
	}
	made.index, err = index(made.variants, about)
	return made, err
}

// tell prints the images that were built.
func tell(out io.Writer, o order, products []product) error {
	for _, p := range products {
		digest, err := p.index.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s:%s %s\n", p.name, p.tag, digest)
		for _, v := range p.variants {
			digest, err := v.image.Digest()
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "  %-14s %s, a binary of %.1f MiB\n", v.platform, digest, float64(v.size)/(1<<20))
		}
	}
	output, err := filepath.Abs(o.output)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "in %s\n", output)
	return err
}
