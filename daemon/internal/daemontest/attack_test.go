//go:build linux

package daemontest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/failpoint"
)

// `make attack` runs TestAttacks with all sessions, for longer, and with the bounds that a quiet machine keeps.
var (
	attackTime     = flag.Duration("attack", time.Second, "TestAttacks lets each attacker work for this long")
	attackSessions = flag.Int("attack.sessions", 16, "honest sessions beside each attacker of TestAttacks")
	attackLatency  = flag.Duration("attack.latency", 0, "bound of the time of a hit at p99.9; 0 measures only")
	attackRate     = flag.Float64("attack.rate", 0.5, "the least hit rate, as a part of that without the attacker")
	attackReturn   = flag.Duration("attack.return", patience, "bound of the time until an attacker's memory is given back")
	attackOnly     = flag.String("attack.only", "", "the one attacker of TestAttacks")
	attackSeed     = flag.Uint64("attack.seed", 1, "seed of the honest sessions of TestAttacks")
)

const (
	attackedSize = 64 << 20 // of the segment
	// attackedMemory is what a daemon may take beside its segment, whatever clients do.
	attackedMemory  = 256 << 20
	honestProcesses = 4
	// leftOver is memory that a daemon may keep of an attack: tables that have grown.
	leftOver = 32 << 20
)

// TestAttacks runs honest sessions beside each attacker in turn: their hit rate stays, nothing that they see
// is wrong, and the memory of the daemon is bounded, and given back when the attacker has gone.
func TestAttacks(t *testing.T) {
	alone := attack(t, "", 0)
	t.Log(alone)
	require.Empty(t, alone.Wrong)
	for _, a := range attackers {
		if *attackOnly != "" && *attackOnly != a.name {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			got := attack(t, a.name, a.processes)
			t.Log(got)
			require.Empty(t, got.Wrong)
			require.Positive(t, got.Attacks, "the attacker has done nothing")
			require.GreaterOrEqual(t, got.rate(), *attackRate*alone.rate(), "hit rate, %.3f without the attacker", alone.rate())
			if *attackLatency > 0 {
				require.LessOrEqual(t, got.percentile(0.999), *attackLatency, "time of a hit at p99.9")
			}
			if !failpoint.Enabled { // the race detector takes more
				require.Less(t, got.peak, int64(attackedMemory), "memory beside the segment")
			}
		})
	}
}

// attacked is what became of the honest sessions, and of the daemon.
type attacked struct {
	honestReport
	Attacks      int
	before, peak int64 // memory of the daemon beside the segment
	returned     time.Duration
}

func (a attacked) rate() float64 { return float64(len(a.Hits)) / float64(max(1, len(a.Hits)+a.Misses)) }

func (a attacked) percentile(p float64) time.Duration {
	if len(a.Hits) == 0 {
		return 0
	}
	return time.Duration(a.Hits[min(len(a.Hits)-1, int(p*float64(len(a.Hits))))]) * time.Microsecond
}

func (a attacked) String() string {
	return fmt.Sprintf("%d attacks; honest: %d hits, %d misses (%.3f), not stored %d; a hit: median %v, p99 %v, p99.9 %v, slowest %v; the daemon: %.0f MiB before, %.0f at most, given back after %v",
		a.Attacks, len(a.Hits), a.Misses, a.rate(), a.Refused, a.percentile(0.5), a.percentile(0.99), a.percentile(0.999), a.percentile(1),
		mib(a.before), mib(a.peak), a.returned.Round(time.Second/10))
}

// attack runs a daemon with honest sessions, and lets processes of an attacker loose on it.
func attack(t *testing.T, name string, processes int) (r attacked) {
	d := servedRole{Dir: folder(t), HTTP: freePort(t)}
	cmd := child(t, role{Served: &d})
	cmd.Stderr = nil // its log
	require.NoError(t, start(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	d.await(t)
	pid := cmd.Process.Pid
	own := func() int64 {
		_, private, _ := takes(pid)
		require.Positive(t, private, "the daemon has ended")
		return private
	}

	var honest []*worker
	for i := range honestProcesses {
		honest = append(honest, startWorker(t, role{Honest: &honestRole{Socket: d.socket(), Dir: d.Dir, Sessions: (*attackSessions + honestProcesses - 1) / honestProcesses, Seed: *attackSeed + uint64(i)}}))
	}
	for _, w := range honest {
		w.expect(t, "warm")
	}
	r.before = own()
	var greedy []*worker
	for i := range processes {
		greedy = append(greedy, startWorker(t, role{Attacker: &attackerRole{Name: name, Number: i, Socket: d.socket(), HTTP: d.HTTP}}))
	}
	for _, w := range greedy {
		w.expect(t, "begun")
	}
	for _, w := range honest {
		w.tell(t, "measure")
	}
	for end := time.Now().Add(*attackTime); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r.peak = max(r.peak, own())
		d.probe(t)
	}
	for _, w := range honest { // the attackers are at it until the last one has stopped
		w.tell(t, "stop")
	}
	for _, w := range honest {
		var part honestReport
		require.NoError(t, json.Unmarshal([]byte(w.line(t)), &part))
		r.Hits = append(r.Hits, part.Hits...)
		r.Misses += part.Misses
		r.Refused += part.Refused
		r.Wrong = append(r.Wrong, part.Wrong...)
		r.peak = max(r.peak, own())
	}
	slices.Sort(r.Hits)
	for _, w := range greedy {
		w.tell(t, "stop")
		var n int
		require.NoError(t, json.Unmarshal([]byte(w.line(t)), &n))
		r.Attacks += n
	}
	for _, w := range slices.Concat(honest, greedy) {
		w.kill()
	}
	begin := time.Now()
	for own() > r.before+leftOver && !failpoint.Enabled { // the race detector gives nothing back
		require.Less(t, time.Since(begin), *attackReturn, "the daemon keeps %.0f MiB, and had %.0f before the attack", mib(own()), mib(r.before))
		time.Sleep(20 * time.Millisecond)
	}
	r.returned = time.Since(begin)
	d.verify(t)
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	require.NoError(t, cmd.Wait())
	return r
}

// servedRole is a process that is the whole daemon, as `ringcache serve` runs it.
type servedRole struct {
	Dir, HTTP string
	Version   string            // of the program; "" is "test"
	Settings  map[string]string // beside its own
	Passed    bool              // the socket is the first file that the process was given, as from systemd
}

func (r *servedRole) socket() string { return filepath.Join(r.Dir, "socket") }

func (r *servedRole) run() {
	flags := map[string]string{
		"socket": r.socket(), "name": "attacked", "size": strconv.Itoa(attackedSize), "shm-dir": r.Dir, "http": r.HTTP, "log-level": "error",
	}
	maps.Copy(flags, r.Settings)
	if r.Passed {
		_ = os.Setenv("LISTEN_FDS", "1")
		_ = os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
	config, err := (daemon.Sources{Flags: flags}).Load()
	if err == nil {
		err = daemon.Run(context.Background(), daemon.RunOptions{Config: config, Version: cmp.Or(r.Version, "test")})
	}
	if err != nil {
		panic(err)
	}
}

// await waits until the daemon answers.
func (r *servedRole) await(t *testing.T) {
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		c, err := client.Dial(t.Context(), client.Options{Socket: r.socket(), Name: "await", Dir: r.Dir})
		if err == nil {
			require.NoError(t, c.Close())
			return
		}
		require.True(t, time.Now().Before(end), "%v", err)
	}
}

// probe asks whether the daemon is alive, on a connection of its own.
func (r *servedRole) probe(t *testing.T) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + r.HTTP + "/healthz")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// verify verifies what a daemon must be when all clients have gone: alive, with nothing left of them.
func (r *servedRole) verify(t *testing.T) {
	r.probe(t)
	c, err := client.Dial(t.Context(), client.Options{Socket: r.socket(), Name: "verify", Dir: r.Dir})
	require.NoError(t, err)
	defer c.Close()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		p, err := c.Stat(t.Context(), wire.Request{List: true})
		require.NoError(t, err)
		if len(p.Leases) == 0 && p.State.Sessions == 1 && p.State.Levels[0].Held == 0 && p.State.Fetches == 0 && !p.State.Clearing {
			return
		}
		require.True(t, time.Now().Before(end), "the attacker has left %+v", p.State)
	}
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// worker is a process that does what it is told by lines, and answers by lines.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startWorker(t *testing.T, r role) *worker {
	w := &worker{cmd: child(t, r)}
	var err error
	w.in, err = w.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := w.cmd.StdoutPipe()
	require.NoError(t, err)
	w.out = bufio.NewReader(out)
	require.NoError(t, start(w.cmd))
	t.Cleanup(w.kill)
	return w
}

func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

func (w *worker) tell(t *testing.T, line string) {
	_, err := io.WriteString(w.in, line+"\n")
	require.NoError(t, err)
}

func (w *worker) line(t *testing.T) string {
	s, err := w.out.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(s)
}

func (w *worker) expect(t *testing.T, want string) { require.Equal(t, want, w.line(t)) }
