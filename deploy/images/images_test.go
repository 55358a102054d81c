package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestProgramFindsWhatItNeeds runs a user's program in the files of its image, as the user that the
// image names: certificates and time zones are there, and /tmp.
func TestProgramFindsWhatItNeeds(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("images are for Linux")
	}
	withCommits(t)
	dir, output := t.TempDir(), filepath.Join(t.TempDir(), "images")
	repository(t, dir, orders)
	_, problems := images(t, "-C", dir, "-output", output, "-platform", "linux/"+runtime.GOARCH, "./cmd/Orders")
	if problems != "" {
		t.Errorf("it complains: %s", problems)
	}
	image := imageFor(t, indexIn(t, output), runtime.GOARCH)
	u := unpack(t, image)
	checkSettings(t, image, "/usr/local/bin/Orders", runtime.GOARCH)
	checkFiles(t, u, "usr/local/bin/Orders")
	checkBill(t, output, image, "Orders-linux-"+runtime.GOARCH, "usr/local/bin/Orders",
		filepath.Join(u.dir, "usr/local/bin/Orders"))
	labels := labelsOf(t, image)
	want := map[string]string{
		labelTitle: "Orders", labelCreated: "2026-03-01T09:00:00Z",
		labelRevision: strings.TrimSpace(git(t, dir, "rev-parse", "HEAD")),
		labelVersion:  "v0.0.0-20260301090000-" + strings.TrimSpace(git(t, dir, "rev-parse", "HEAD"))[:12],
	}
	if !maps.Equal(labels, want) {
		t.Errorf("the labels are %v, want %v", labels, want)
	}

	found := make(map[string]any)
	if err := json.Unmarshal(runInside(t, u.dir, image), &found); err != nil {
		t.Fatal(err)
	}
	expected := map[string]any{"berlin": "+02:00", "roots": true, "temporary": true, "user": "nonroot 65532 65532 /",
		"directory": "/", "may write": false}
	if !maps.Equal(found, expected) {
		t.Errorf("the program found %v, want %v", found, expected)
	}
}

// runInside runs the entrypoint of an image with the image's files as all there is. That takes
// root's rights, or a namespace in which one has them.
func runInside(t *testing.T, root string, image v1.Image) []byte {
	t.Helper()
	c, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if err := openWay(root); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), c.Config.Entrypoint[0])
	cmd.Path, cmd.Dir, cmd.Env = c.Config.Entrypoint[0], c.Config.WorkingDir, append(c.Config.Env, "HOME=/")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.Credential.NoSetGroups = true
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.Output()
	if os.IsPermission(err) {
		t.Skipf("this machine lets nobody change the root directory, so the program cannot run in its image: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// openWay lets others than the owner reach a directory of a test.
func openWay(dir string) error {
	for ; dir != filepath.Clean(os.TempDir()) && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if err := os.Chmod(dir, info.Mode().Perm()|0o555); err != nil {
			return err
		}
	}
	return nil
}

// TestSameSourceSameBytes builds one commit in two directories, and compares all that comes out.
func TestSameSourceSameBytes(t *testing.T) {
	withCommits(t)
	var all []map[string]string
	var says []string
	for _, where := range []string{"a", "b/c/d"} {
		dir := filepath.Join(t.TempDir(), filepath.FromSlash(where))
		repository(t, dir, orders)
		output := filepath.Join(dir, "result")
		said, _ := images(t, "-C", dir, "-output", output, "-tar", "-platform", "linux/arm64,linux/amd64,linux/arm/v7",
			"./cmd/Orders")
		all, says = append(all, contents(t, output)), append(says, strings.ReplaceAll(said, output, ""))
		// The first result lies in the repository by now, and changes nothing.
		images(t, "-C", dir, "-output", output, "-tar", "-platform", "linux/arm64,linux/amd64", "-platform",
			"linux/arm/v7", "./cmd/Orders")
		all = append(all, contents(t, output))
	}
	for i := range all {
		if !maps.Equal(all[i], all[0]) {
			t.Errorf("result %d is not the first one:\n%q\n%q", i, slices.Sorted(maps.Keys(all[i])),
				slices.Sorted(maps.Keys(all[0])))
		}
	}
	if says[0] != says[1] || !strings.Contains(says[0], "linux/arm/v7") {
		t.Errorf("it says\n%s, and\n%s", says[0], says[1])
	}

	// Another SOURCE_DATE_EPOCH changes only the time.
	dir, output := t.TempDir(), filepath.Join(t.TempDir(), "result")
	repository(t, dir, orders)
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	images(t, "-C", dir, "-output", output, "-platform", "linux/arm64", "./cmd/Orders")
	image := imageFor(t, indexIn(t, output), "arm64")
	if got := labelsOf(t, image)[labelCreated]; got != "2001-09-09T01:46:40Z" {
		t.Errorf("it was created %s", got)
	}
	if got := unpack(t, image).headers["tmp/"].ModTime.Unix(); got != 1000000000 {
		t.Errorf("the files are of %d", got)
	}
	if got := readBill(t, mustRead(t, filepath.Join(output, "sbom",
		"Orders-linux-arm64.spdx.json"))).Creation.Created; got != "2001-09-09T01:46:40Z" {
		t.Errorf("the SBOM is of %s", got)
	}
}

func TestWithoutCommits(t *testing.T) {
	withCommits(t)
	t.Setenv("GOFLAGS", "-buildvcs=false")
	dir, output := t.TempDir(), filepath.Join(t.TempDir(), "result")
	repository(t, dir, orders)
	said, problems := images(t, "-C", dir, "-output", output, "-platform", "linux/amd64", "./cmd/Orders")
	if !strings.HasPrefix(said, "orders:latest sha256:") ||
		!strings.Contains(problems, "GOFLAGS says -buildvcs=false") {
		t.Errorf("it says %q, and complains %q", said, problems)
	}
	want := map[string]string{labelTitle: "Orders", labelCreated: "1970-01-01T00:00:00Z"}
	if got := labelsOf(t, imageFor(t, indexIn(t, output), "amd64")); !maps.Equal(got, want) {
		t.Errorf("the labels are %v, want %v", got, want)
	}
}

func TestChangesThatAreNotCommitted(t *testing.T) {
	withCommits(t)
	dir := t.TempDir()
	repository(t, dir, orders)
	if err := os.WriteFile(filepath.Join(dir, "new.txt"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	said, problems := images(t, "-C", dir, "-output", filepath.Join(t.TempDir(), "x"), "-platform", "linux/amd64",
		"./cmd/Orders")
	if !strings.Contains(problems, "not committed") || !strings.Contains(said, "-dirty sha256:") {
		t.Errorf("it says %q, and complains %q", said, problems)
	}
}

// TestTarballs reads what docker load and podman load read.
func TestTarballs(t *testing.T) {
	withCommits(t)
	dir, output := t.TempDir(), filepath.Join(t.TempDir(), "images")
	repository(t, dir, orders)
	images(t, "-C", dir, "-output", output, "-tar", "-platform", "linux/amd64,linux/arm64", "-name",
		"registry.example.com/shop/orders", "-tag", "v7",
		"-label", labelSource+"=https://example.com/orders", "-label", labelRevision+"=", "./cmd/Orders")
	tag, err := name.NewTag("registry.example.com/shop/orders:v7")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		loaded, err := tarball.ImageFromPath(filepath.Join(output, "tar", "Orders-linux-"+arch+".tar"), &tag)
		if err != nil {
			t.Fatal(err)
		}
		got, err := loaded.ConfigName()
		if err != nil {
			t.Fatal(err)
		}
		if want, err := imageFor(t, indexIn(t, output), arch).ConfigName(); err != nil || got != want {
			t.Errorf("the tarball for %s has the image %s, the layout %s (%v)", arch, got, want, err)
		}
		checkFiles(t, unpack(t, loaded), "usr/local/bin/Orders")
		labels := labelsOf(t, loaded)
		if labels[labelSource] != "https://example.com/orders" || labels[labelRevision] != "" ||
			labels[labelTitle] != "Orders" {
			t.Errorf("the labels are %v", labels)
		}
	}
}

// quiet lets a registry not log every request.
var quiet = registry.Logger(log.New(io.Discard, "", 0))

// TestPush pushes to a registry that lists what refers to an image, and to one that does not know
// of that.
func TestPush(t *testing.T) {
	withCommits(t)
	dir := t.TempDir()
	repository(t, dir, orders)
	for what, options := range map[string][]registry.Option{"lists referrers": {registry.WithReferrersSupport(true)},
		"does not": nil} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(registry.New(append(options, quiet)...))
			defer server.Close()
			repo := strings.TrimPrefix(server.URL, "http://") + "/shop/orders"
			output := filepath.Join(t.TempDir(), "images")
			said, _ := images(t, "-C", dir, "-output", output, "-platform", "linux/amd64,linux/arm64", "-push",
				repo+":v3", "./cmd/Orders")
			digest, err := indexIn(t, output).Digest()
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(said, "pushed "+repo+"@"+digest.String()+"\n") {
				t.Errorf("it says %q", said)
			}
			ref, err := name.NewTag(repo + ":v3")
			if err != nil {
				t.Fatal(err)
			}
			pulled, err := remote.Index(ref)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := pulled.Digest(); err != nil || got != digest {
				t.Errorf("the registry has %s (%v), want %s", got, err, digest)
			}
			get := func(h v1.Hash) (v1.Image, error) { return remote.Image(ref.Context().Digest(h.String())) }
			for _, arch := range []string{"amd64", "arm64"} {
				image := imageFor(t, pulled, arch)
				checkFiles(t, unpack(t, image), "usr/local/bin/Orders")
				subject, err := image.Digest()
				if err != nil {
					t.Fatal(err)
				}
				bills, err := remote.Referrers(ref.Context().Digest(subject.String()))
				if err != nil {
					t.Fatal(err)
				}
				want := mustRead(t, filepath.Join(output, "sbom", "Orders-linux-"+arch+".spdx.json"))
				if got := referring(t, bills, image, get); !bytes.Equal(got, want) {
					t.Errorf("the SBOM for %s is another one than in the directory", arch)
				}
			}
		})
	}
}

func TestPushWithoutTag(t *testing.T) {
	withCommits(t)
	dir := t.TempDir()
	repository(t, dir, orders)
	server := httptest.NewServer(registry.New(quiet))
	defer server.Close()
	repo := strings.TrimPrefix(server.URL, "http://") + "/orders"
	images(t, "-C", dir, "-output", filepath.Join(t.TempDir(), "x"), "-platform", "linux/amd64", "-push", repo,
		"./cmd/Orders")
	r, err := name.NewRepository(repo)
	if err != nil {
		t.Fatal(err)
	}
	tags, err := remote.List(r)
	if err != nil {
		t.Fatal(err)
	}
	want := "v0.0.0-20260301090000-" + strings.TrimSpace(git(t, dir, "rev-parse", "HEAD"))[:12]
	if !slices.Contains(tags, want) || slices.Contains(tags, "latest") {
		t.Errorf("the tags are %q, want %s", tags, want)
	}

	server.Close()
	var out, problems bytes.Buffer
	err = run(t.Context(), []string{"-C", dir, "-output", filepath.Join(t.TempDir(), "x"), "-platform", "linux/amd64",
		"-push", repo, "./cmd/Orders"}, &out, &problems)
	if err == nil || !strings.Contains(err.Error(), "pushing to "+repo) {
		t.Errorf("pushing to nobody: %v", err)
	}
}

// TestSeveralPrograms puts two programs into one directory, each with a name.
func TestSeveralPrograms(t *testing.T) {
	withCommits(t)
	files := maps.Clone(orders)
	files["cmd/ledger/v2/main.go"] = "package main\n\nfunc main() {}\n"
	dir, output := t.TempDir(), filepath.Join(t.TempDir(), "images")
	repository(t, dir, files)
	images(t, "-C", dir, "-output", output, "-platform", "linux/amd64", "./...")
	l, err := layout.ImageIndexFromPath(output)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	version := "v0.0.0-20260301090000-" + strings.TrimSpace(git(t, dir, "rev-parse", "HEAD"))[:12]
	var names []string
	for _, d := range m.Manifests {
		if ref := d.Annotations[labelRef]; ref != "" {
			names = append(names, ref)
		}
	}
	if want := []string{"Orders-" + version, "ledger-" + version}; !slices.Equal(names, want) {
		t.Errorf("the images are %q, want %q", names, want)
	}
	var out, problems bytes.Buffer
	err = run(t.Context(), []string{"-C", dir, "-output", output, "-push", "localhost:1/x", "./..."}, &out, &problems)
	if err == nil || !strings.Contains(err.Error(), "are for one image") {
		t.Errorf("pushing two: %v", err)
	}
}

// TestResultIsReplaced makes sure that a build removes the result of the build before, and no files
// of the user.
func TestResultIsReplaced(t *testing.T) {
	withCommits(t)
	dir, output := t.TempDir(), filepath.Join(t.TempDir(), "deep", "images")
	repository(t, dir, orders)
	images(t, "-C", dir, "-output", output, "-tar", "-platform", "linux/amd64", "./cmd/Orders")
	before := contents(t, output)
	images(t, "-C", dir, "-output", output, "-platform", "linux/arm64", "./cmd/Orders")
	for name := range contents(t, output) {
		if _, there := before[name]; there && strings.HasPrefix(name, "blobs/sha256/") &&
			!strings.HasPrefix(name, "blobs/sha256/44136fa3") {
			t.Errorf("%s is still there; only {} should be", name)
		}
		if strings.HasPrefix(name, "tar") {
			t.Errorf("%s is still there", name)
		}
	}
	if all, err := os.ReadDir(filepath.Dir(output)); err != nil || len(all) != 1 {
		t.Errorf("beside the result is something else: %v %v", all, err)
	}

	mine := filepath.Join(output, "mine.txt")
	if err := os.WriteFile(mine, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, problems bytes.Buffer
	err := run(t.Context(), []string{"-C", dir, "-output", output, "./cmd/Orders"}, &out, &problems)
	if err == nil || !strings.Contains(err.Error(), "mine.txt, which is not from here") {
		t.Errorf("with something else in it: %v", err)
	}
	if string(mustRead(t, mine)) != "mine" {
		t.Error("the file was changed")
	}
}

func TestWrongInput(t *testing.T) {
	withCommits(t)
	dir := t.TempDir()
	files := maps.Clone(orders)
	files["cmd/broken/main.go"] = "package main\n\nfunc main() { missing() }\n"
	files["other/Orders/main.go"] = "package main\n\nfunc main() {}\n"
	repository(t, dir, files)
	nowhere, full := t.TempDir(), t.TempDir()
	file := filepath.Join(full, "blobs")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		args []string
		want string
	}{
		"no package": {nil, "which program? Name its package, such as ./cmd/orders"},
		"no program": {[]string{"./prices"},
			"example.com/orders/prices is package prices, which is no program"},
		"no program in many": {[]string{"./prices/..."}, "there is no program in"},
		"no such package":    {[]string{"./cmd/nobody"}, "looking for"},
		"an unknown package": {[]string{"example.org/other"},
			"no required module provides package example.org/other"},
		"a file":           {[]string{"cmd/Orders/main.go"}, "is a file: name the directory"},
		"does not compile": {[]string{"-platform", "linux/amd64", "./cmd/broken"}, "undefined: missing"},
		"one name for two": {[]string{"./cmd/Orders", "./other/Orders"}, "would both be called Orders"},
		"no module":        {[]string{"-C", nowhere, "./x"}, "is in no Go module"},
		"another system":   {[]string{"-platform", "windows/amd64"}, "images are for Linux"},
		"an unknown machine": {[]string{"-platform", "linux/pdp11"},
			"there is no platform linux/pdp11; there are linux/386, linux/amd64,"},
		"an unknown variant": {[]string{"-platform", "linux/arm/v9"}, "there is no platform linux/arm/v9"},
		"an empty platform":  {[]string{"-platform", "linux/amd64,"}, "a platform is missing"},
		"a platform twice":   {[]string{"-platform", "linux/arm64,linux/arm64/v8"}, "says linux/arm64 twice"},
		"an unknown flag":    {[]string{"-nothing"}, "flag provided but not defined"},
		"a flag behind":      {[]string{"./cmd/Orders", "-tar"}, "flags come first"},
		"a directory in use": {[]string{"-output", dir, "./cmd/Orders"},
			"which is not from here, and the directory would be replaced"},
		"a directory like ours":  {[]string{"-output", full, "./cmd/Orders"}, "is not empty, and no OCI layout"},
		"a file for a directory": {[]string{"-output", file, "./cmd/Orders"}, "--output"},
		"no reference":           {[]string{"-push", "UPPER/x", "./cmd/Orders"}, "--push"},
		"a digest to push to": {[]string{"-push", "localhost/x@sha256:" + strings.Repeat("0", 64), "./cmd/Orders"},
			"the digest follows from what is built"},
		"a name that is none":  {[]string{"-name", "a b", "./cmd/Orders"}, "--name"},
		"a tag that is none":   {[]string{"-tag", "a+b", "./cmd/Orders"}, "--tag"},
		"a label that is none": {[]string{"-label", "alone", "./cmd/Orders"}, "write key=value"},
		"two to push": {[]string{"-push", "localhost/x", "./cmd/Orders", "./other/Orders"},
			"run this once for each package"},
	}
	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			var out, problems bytes.Buffer
			output := filepath.Join(t.TempDir(), "images")
			err := run(t.Context(), append([]string{"-C", dir, "-output", output}, c.args...), &out, &problems)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if _, err := os.Stat(output); !os.IsNotExist(err) {
				t.Errorf("something was written: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWrongEpoch(t *testing.T) {
	for _, epoch := range []string{"yesterday", "-1", "1.5"} {
		if _, err := creation(epoch, ""); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
			t.Errorf("%q: %v", epoch, err)
		}
	}
}

// TestNotStatic makes sure that a program that needs a loader never gets into an image.
func TestNotStatic(t *testing.T) {
	withCommits(t)
	t.Setenv("GOFLAGS", "-buildvcs=false -buildmode=pie")
	dir := t.TempDir()
	repository(t, dir, orders)
	var out, problems bytes.Buffer
	err := run(t.Context(), []string{"-C", dir, "-output", filepath.Join(t.TempDir(), "x"), "-platform", "linux/amd64",
		"./cmd/Orders"}, &out, &problems)
	if err == nil || !strings.Contains(err.Error(), "it is not static") {
		t.Errorf("got %v", err)
	}
}

func TestTags(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "v1.2.3", "v1.2.3+dirty": "v1.2.3-dirty", "": "latest", "-.x": "x",
		strings.Repeat("a", 200): strings.Repeat("a", 128),
	} {
		if got := tagOf(version); got != want {
			t.Errorf("%q becomes %q, want %q", version, got, want)
		}
	}
}

// TestModuleReplacesNothing keeps `go run github.com/rondo-run/rondo/deploy/images@VERSION`
// working, which Go refuses for a module that replaces others.
func TestModuleReplacesNothing(t *testing.T) {
	if strings.Contains(string(mustRead(t, "go.mod")), "replace") {
		t.Error("go.mod replaces something")
	}
}

// TestDockerfile makes sure that the image of the Dockerfile says the same of itself.
func TestDockerfile(t *testing.T) {
	text := string(mustRead(t, "Dockerfile"))
	_, last, found := strings.Cut(text, "\nFROM scratch\n")
	if !found {
		t.Fatal("the last stage is not from scratch")
	}
	b := binary{program: program{path: stock, name: "rondo"}, info: new(buildinfo.BuildInfo)}
	b.info.Main.Path = rondo
	lines := []string{
		`ENTRYPOINT ["/usr/local/bin/rondo"]`, "USER 65532:65532", "WORKDIR /",
		"ENV PATH=/usr/local/bin ZONEINFO=/usr/share/zoneinfo.zip",
		labelVersion + `="$VERSION"`, labelRevision + `="$REVISION"`, labelCreated + `="$CREATED"`,
	}
	for _, key := range []string{labelTitle, labelSource, labelDescription, labelLicenses} {
		lines = append(lines, key+`="`+b.labels(time.Unix(0, 0))[key]+`"`)
	}
	for _, want := range lines {
		if !strings.Contains(last, want) {
			t.Errorf("the last stage does not say %s", want)
		}
	}
	common, err := commonFiles(goroot(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range common {
		if f.name == "etc/passwd" || f.name == "etc/group" {
			if quoted := "'" + strings.ReplaceAll(string(f.content), "\n",
				`\n`) + "' >/image/" + f.name; !strings.Contains(text, quoted) {
				t.Errorf("the Dockerfile does not write %s", quoted)
			}
		}
	}
	if !strings.Contains(text, "CGO_ENABLED=0") || !strings.Contains(text, "-trimpath -ldflags='-s -w -buildid='") ||
		!strings.Contains(text, "FROM --platform=$BUILDPLATFORM golang:1.26 AS build") {
		t.Error("the Dockerfile builds the program in another way")
	}
}

func readAll(t *testing.T, r io.Reader) []byte {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func goroot(t *testing.T) string {
	t.Helper()
	s, err := settingsOfGo(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	return s.GOROOT
}
