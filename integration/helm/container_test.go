package helm

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// This file does the work of a kubelet for a Pod, as far as a program can observe it: its files,
// its variables, its arguments, its user, its network, its probes and its end. A container is a
// process in a root directory and a network of its own, without any other isolation.

// patience is how long something may take that does not depend on how fast the machine is.
const patience = 2 * time.Minute

// image is an image of the layout that deploy/images writes.
type image struct {
	dir    string // unpacked
	config struct {
		Entrypoint, Cmd, Env []string
		User, WorkingDir     string
	}
}

// blob reads a part of an OCI layout.
func blob(t testing.TB, layout, digest string, into any) []byte {
	t.Helper()
	algorithm, hex, _ := strings.Cut(digest, ":")
	data, err := os.ReadFile(filepath.Join(layout, "blobs", algorithm, hex))
	if err == nil && into != nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type descriptor struct {
	Digest   string
	Platform struct{ OS, Architecture string }
}

// unpack unpacks the image for a platform, and only that one, as a kubelet's runtime would.
func unpack(t testing.TB, layout, architecture string) *image {
	t.Helper()
	var index, images struct{ Manifests []descriptor }
	data, err := os.ReadFile(filepath.Join(layout, "index.json"))
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err != nil {
		t.Fatal(err)
	}
	blob(t, layout, index.Manifests[0].Digest, &images)
	for _, m := range images.Manifests {
		if m.Platform.OS != "linux" || m.Platform.Architecture != architecture {
			continue
		}
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		blob(t, layout, m.Digest, &manifest)
		i := &image{dir: t.TempDir()}
		var config struct{ Config any }
		config.Config = &i.config
		blob(t, layout, manifest.Config.Digest, &config)
		for _, l := range manifest.Layers {
			unpackLayer(t, blob(t, layout, l.Digest, nil), i.dir)
		}
		return i
	}
	t.Fatalf("the layout %s has no image for linux/%s", layout, architecture)
	return nil
}

func unpackLayer(t testing.TB, data []byte, dir string) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(plain)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.Clean("/"+h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, 0o755)
		case tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(files); err == nil {
				err = writeFile(name, content, 0o600)
			}
		default:
			err = fmt.Errorf("%s is of type %c", h.Name, h.Typeflag)
		}
		if err == nil {
			err = errors.Join(os.Chown(name, h.Uid, h.Gid), os.Chmod(name, h.FileInfo().Mode()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func writeFile(name string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(name, content, mode); err != nil {
		return err
	}
	return os.Chmod(name, mode) // whatever the mask says
}

// node is the surroundings of Pods.
type node struct {
	t       testing.TB
	release *Rendering
	images  map[string]*image            // by what a Pod calls them, up to the tag
	secrets map[string]map[string]string // that are there beside the release
	network *network
}

// container is a Pod's only container.
type container struct {
	t    testing.TB
	name string
	meta map[string]string // the annotations of the Pod
	pod  corev1.PodSpec
	spec corev1.Container
	cmd  *exec.Cmd
	*image

	node      *network
	addresses []string // in the network of the node

	ended chan struct{}
	mu    sync.Mutex
	log   bytes.Buffer
}

func (c *container) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

// said returns the output of the container.
func (c *container) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

// start starts a Pod of an object, if need be with other arguments.
func (n *node) start(o Object, args ...string) *container {
	n.t.Helper()
	name := o.Metadata.Name
	pod, err := o.Pods()
	if err != nil {
		n.t.Fatal(err)
	}
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.Containers[0].EnvFrom) > 0 {
		n.t.Fatalf("%s has %d containers, or variables from where nothing is known of here", name,
			len(pod.Spec.Containers))
	}
	c := &container{t: n.t, name: name, meta: pod.Annotations, pod: pod.Spec, spec: pod.Spec.Containers[0],
		node: n.network, ended: make(chan struct{})}
	reference, _, _ := strings.Cut(c.spec.Image, ":")
	if c.image = n.images[reference]; c.image == nil {
		n.t.Fatalf("%s: there is no image %s", name, c.spec.Image)
	}
	root, err := n.root(c)
	if err != nil {
		n.t.Fatal(err)
	}
	own, err := n.release.variables(o, c.spec, n.secrets)
	if err != nil {
		n.t.Fatal(err)
	}
	var inside *namespace
	inside, c.addresses = n.network.join()
	env := append(append(slices.Clone(c.config.Env), "HOSTNAME="+name), own...)
	command, usual := c.config.Entrypoint, c.config.Cmd
	if len(c.spec.Command) > 0 {
		command, usual = c.spec.Command, nil
	}
	if len(args) == 0 {
		args = expand(c.spec.Args, own)
	}
	if len(args) == 0 {
		args = usual
	}
	uid, gid, more := c.user()
	c.cmd = &exec.Cmd{
		Path: command[0], Args: append(append([]string(nil), command...), args...), Env: env,
		Dir: cmp.Or(c.spec.WorkingDir, c.config.WorkingDir, "/"), Stdout: c, Stderr: c,
		SysProcAttr: &syscall.SysProcAttr{Chroot: root, Setpgid: true, Pdeathsig: syscall.SIGKILL,
			Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: more}},
	}
	if err := inside.within(c.cmd.Start); err != nil {
		n.t.Fatalf("%s: %v", name, err)
	}
	go func() {
		_ = c.cmd.Wait() // how it ended is in ProcessState
		close(c.ended)
	}()
	n.t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it may have ended
		<-c.ended
		if n.t.Failed() {
			n.t.Logf("%s said:\n%s", name, c.said())
		}
	})
	return c
}

// user returns the user and the groups of the process.
func (c *container) user() (uid, gid uint32, more []uint32) {
	pod, own := c.pod.SecurityContext, c.spec.SecurityContext
	pick := func(own, pod *int64) uint32 {
		if own == nil {
			own = pod
		}
		if own == nil {
			c.t.Fatalf("%s does not say who runs it", c.name)
		}
		return uint32(*own)
	}
	if pod.FSGroup != nil {
		more = append(more, uint32(*pod.FSGroup))
	}
	return pick(own.RunAsUser, pod.RunAsUser), pick(own.RunAsGroup, pod.RunAsGroup), more
}

// root makes the root directory: the image, and over it the mounts.
func (n *node) root(c *container) (string, error) {
	root := n.t.TempDir()
	err := filepath.WalkDir(c.dir, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(c.dir, name)
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return os.Link(name, filepath.Join(root, rel))
		}
		if err := os.MkdirAll(filepath.Join(root, rel), 0o755); err != nil {
			return err
		}
		return os.Chmod(filepath.Join(root, rel), info.Mode())
	})
	if err == nil {
		err = os.Chmod(root, 0o755)
	}
	for _, m := range c.spec.VolumeMounts {
		if err == nil {
			err = n.mount(root, c, m)
		}
	}
	return root, err
}

func (n *node) mount(root string, c *container, m corev1.VolumeMount) error {
	for _, v := range c.pod.Volumes {
		if v.Name != m.Name {
			continue
		}
		at := filepath.Join(root, m.MountPath)
		if err := os.RemoveAll(at); err != nil {
			return err
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		group := 0
		if g := c.pod.SecurityContext.FSGroup; g != nil {
			group = int(*g)
		}
		files := func(kind, name string, items []corev1.KeyToPath, mode *int32) error {
			if len(items) == 0 {
				return fmt.Errorf("%s mounts all of %s %q", c.name, kind, name)
			}
			perm := os.FileMode(0o644)
			if mode != nil {
				perm = os.FileMode(*mode)
			}
			for _, i := range items {
				value, err := n.release.entry(kind, name, i.Key, n.secrets)
				if err != nil {
					return fmt.Errorf("%s: volume %s: %w", c.name, m.Name, err)
				}
				file := filepath.Join(at, i.Path)
				if err := writeFile(file, []byte(value), perm); err != nil {
					return err
				}
				if err := os.Chown(file, 0, group); err != nil {
					return err
				}
			}
			return nil
		}
		switch {
		case v.Secret != nil:
			return files("Secret", v.Secret.SecretName, v.Secret.Items, v.Secret.DefaultMode)
		case v.ConfigMap != nil:
			return files("ConfigMap", v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.DefaultMode)
		case v.DownwardAPI != nil:
			for _, i := range v.DownwardAPI.Items {
				text, err := annotation(c.meta, i)
				if err == nil {
					err = writeFile(filepath.Join(at, i.Path), []byte(text), 0o644)
				}
				if err != nil {
					return fmt.Errorf("%s: volume %s: %w", c.name, m.Name, err)
				}
			}
			return nil
		case v.EmptyDir != nil:
			return errors.Join(os.Chown(at, 0, group), os.Chmod(at, 0o777))
		}
		return fmt.Errorf("%s: volume %q is of no sort that is known here", c.name, v.Name)
	}
	return fmt.Errorf("%s mounts %q, which is no volume of the Pod", c.name, m.Name)
}

// wait waits until the container has ended by itself, and returns its exit code.
func (c *container) wait(most time.Duration) int {
	c.t.Helper()
	select {
	case <-c.ended:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(most):
		c.t.Fatalf("%s has not ended after %v:\n%s", c.name, most, c.said())
		return -1
	}
}

// terminate ends it as a kubelet does, and fails the test if the kubelet would have to kill it.
func (c *container) terminate() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	if code := c.wait(time.Duration(*c.pod.TerminationGracePeriodSeconds) * time.Second); code != 0 {
		c.t.Errorf("%s has ended with %d:\n%s", c.name, code, c.said())
	}
}

// probe executes a probe from the node, at each address of the Pod. Its error is the reason of a
// failure.
func (c *container) probe(p *corev1.Probe) (err error) {
	port := p.HTTPGet.Port.IntValue()
	for _, x := range c.spec.Ports {
		if x.Name == p.HTTPGet.Port.String() {
			port = int(x.ContainerPort)
		}
	}
	for _, address := range c.addresses {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Duration(max(p.TimeoutSeconds, 1))*time.Second)
		err = errors.Join(err,
			c.get(ctx, "http://"+net.JoinHostPort(address, strconv.Itoa(port))+path.Join("/", p.HTTPGet.Path)))
		cancel()
	}
	return err
}

func (c *container) get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.node.client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode < 200 || resp.StatusCode >= 400) {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(body))
	}
	return err
}

func (c *container) live() error  { return c.probe(c.spec.LivenessProbe) }
func (c *container) ready() error { return c.probe(c.spec.ReadinessProbe) }

// begins waits until the container has begun, and then until it is ready. It fails the test when a
// kubelet would restart the container.
func (c *container) begins() {
	c.t.Helper()
	p := c.spec.StartupProbe
	c.becomes("it has begun", time.Duration(p.FailureThreshold*max(p.PeriodSeconds, 1))*time.Second, func() error {
		return c.probe(p)
	})
	c.becomes("it is ready", patience, c.ready)
}

// becomes asks again and again until something is so.
func (c *container) becomes(what string, most time.Duration, ask func() error) {
	c.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	over := time.After(most)
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-c.ended:
			c.t.Fatalf("%s: %s: it has ended with %v, after %v:\n%s", c.name, what, c.cmd.ProcessState, err, c.said())
		case <-over:
			c.t.Fatalf("%s: not within %v: %s: %v\n%s", c.name, most, what, err, c.said())
		}
	}
}

// turnsRed waits until it is not ready any more, and makes sure that all the while it is alive.
func (c *container) turnsRed(why string) {
	c.t.Helper()
	c.becomes("it is not ready", patience, func() error {
		if err := c.live(); err != nil {
			c.t.Fatalf("%s would be restarted, which would not help: %v", c.name, err)
		}
		err := c.ready()
		switch {
		case err == nil:
			return errors.New("it is ready")
		case !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), why):
			return fmt.Errorf("it is not ready for another reason: %w", err)
		}
		return nil
	})
}
