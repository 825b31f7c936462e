//go:build linux

package daemontest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/hosttest"
	"github.com/ringcache/ringcache/internal/redistest"
)

var hostsCut = flag.Duration("hosts.cut", time.Second, "TestHosts cuts a host off for this long after its daemon has noticed that")

const (
	hostObjects = 200 // in a space
	hostSteps   = 300 // of the clients of a host, in each part of the test
)

// TestHosts: daemons on two hosts over one Redis, with clients that work on the same objects. The cable of one is cut
// and mended. No client ever sees a wrong byte; a host that is cut off goes on; afterwards each finds what the other one
// has stored meanwhile, and so does a host that is new. go test -run TestHosts -hosts.cut 30s
func TestHosts(t *testing.T) {
	for name, settings := range map[string]map[string]string{
		"memory and Redis":        nil,
		"memory, disk and Redis":  {"disk": "DIR/disk"},
		"memory smaller than all": {"disk": "DIR/disk", "size": "6MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			n := hosttest.New(t)
			redis := redistest.New(t, "--bind", "0.0.0.0", "--protected-mode", "no")
			redis.On(n.On)
			redis.Start()
			full := settings["size"] != ""
			var hosts []*servedHost
			for range 2 {
				h := newServedHost(t, n.Host(), redis.Port(), settings)
				h.start()
				h.crowd.add(role{Client: &clientRole{
					Socket: h.served.socket(), Space: "both", Objects: hostObjects, Sessions: 4, Seed: uint64(len(hosts)) + 1, MayFull: full, MayAway: true,
				}})
				hosts = append(hosts, h)
			}
			a, b := hosts[0], hosts[1]
			a.work()
			b.work()

			b.Cut()
			began := time.Now()
			a.space("of-a")
			b.space("of-b")
			b.until("notices that Redis is away", func(s *wire.State) bool { return s.Levels[len(s.Levels)-1].Away })
			noticed := time.Since(began)
			for time.Since(began)-noticed < *hostsCut {
				a.work()
				b.work()
			}
			a.drained()
			waiting := b.state().Backlog
			require.Positive(t, waiting)
			has := func(h *servedHost, space string) {
				t.Helper()
				if r := h.check(space); full { // what was evicted before a level had it is gone
					require.Positive(t, r.Found)
				} else {
					require.Empty(t, r.Gone, "%s, of what both have stored", space)
				}
			}
			has(a, "of-a")
			has(b, "of-b")

			b.Mend()
			mended := time.Now()
			b.drained()
			back := time.Since(mended)
			for _, h := range hosts {
				h.crowd.end()
				require.Empty(t, h.crowd.wrong())
				h.drained() // what clients did after that
			}
			all := &Ledger{}
			for _, h := range hosts {
				for _, space := range hostSpaces {
					all.Add(space, h.crowd.ledger.Objects(space))
				}
			}
			hosts = append(hosts, newServedHost(t, n.Host(), redis.Port(), settings))
			hosts[2].start()
			for _, h := range hosts {
				h.crowd.ledger = all
				for _, space := range hostSpaces {
					require.NotEmpty(t, all.Objects(space))
					has(h, space)
				}
			}
			t.Logf("cut off for %v: noticed after %v, %d objects waited, there again %v after the cable was mended; %d objects of both, all bytes right",
				time.Since(began).Round(time.Millisecond)-time.Since(mended).Round(time.Millisecond), noticed.Round(time.Millisecond), waiting,
				back.Round(time.Millisecond), len(all.Objects("both"))+len(all.Objects("of-a"))+len(all.Objects("of-b")))
			for _, h := range hosts {
				h.stop()
			}
		})
	}
}

var hostSpaces = []string{"both", "of-a", "of-b"}

// servedHost is a host with a daemon and clients.
type servedHost struct {
	*hosttest.Host
	t      *testing.T
	served servedRole
	crowd  *crowd
	cmd    *exec.Cmd
	client *client.Client
}

func newServedHost(t *testing.T, host *hosttest.Host, port int, settings map[string]string) *servedHost {
	h := &servedHost{Host: host, t: t, crowd: newCrowd(t)}
	h.crowd.on = host.On
	h.served = servedRole{Dir: folder(t), HTTP: "off", Settings: map[string]string{
		"shm-dir": "/dev/shm", "redis": fmt.Sprintf("%s:%d", host.Hub(), port), "grace": "10m",
	}}
	for k, v := range settings {
		h.served.Settings[k] = strings.Replace(v, "DIR", h.served.Dir, 1)
	}
	return h
}

// start starts the daemon.
func (h *servedHost) start() {
	h.t.Helper()
	h.cmd = child(h.t, role{Served: &h.served})
	h.On(h.cmd)
	require.NoError(h.t, start(h.cmd))
	h.t.Cleanup(func() { _ = h.cmd.Process.Kill(); _ = h.cmd.Wait() })
	h.served.await(h.t)
	var err error
	h.client, err = client.Dial(h.t.Context(), client.Options{Socket: h.served.socket(), Name: "host"})
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = h.client.Close() })
}

// stop ends the daemon in peace.
func (h *servedHost) stop() {
	h.t.Helper()
	require.NoError(h.t, h.cmd.Process.Signal(unix.SIGTERM))
	require.NoError(h.t, h.cmd.Wait())
}

// space gives the clients other objects to work on.
func (h *servedHost) space(name string) {
	h.t.Helper()
	for _, x := range h.crowd.clients() {
		_, err := fmt.Fprintln(x.in, name)
		require.NoError(h.t, err)
	}
}

// work waits until clients have done some steps.
func (h *servedHost) work() {
	h.t.Helper()
	late := time.After(patience)
	for range hostSteps {
		select {
		case <-h.crowd.steps:
		case <-h.crowd.ends:
			h.t.Fatalf("a client has ended: %q", h.crowd.wrong())
		case <-late:
			h.t.Fatal("clients do nothing")
		}
	}
}

func (h *servedHost) state() *wire.State {
	h.t.Helper()
	ctx, stop := context.WithTimeout(h.t.Context(), patience)
	defer stop()
	p, err := h.client.Stat(ctx, wire.Request{})
	require.NoError(h.t, err)
	return p.State
}

func (h *servedHost) until(what string, is func(*wire.State) bool) {
	h.t.Helper()
	for end := time.Now().Add(patience); !is(h.state()); time.Sleep(5 * time.Millisecond) {
		require.True(h.t, time.Now().Before(end), "the daemon %s: %+v", what, h.state())
	}
}

// drained waits until the lower levels have all that was stored. Clients rest meanwhile, or work on what is there.
func (h *servedHost) drained() {
	h.t.Helper()
	h.until("has written all", func(s *wire.State) bool { return s.Backlog == 0 && !s.Levels[len(s.Levels)-1].Away })
}

// ledgerRole is a process that checks what a daemon has to keep, and prints what it found.
type ledgerRole struct {
	Socket, Space string
	Objects       []int
}

func (r *ledgerRole) run() {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	var l Ledger
	l.Add(r.Space, r.Objects)
	c, err := client.Dial(ctx, client.Options{Socket: r.Socket, Name: "ledger"})
	if err != nil {
		panic(err)
	}
	m, err := c.Map(ctx)
	if err != nil {
		panic(err)
	}
	found, err := l.Check(ctx, c, m, r.Space)
	if err != nil {
		panic(err)
	}
	say("%s", encoded(found))
}

// check has a process of the host ask the daemon for all objects of a space.
func (h *servedHost) check(space string) (found Checked) {
	h.t.Helper()
	cmd := child(h.t, role{Ledger: &ledgerRole{Socket: h.served.socket(), Space: space, Objects: h.crowd.ledger.Objects(space)}})
	h.On(cmd)
	out, err := cmd.Output()
	require.NoError(h.t, err)
	require.NoError(h.t, json.Unmarshal(out, &found))
	return found
}
