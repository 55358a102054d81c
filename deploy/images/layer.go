package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user id that runs the program. It owns no file.
const user = 65532

const (
	binaries  = "/usr/local/bin"
	rootsFile = "/etc/ssl/certs/ca-certificates.crt" // where Go looks first
	zonesFile = "/usr/share/zoneinfo.zip"            // where the variable ZONEINFO leads
)

// file is a file of an image, or a directory, which has a name with a slash at the end.
type file struct {
	name    string // from the root, without a slash before it
	mode    int64
	content []byte
}

// commonFiles are the files that do not depend on the program, in the order of their names. Every
// one of them belongs to root, so that the program can change none.
func commonFiles(goroot string) ([]file, error) {
	zones, err := timeZones(goroot)
	if err != nil {
		return nil, err
	}
	return []file{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", user)},
		{"etc/passwd", 0o644, fmt.Appendf(nil,
			"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/:/sbin/nologin\n", user, user)},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{rootsFile[1:], 0o644, roots()},
		{"tmp/", 0o1777, nil},
		{"usr/", 0o755, nil},
		{"usr/local/", 0o755, nil},
		{binaries[1:] + "/", 0o755, nil},
		{"usr/share/", 0o755, nil},
		{zonesFile[1:], 0o644, zones},
	}, nil
}

// roots are the certificate authorities that Mozilla trusts, as PEM. Those that are trusted only
// for certificates signed before some day are left out: a file of certificates cannot express that.
func roots() []byte {
	var b bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}))
		}
	}
	return b.Bytes()
}

// timeZones is the file of time zones that comes with Go: that of the Go that builds the program.
func timeZones(goroot string) ([]byte, error) {
	zones, err := os.ReadFile(filepath.Join(goroot, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, fmt.Errorf("the time zones of Go: %w (the Go of https://go.dev/dl has them)", err)
	}
	return zones, nil
}

// layer packs files. All of them are from the same moment.
func layer(files []file, at time.Time) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at,
			Format: tar.FormatUSTAR}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	},
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression),
		tarball.WithCompressedCaching)
}
