package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// process is a service that runs in a process of its own, which is this program once more.
type process struct {
	kind string // nats, orchestrator or worker
	args []string
	log  string // the file that it logs to

	found found
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	in    io.WriteCloser
	out   *bufio.Reader

	mu sync.Mutex // held over an order and its answer
}

// launch starts a service and waits until it is ready.
func launch(dir, name, kind string, args ...string) (*process, error) {
	p := &process{kind: kind, args: args, log: filepath.Join(dir, name+".log")}
	return p, p.start()
}

func (p *process) start() error {
	if err := p.spawn(); err != nil {
		return err
	}
	return p.await()
}

// spawn starts it, and does not wait until it is ready.
func (p *process) spawn() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd := exec.Command(self, append([]string{serviceWord, p.kind}, p.args...)...)
	cmd.Stderr = log
	cmd.SysProcAttr = serviceAttributes()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(ended)
	}()
	p.cmd, p.ended, p.in, p.out = cmd, ended, in, bufio.NewReader(out)
	return nil
}

// await waits until it says where it is found.
func (p *process) await() error {
	line, err := p.out.ReadString('\n')
	p.found = found{}
	switch {
	case err != nil:
		return fmt.Errorf("the %s has ended: %s", p.kind, p.lastWords())
	case json.Unmarshal([]byte(line), &p.found) != nil:
		return fmt.Errorf("the %s says %q", p.kind, line)
	case p.found.Error != "":
		return fmt.Errorf("the %s: %s", p.kind, p.found.Error)
	}
	return nil
}

// order sends the process an order, and gives its answer. An answer that is neither ok nor a number
// is an error.
func (p *process) order(words ...string) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := io.WriteString(p.in, strings.Join(words, " ")+"\n")
	answer := ""
	if err == nil {
		answer, err = p.out.ReadString('\n')
	}
	answer = strings.TrimSpace(answer)
	if err == nil && answer != "ok" {
		n, bad := strconv.ParseInt(answer, 10, 64)
		if bad == nil {
			return n, nil
		}
		err = errors.New(answer)
	}
	if err != nil {
		return 0, fmt.Errorf("telling the %s to %s: %w", p.kind, words[0], err)
	}
	return 0, nil
}

// kill ends it without a chance to say goodbye.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it fails only if it has ended
	<-p.ended
	p.cmd = nil
}

// end ends it in order, and by force if that takes too long. How it ended does not matter: its
// results are in the database.
func (p *process) end() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(os.Interrupt) // it fails only if it has ended
	select {
	case <-p.ended:
	case <-time.After(endFor):
	}
	p.kill()
}

// endFor is how long the end of a service may take.
const endFor = 30 * time.Second

func (p *process) pid() int {
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// died returns the last output, as an error, of a process that has ended by itself.
func (p *process) died() error {
	if p.cmd == nil {
		return nil
	}
	select {
	case <-p.ended:
		return fmt.Errorf("the %s has ended by itself: %s", p.kind, p.lastWords())
	default:
		return nil
	}
}

// lastWords is the end of its log.
func (p *process) lastWords() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
