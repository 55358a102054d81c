package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// This file gives the node and each Pod a network namespace of their own, as a container runtime
// does: a Pod has its own loopback interface and its own address, and the kubelet asks at that
// address. So the tests find services that listen on the loopback interface of a Pod. A namespace
// lasts as long as the process that holds it, which the kernel ends with this one.

// network is the network of a node, to which those of its Pods are connected. Nothing of it can be
// seen from this machine's own, and nothing leads out of it.
type network struct {
	*namespace
	mu   sync.Mutex
	pods int
}

// The addresses of the node in its network. Pods have those that follow. Private networks need no
// other addresses than their own.
const (
	node4 = "10.244.0."
	node6 = "fd00:244::"
)

// namespace is a network namespace, held by a process that does nothing.
type namespace struct {
	t      testing.TB
	holder *exec.Cmd
}

// needNetwork skips the test where no network namespaces can be made, and fails it where only the
// command to set them up is missing.
func needNetwork(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("WHAT THE CHART RENDERS IS NOT STARTED: only root may make network namespaces, and give a process a " +
			"root directory and a user of its own")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Fatalf("%v: install iproute2", err)
	}
}

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	n := &namespace{t: t, holder: exec.Command("sleep", "infinity")}
	n.holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	switch err := n.holder.Start(); {
	case errors.Is(err, syscall.EPERM):
		t.Skip("WHAT THE CHART RENDERS IS NOT STARTED: this user may not make network namespaces")
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = n.holder.Process.Kill() // it does nothing
		_ = n.holder.Wait()         // it was killed
	})
	n.ip("link", "set", "lo", "up")
	return n
}

// within does something in the namespace: connections, listeners and processes that it makes are in
// there.
func (n *namespace) within(do func() error) (err error) {
	done := make(chan struct{})
	go func() { // a thread that cannot come back ends with its goroutine
		defer close(done)
		runtime.LockOSThread()
		var back, there *os.File
		if back, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return
		}
		defer back.Close()
		if there, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", n.holder.Process.Pid)); err != nil {
			return
		}
		defer there.Close()
		if err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
			return
		}
		err = do()
		if stuck := unix.Setns(int(back.Fd()), unix.CLONE_NEWNET); stuck != nil {
			err = errors.Join(err, stuck)
			return
		}
		runtime.UnlockOSThread()
	}()
	<-done
	return err
}

func (n *namespace) ip(args ...string) {
	n.t.Helper()
	err := n.within(func() error {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// carries waits until a device carries packets: the kernel notices a link in the background, and a
// bridge drops packets before that.
func (n *namespace) carries(device string) {
	n.t.Helper()
	var last string
	for until := time.Now().Add(upWithin); time.Now().Before(until); <-time.After(upAgain) {
		err := n.within(func() error {
			out, err := exec.Command("ip", "-oneline", "link", "show", "dev", device).CombinedOutput()
			last = string(out)
			return err
		})
		if err != nil {
			n.t.Fatalf("%v: %s", err, last)
		}
		if strings.Contains(last, "state UP") {
			return
		}
	}
	n.t.Fatalf("the device is not up after %v: %s", upWithin, last)
}

const (
	upWithin = 5 * time.Minute
	upAgain  = 5 * time.Millisecond
)

func newNetwork(t testing.TB) *network {
	t.Helper()
	n := &network{namespace: newNamespace(t), pods: 1}
	n.ip("link", "add", "pods", "type", "bridge")
	n.ip("link", "set", "pods", "up")
	n.addresses(n.namespace, "pods", 1)
	return n
}

// addresses assigns addresses to an interface, and returns them.
func (n *network) addresses(of *namespace, device string, i int) (all []string) {
	n.t.Helper()
	all = []string{fmt.Sprint(node4, i)}
	of.ip("address", "add", all[0]+"/24", "dev", device)
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		all = append(all, fmt.Sprintf("%s%x", node6, i))
		of.ip("address", "add", all[1]+"/64", "dev", device, "nodad")
	}
	return all
}

// join makes the network of a Pod, with the addresses that it has there.
func (n *network) join() (*namespace, []string) {
	n.t.Helper()
	n.mu.Lock()
	n.pods++
	i := n.pods
	n.mu.Unlock()
	pod, outer := newNamespace(n.t), fmt.Sprint("pod", i)
	n.ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(pod.holder.Process.Pid))
	n.ip("link", "set", outer, "master", "pods", "up")
	pod.ip("link", "set", "eth0", "up")
	pod.carries("eth0")
	n.carries(outer)
	n.carries("pods")
	return pod, n.addresses(pod, "eth0", i)
}

// client asks over HTTP from the node.
func (n *network) client() *http.Client {
	t := &http.Transport{DialContext: n.dial, DisableKeepAlives: true}
	return &http.Client{Transport: t}
}

func (n *network) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.within(func() error {
		// a second goroutine would not be in there
		c, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// bring forwards a listener on this machine's loopback interface to the node's network, and returns
// its address there.
func (n *network) bring(local string) string {
	n.t.Helper()
	var l net.Listener
	err := n.within(func() (err error) {
		l, err = net.Listen("tcp", node4+"1:0")
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			outer, err := l.Accept()
			if err != nil {
				return
			}
			go forward(outer, local)
		}
	}()
	return l.Addr().String()
}

// forward copies the bytes of either side to the other, and ends both when one ends.
func forward(outer net.Conn, local string) {
	defer outer.Close()
	inner, err := net.Dial("tcp", local)
	if err != nil {
		return
	}
	defer inner.Close()
	ended := make(chan error, 2)
	for _, way := range [][2]net.Conn{{outer, inner}, {inner, outer}} {
		go func() {
			_, err := io.Copy(way[0], way[1])
			ended <- err
		}()
	}
	<-ended
}

// TestNamespacesAreApart makes sure that the network isolates Pods: a Pod is reached at its
// address, and not if it listens on its loopback interface.
func TestNamespacesAreApart(t *testing.T) {
	needNetwork(t)
	n := newNetwork(t)
	pod, addresses := n.join()
	for host, want := range map[string]bool{"": true, "127.0.0.1": false} {
		var l net.Listener
		err := pod.within(func() (err error) {
			l, err = net.Listen("tcp", host+":0")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range addresses {
			c, err := n.dial(t.Context(), "tcp", net.JoinHostPort(address, port))
			if (err == nil) != want {
				t.Errorf("a Pod that listens at %q is reached at %s: %v", host, address, err)
			}
			if err == nil {
				c.Close()
			}
		}
		if c, err := net.Dial("tcp", net.JoinHostPort(addresses[0], port)); err == nil {
			t.Error("a Pod is reached from outside of its node")
			c.Close()
		}
	}
}
