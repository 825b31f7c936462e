//go:build linux

package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

var killsEach = flag.Int("kills.each", 2, "TestKillsAtFailpoints kills so many servers at each place")

const orderVariable = "RINGCACHE_TEST_ORDER"

// serverOrder is what a server in another process does.
type serverOrder struct {
	Dir, Socket string
	Grace       time.Duration
}

func runServer() {
	var o serverOrder
	fail := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	fail(json.Unmarshal([]byte(os.Getenv(orderVariable)), &o))
	m, err := memory.Open(memory.Options{Name: "pool", Dir: o.Dir, Size: 1 << 20, MaxObjects: 256, MaxLeases: 64, MaxPins: 1024})
	fail(err)
	store, err := tier.Open(context.Background(), tier.Options{Memory: m})
	fail(err)
	s, err := NewServer(ServerOptions{Store: store, Memory: m, ShmDir: o.Dir, Grace: o.Grace})
	fail(err)
	_ = os.Remove(o.Socket)
	l, err := net.Listen("unix", o.Socket)
	fail(err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	fail(s.registry.Check())
	fail(s.Shutdown(context.Background()))
	fail(<-served)
	fail(store.Close())
	fail(m.CheckStructure())
	fail(m.Close())
	fmt.Println("done")
}

// host is a server in another process.
type host struct {
	testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
	errs  *strings.Builder
}

// newHost starts a server, which is killed at a failpoint, "NAME:N", if kill is not empty. It returns nil if
// that was before the server listened.
func newHost(t testing.TB, o serverOrder, kill string) *host {
	t.Helper()
	b, err := json.Marshal(o)
	require.NoError(t, err)
	h := &host{TB: t, cmd: exec.Command(os.Args[0]), errs: &strings.Builder{}}
	h.cmd.Env = append(os.Environ(), childVariable+"=server", orderVariable+"="+string(b), failpoint.KillVariable+"="+kill, "GORACE=atexit_sleep_ms=0")
	h.cmd.Stderr = h.errs
	h.stdin, err = h.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := h.cmd.StdoutPipe()
	require.NoError(t, err)
	h.lines = bufio.NewScanner(out)
	require.NoError(t, h.cmd.Start())
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	})
	if !h.lines.Scan() {
		require.Equal(t, -1, h.wait(), "it was killed: %s", h.errs)
		return nil
	}
	require.Equal(t, "ready", h.lines.Text(), h.errs)
	return h
}

func (h *host) wait() int {
	_ = h.cmd.Wait()
	return h.cmd.ProcessState.ExitCode()
}

// kill ends the server at once.
func (h *host) kill() {
	h.Helper()
	require.NoError(h, h.cmd.Process.Kill())
	h.wait()
}

// stop ends the server in good order, in which it checks what has to hold.
func (h *host) stop() {
	h.Helper()
	require.NoError(h, h.stdin.Close())
	require.True(h, h.lines.Scan(), h.errs)
	require.Equal(h, "done", h.lines.Text())
	require.Zero(h, h.wait(), h.errs)
}

// TestKilledServerKeepsPinsAndReservations: after SIGKILL, the same session finds its pins and reservations where they
// were, and may commit.
func TestKilledServerKeepsPinsAndReservations(t *testing.T) {
	o := orderOf(t, time.Minute)
	h := newHost(t, o, "")
	p, q := newPuppet(t), newPuppet(t)
	c, d := p.hello(o.Socket, session1), q.hello(o.Socket, "session-2")
	d.storeIn(o, "a", "b")
	pinned := c.pin("pins", "a")
	reserved := c.reserve("writes", "r", "s")
	d.pin("pins", "b")
	d.reserve("writes", "gone")
	h.kill()
	c.ends()
	q.kill() // while there is no server
	writeIn(t, o, reserved[0], "r")

	h = newHost(t, o, "")
	other := newPuppet(t)
	s := other.hello(o.Socket, "session-3")
	leases := s.ok(wire.Request{Op: wire.Stat, List: true}).Leases
	require.Len(t, leases, 2, "those of the dead process are gone")
	for i, l := range leases {
		require.Equal(t, []string{"session-1/pins", "session-1/writes"}[i], l.Name)
		require.True(t, l.Waiting)
		require.Equal(t, p.pid(), l.PID)
		require.Equal(t, "test", l.Client)
		require.NotZero(t, l.Seconds)
	}
	require.Equal(t, wire.StatusReserved, s.reserve("w", "gone")[0].Status, "what the dead process had reserved is free")
	require.Equal(t, wire.StatusPending, s.pin("w", "r")[0].Status)
	s.release("w")
	require.Contains(t, s.dialAgain(o).refused(wire.KindPermission, helloOf(session1)), fmt.Sprint(p.pid()))

	c = p.hello(o.Socket, session1)
	require.Equal(t, pinned[0], c.get("pins", "a")[0])
	again := c.get("writes", "r", "s")
	require.Equal(t, []wire.Status{wire.StatusReserved, wire.StatusReserved}, statuses(again))
	require.Equal(t, reserved, again)
	require.Equal(t, reserved, c.reserve("writes", "r", "s"), "asked again, since the answer might have been lost")
	require.Equal(t, wire.StatusOK, c.commit("writes", true, "r")[0].Status)
	require.Equal(t, wire.StatusOK, c.commit("writes", true, "r")[0].Status, "again")
	hit := s.pin("l", "r")[0]
	require.Equal(t, reserved[0].Offset, hit.Offset)
	readIn(t, o, hit, "r")
	require.Equal(t, all(wire.StatusOK, 1), statuses(c.abort("writes", "s")))
	for _, l := range s.ok(wire.Request{Op: wire.Stat, List: true}).Leases {
		require.False(t, l.Waiting)
	}
	s.release("l")
	c.release("pins", "writes")
	require.Empty(t, s.ok(wire.Request{Op: wire.Stat, List: true}).Leases)
	h.stop()
}

func helloOf(session string) wire.Request {
	return wire.Request{Op: wire.Hello, Version: wire.Version, Session: session, Client: "test"}
}

// dialAgain makes another connection of this process.
func (p *peer) dialAgain(o serverOrder) *peer {
	p.Helper()
	conn, err := net.Dial("unix", o.Socket)
	require.NoError(p, err)
	p.Cleanup(func() { _ = conn.Close() })
	return &peer{TB: p.TB, conn: conn, reader: wire.NewReader(conn, wire.MaxReply)}
}

func orderOf(t testing.TB, grace time.Duration) serverOrder {
	t.Helper()
	dir, err := os.MkdirTemp("", "rc")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return serverOrder{Dir: t.TempDir(), Socket: filepath.Join(dir, "s"), Grace: grace}
}

func writeIn(t testing.TB, o serverOrder, it wire.Item, name string) {
	t.Helper()
	(&bed{TB: t, dir: o.Dir, mo: memory.Options{Name: "pool"}}).write(it, name)
}

func readIn(t testing.TB, o serverOrder, it wire.Item, name string) {
	t.Helper()
	(&bed{TB: t, dir: o.Dir, mo: memory.Options{Name: "pool"}}).holds(it, name)
}

func (p *peer) storeIn(o serverOrder, names ...string) {
	p.Helper()
	p.store(&bed{TB: p.TB, dir: o.Dir, mo: memory.Options{Name: "pool"}}, names...)
}

// TestKillsAtFailpoints kills servers at each failpoint of this package, while a client works. The client
// then repeats what was not answered: everything that it was told is pinned or reserved is there, in its place, and in the end
// nothing is left.
func TestKillsAtFailpoints(t *testing.T) {
	failpoint.Need(t)
	kills := map[string]int{} // of those that ran
	for _, p := range failpoint.Points {
		if !strings.HasPrefix(p.Name, "daemon.") {
			continue
		}
		for i := range *killsEach {
			t.Run(fmt.Sprint(p.Name, " ", i), func(t *testing.T) {
				kills[p.Name] += 0
				if killOnce(t, fmt.Sprintf("%s:%d", p.Name, 1+i%2)) {
					kills[p.Name]++
				}
			})
		}
	}
	t.Log(kills)
	for place, n := range kills {
		require.Positive(t, n, "%s was reached", place)
	}
}

// killOnce runs a plan of a client against servers of which the second is killed at a place, and the third
// must have all that was pinned.
func killOnce(t *testing.T, kill string) (killed bool) {
	o := orderOf(t, time.Minute)
	if strings.HasPrefix(kill, "daemon.abandoned") {
		o.Grace = time.Millisecond
	}
	h := newHost(t, o, "")
	p, gone := newPuppet(t), newPuppet(t)
	c := p.hello(o.Socket, session1)
	c.storeIn(o, "a", "b", "c")
	for i := range 2 {
		c.pin(fmt.Sprint("before ", i), "a")
		d := gone.hello(o.Socket, fmt.Sprint("of-a-dead-one-", i))
		d.pin("pins", "a", "b")
		d.reserve("writes", fmt.Sprint("dead ", i))
	}
	reserved := c.reserve("old", "kept")
	h.kill()
	if strings.HasPrefix(kill, "daemon.recover") {
		gone.kill()
	}

	h = newHost(t, o, kill)
	abandoned := strings.HasPrefix(kill, "daemon.abandoned")
	switch {
	case abandoned: // at once, or even before it listened
		if h != nil {
			h.wait()
			require.NotContains(t, h.errs.String(), "panic")
		}
		checkAbandoned(t, o, p, gone, reserved[0])
		return true
	case h == nil:
		return checkKilled(t, o, p, gone, reserved[0])
	}
	plan := &plan{peer: p, o: o}
	plan.run()
	if strings.HasPrefix(kill, "daemon.died") {
		gone.hello(o.Socket, "of-a-dead-one-0")
		gone.kill()
	}
	if plan.done && !strings.HasPrefix(kill, "daemon.died") {
		h.stop() // the place was not reached so often
	} else {
		h.wait()
		killed = true
	}
	require.NotContains(t, h.errs.String(), "panic")
	h = newHost(t, o, "")
	plan.resume()
	c = plan.c
	require.Equal(t, reserved, c.get("old", "kept"))
	c.release("old", "before 0", "before 1")
	gone.kill()
	noLeases(t, c)
	h.stop()
	return killed
}

func noLeases(t *testing.T, c *peer) {
	t.Helper()
	(&bed{TB: t}).eventually("nothing is left of dead processes", func() bool {
		return len(c.ok(wire.Request{Op: wire.Stat, List: true}).Leases) == 0
	})
}

// checkAbandoned looks at what a server left that was killed while it ended what nobody had come back for.
func checkAbandoned(t *testing.T, o serverOrder, p, gone *puppet, kept wire.Item) {
	h := newHost(t, o, "")
	c := p.hello(o.Socket, session1)
	c.release("before 0", "before 1")
	require.Equal(t, []wire.Item{kept}, c.get("old", "kept"), "reservations stay for a while")
	c.release("old")
	gone.kill()
	noLeases(t, c)
	h.stop()
}

// checkKilled looks at what a server left that was killed while it took leases over.
func checkKilled(t *testing.T, o serverOrder, p, gone *puppet, kept wire.Item) bool {
	h := newHost(t, o, "")
	c := p.hello(o.Socket, session1)
	require.Equal(t, kept, c.get("old", "kept")[0])
	for i := range 2 {
		require.Equal(t, wire.StatusHit, c.get(fmt.Sprint("before ", i), "a")[0].Status)
	}
	require.Len(t, c.ok(wire.Request{Op: wire.Stat, List: true}).Leases, 3, "nothing of the dead")
	c.release("old", "before 0", "before 1")
	noLeases(t, c)
	h.stop()
	gone.kill()
	return true
}

// plan is what a client does, step by step. A step that was not answered is done again with the next server,
// and answered as if nothing had been.
type plan struct {
	peer *puppet
	o    serverOrder
	c    *peer
	step int
	done bool

	pinned, reserved []wire.Item
}

// run does steps until the server is gone.
func (p *plan) run() {
	p.c = p.peer.hello(p.o.Socket, session1)
	p.goOn(true)
}

// resume does the rest with a new server.
func (p *plan) resume() {
	p.c = p.peer.hello(p.o.Socket, session1)
	if p.done {
		return
	}
	t := p.peer
	if len(p.pinned) > 0 && p.step < 8 {
		require.Equal(t, p.pinned, p.c.get("pins", "a", "b"))
	}
	if len(p.reserved) > 0 && p.step < 3 {
		for i, it := range p.c.get("writes", "x", "y", "z") {
			if p.step < 2 || i > 0 { // or it is committed already
				require.Equal(t, wire.StatusReserved, it.Status)
			}
			require.Equal(t, p.reserved[i].Offset, it.Offset)
		}
	}
	p.goOn(false)
	require.True(t, p.done)
}

func (p *plan) goOn(mayEnd bool) {
	t := p.peer
	for ; p.step < len(planSteps); p.step++ {
		p.c.send(planSteps[p.step].q)
		r, err := p.c.receive()
		if mayEnd && err != nil {
			return
		}
		require.NoError(t, err)
		require.Nil(t, r.Error)
		if planSteps[p.step].q.Op == wire.Abort && !mayEnd && r.Items[0].Status == wire.StatusEnded {
			r.Items[0].Status = wire.StatusOK // it was done already
		}
		require.Equal(t, planSteps[p.step].want, statuses(r.Items), "step %d", p.step)
		switch p.step {
		case 0:
			p.pinned = r.Items
		case 1:
			p.reserved = r.Items
			for i, name := range []string{"x", "y", "z"} {
				writeIn(t, p.o, r.Items[i], name)
			}
		case 5:
			readIn(t, p.o, r.Items[0], "x")
			readIn(t, p.o, r.Items[1], "y")
			require.Equal(t, p.reserved[0].Offset, r.Items[0].Offset)
		}
	}
	p.done = true
}

type planStep struct {
	q    wire.Request
	want []wire.Status
}

var planSteps = []planStep{
	{wire.Request{Op: wire.Pin, Lease: "pins", Space: space, Names: []string{"a", "b"}}, all(wire.StatusHit, 2)},
	{wire.Request{Op: wire.Reserve, Lease: "writes", Space: space, Objects: objects("x", "y", "z")}, all(wire.StatusReserved, 3)},
	{wire.Request{Op: wire.Commit, Lease: "writes", Space: space, Names: []string{"x"}}, all(wire.StatusOK, 1)},
	{wire.Request{Op: wire.Commit, Lease: "writes", Space: space, Names: []string{"y"}, Keep: true}, all(wire.StatusOK, 1)},
	{wire.Request{Op: wire.Get, Lease: "pins", Space: space, Names: []string{"a"}}, all(wire.StatusHit, 1)},
	{wire.Request{Op: wire.Pin, Lease: "more", Space: space, Names: []string{"x", "y"}}, all(wire.StatusHit, 2)},
	{wire.Request{Op: wire.Release, Lease: "more", Space: space, Names: []string{"x"}}, []wire.Status{}},
	{wire.Request{Op: wire.Release, Leases: []string{"more"}}, []wire.Status{}},
	{wire.Request{Op: wire.Release, Lease: "pins", Space: space, Names: []string{"a"}}, []wire.Status{}},
	{wire.Request{Op: wire.Release, Leases: []string{"pins"}}, []wire.Status{}},
	{wire.Request{Op: wire.Reserve, Lease: "aborted", Space: space, Objects: objects("v", "w")}, all(wire.StatusReserved, 2)},
	{wire.Request{Op: wire.Abort, Lease: "aborted", Space: space, Names: []string{"v"}}, all(wire.StatusOK, 1)},
	{wire.Request{Op: wire.Abort, Lease: "aborted", Space: space, Names: []string{"w"}}, all(wire.StatusOK, 1)},
	{wire.Request{Op: wire.Release, Leases: []string{"writes", "aborted"}}, []wire.Status{}},
}
