package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a holder may take to start on a busy machine.
const patience = 2 * time.Minute

// Network is a hub and its hosts. Its methods are called by the test's goroutine.
type Network struct {
	t     testing.TB
	hub   *holder
	hosts int
}

// New makes a network without hosts. The test is skipped, with the reason, where that is not possible.
func New(t testing.TB) *Network {
	t.Helper()
	for _, program := range []string{"unshare", "nsenter", "mount", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no namespaces as hosts: the program %s is missing", program)
		}
	}
	n := &Network{t: t}
	var err error
	if n.hub, err = hold(t, nil, "unshare", "--user", "--map-root-user", "--mount", "--net"); err == nil {
		err = n.hub.run("ip", "link", "set", "lo", "up")
	}
	if err == nil { // a system may allow namespaces, and nothing in them
		err = n.hub.run("ip", "link", "add", "try0", "type", "veth", "peer", "name", "try1")
	}
	if err == nil {
		err = n.hub.run("ip", "link", "delete", "try0")
	}
	if err != nil {
		t.Skipf("no namespaces as hosts: %v", err)
	}
	return n
}

// On has a command that was not started yet run at the hub.
func (n *Network) On(cmd *exec.Cmd) { n.hub.enter(cmd) }

// Host is a host, whose cable is in order at first.
type Host struct {
	*holder
	network *Network
	cable   string // its end at the hub
	address string // of the hub
}

// Host adds a host.
func (n *Network) Host() *Host {
	n.t.Helper()
	own, err := hold(n.t, n.hub, "unshare", "--mount", "--net")
	if err != nil {
		n.t.Fatal(err)
	}
	n.hosts++
	subnet := fmt.Sprintf("10.77.%d.", n.hosts)
	h := &Host{own, n, fmt.Sprint("cable", n.hosts), subnet + "1"}
	for _, step := range []struct {
		at   *holder
		args string
	}{
		{h.holder, "mount -t tmpfs -o mode=1777 tmpfs /dev/shm"},
		{h.holder, "ip link set lo up"},
		{n.hub, fmt.Sprintf("ip link add %s type veth peer name eth0 netns %d", h.cable, own.pid)},
		{n.hub, fmt.Sprintf("ip address add %s1/24 dev %s", subnet, h.cable)},
		{n.hub, fmt.Sprintf("ip link set %s up", h.cable)},
		{h.holder, fmt.Sprintf("ip address add %s2/24 dev eth0", subnet)},
		{h.holder, "ip link set eth0 up"},
	} {
		if err := step.at.run(strings.Fields(step.args)...); err != nil {
			n.t.Fatal(err)
		}
	}
	return h
}

// On has a command that was not started yet run on the host.
func (h *Host) On(cmd *exec.Cmd) { h.enter(cmd) }

// Hub returns the address at which the host reaches the hub.
func (h *Host) Hub() string { return h.address }

// Cut cuts the cable: packets are lost, in both directions, and nobody is told.
func (h *Host) Cut() { h.set("down") }

// Mend ends a Cut.
func (h *Host) Mend() { h.set("up") }

func (h *Host) set(state string) {
	h.network.t.Helper()
	if err := h.network.hub.run("ip", "link", "set", h.cable, state); err != nil {
		h.network.t.Fatal(err)
	}
}

// holder is a process that does nothing, and keeps namespaces alive.
type holder struct{ pid int }

// hold starts one by a command that makes namespaces within those of another one.
func hold(t testing.TB, within *holder, command ...string) (*holder, error) {
	// It says when the namespaces are there, and ends with its input.
	cmd := exec.Command(command[0], append(command[1:], "sh", "-c", "echo; read -r end")...)
	if within != nil {
		within.enter(cmd)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	said := &saying{ready: make(chan struct{})}
	cmd.Stdout = said
	var complaint strings.Builder
	cmd.Stderr = &complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended, err := start(cmd)
	if err != nil {
		return nil, err
	}
	end := func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	}
	t.Cleanup(end)
	select {
	case <-said.ready:
		return &holder{cmd.Process.Pid}, nil
	case <-ended:
	case <-time.After(patience):
	}
	end()
	return nil, fmt.Errorf("%s makes no namespaces: %s", strings.Join(command, " "), strings.TrimSpace(complaint.String()))
}

// saying closes ready when something is said.
type saying struct {
	once  sync.Once
	ready chan struct{}
}

func (s *saying) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.ready) })
	return len(b), nil
}

// enter has a command run in the namespaces.
func (h *holder) enter(cmd *exec.Cmd) {
	program, err := exec.LookPath("nsenter")
	if err != nil {
		program = "nsenter" // whose start will say what is wrong
	}
	where := []string{program, "--target", strconv.Itoa(h.pid), "--user", "--mount", "--net", "--preserve-credentials"}
	if cmd.Dir == "" {
		cmd.Dir, _ = os.Getwd()
	}
	where = append(where, "--wd="+cmd.Dir, "--", cmd.Path)
	cmd.Path, cmd.Args = program, append(where, cmd.Args[1:]...)
}

// run runs a command there.
func (h *holder) run(command ...string) error {
	cmd := exec.Command(command[0], command[1:]...)
	h.enter(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// start starts a command, whose end closes ended. The kernel ends a process with the thread that started it, so this one
// waits for its end.
func start(cmd *exec.Cmd) (ended chan struct{}, err error) {
	ended = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ends does not matter
			close(ended)
		}
	}()
	return ended, <-started
}
