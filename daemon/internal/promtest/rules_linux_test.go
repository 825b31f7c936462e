package promtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/fuzz/fault"
	"github.com/ringcache/ringcache/internal/redistest"
)

// alerts has, for each alert, a test that makes its fault; TestEveryAlertHasAFault compares.
var alerts = map[string]func(t *testing.T){
	"RingcacheDown":              testDown,
	"RingcacheNotReady":          testNotReady,
	"RingcacheRestarts":          testRestarts,
	"RingcacheLevelAway":         testLevelAway,
	"RingcacheWriteBackStalled":  testStalled,
	"RingcacheBacklogGrows":      testBacklog,
	"RingcacheObjectsNotWritten": testDiskFull,
	"RingcacheDamage":            testDamage,
	"RingcacheNoRoom":            testNoRoom,
	"RingcacheValuesDropped":     testValuesDropped,
	"RingcacheRefuses":           testRefuses,
	"RingcacheSlow":              testSlow,
	"RingcacheThrashes":          testThrashes,
	"RingcacheEngineFailures":    testEngineFailures,
}

// TestEveryAlertHasAFault: the file has exactly the alerts that are tested here, and each says what to do.
func TestEveryAlertHasAFault(t *testing.T) {
	text, err := os.ReadFile(deployed("prometheus", "ringcache.rules.yml"))
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.NoError(t, errors.Join(errs...))
	var names []string
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
			require.NotEmpty(t, r.Labels["severity"], r.Alert)
			require.Greater(t, len(r.Annotations["description"]), 60, r.Alert)
		}
	}
	for name := range alerts {
		require.Contains(t, names, name)
	}
	require.Len(t, alerts, len(names), "each alert has a test: %v", names)
}

func TestAlerts(t *testing.T) {
	for name, test := range alerts {
		t.Run(name, test)
	}
}

// fires lets time pass until the fault's alert fires, and no other one does.
func (p *prometheus) fires(alert string, within time.Duration, do func()) {
	p.Helper()
	for range within / interval {
		p.pass(interval, do)
		if f := p.firing(); len(f) > 0 {
			require.Equal(p, []string{alert}, f)
			p.Logf("%s fires: %s", alert, p.texts(alert))
			require.NotContains(p, p.texts(alert), "<no value>")
			require.NotContains(p, p.texts(alert), "error")
			return
		}
	}
	p.Fatalf("%s does not fire within %v", alert, within)
}

// ends lets time pass until no alert fires any more.
func (p *prometheus) ends(within time.Duration, do func()) {
	p.Helper()
	for range within / interval {
		p.pass(interval, do)
		if len(p.firing()) == 0 {
			return
		}
	}
	p.Fatalf("%v goes on", p.firing())
}

// healthy are some minutes in which nothing fires.
func (p *prometheus) healthy(do func()) {
	p.Helper()
	p.pass(3*time.Minute, do)
	require.Empty(p, p.firing())
}

func testDown(t *testing.T) {
	d := newDaemon(t)
	p := newPrometheus(t, web("ringcache", d.address))
	p.healthy(nil)
	d.kill()
	p.fires("RingcacheDown", 5*time.Minute, nil)
	d.start()
	p.ends(time.Minute, nil)
}

// testNotReady: something cleans the folder of the socket.
func testNotReady(t *testing.T) {
	d := newDaemon(t)
	p := newPrometheus(t, web("ringcache", d.address))
	p.healthy(nil)
	require.NoError(t, os.Remove(d.socket))
	p.fires("RingcacheNotReady", 10*time.Minute, nil)
}

func testRestarts(t *testing.T) {
	d := newDaemon(t)
	p := newPrometheus(t, web("ringcache", d.address))
	p.healthy(nil)
	restarts := 0
	p.fires("RingcacheRestarts", 5*time.Minute, func() {
		d.kill()
		d.start()
		restarts++
	})
	require.Equal(t, 3, restarts)
	p.ends(time.Hour, nil)
}

func testLevelAway(t *testing.T) {
	redis := redistest.Start(t)
	d := newDaemon(t, "--redis", "unix://"+redis.Socket())
	u := d.dial("test")
	p := newPrometheus(t, web("ringcache", d.address))
	store := func() { u.store(1, 100) }
	p.healthy(store)
	redis.Kill()
	d.until("Redis is away", func() bool {
		u.look([]string{"nobody has it"})
		return d.value(`ringcache_level_up{level="redis"}`) == 0
	})
	p.fires("RingcacheLevelAway", 5*time.Minute, nil)
	redis.Start()
	d.until("Redis is back", func() bool { return d.value(`ringcache_level_up{level="redis"}`) == 1 })
	p.ends(time.Minute, nil)
}

// testStalled: a Redis that became a replica is read, and takes nothing.
func testStalled(t *testing.T) {
	redis := redistest.Start(t)
	d := newDaemon(t, "--redis", "unix://"+redis.Socket())
	u := d.dial("test")
	p := newPrometheus(t, web("ringcache", d.address))
	p.healthy(func() { u.store(1, 100) })
	redis.Do("replicaof", "127.0.0.1", "1")
	p.fires("RingcacheWriteBackStalled", 30*time.Minute, func() { u.store(1, 100) })
	redis.Do("replicaof", "no", "one")
	d.until("all is written", func() bool { return d.value(`ringcache_level_backlog_objects{level="redis"}`) == 0 })
	p.ends(time.Minute, nil)
}

// testBacklog: a level takes less than engines store: one object in a minute.
func testBacklog(t *testing.T) {
	redis := redistest.NewFake(t)
	d := newDaemon(t, "--redis", redis.URL())
	u := d.dial("test")
	p := newPrometheus(t, web("ringcache", d.address))
	p.healthy(func() { u.store(1, 1000) })
	var takes, taken atomic.Int64
	redis.Refuse(func(command []string) []byte {
		switch {
		case !strings.EqualFold(command[0], "SET"):
		case takes.Add(-1) < 0:
			return []byte("-READONLY You can't write against a read only replica.\r\n")
		default:
			taken.Add(1)
		}
		return nil
	})
	step := 0
	p.fires("RingcacheBacklogGrows", 30*time.Minute, func() {
		if step++; step < 20 || step%4 == 0 { // then as many as are written
			u.store(1, 100<<10)
		}
		if step%4 == 0 {
			before := taken.Load()
			takes.Store(1)
			d.until("one is written", func() bool { return taken.Load() > before })
		}
	})
}

// testDiskFull: other programs have filled the file system of the disk level.
func testDiskFull(t *testing.T) {
	if !fault.InChild(t, fault.OwnMounts()) {
		return
	}
	dir := t.TempDir()
	fault.Mount(t, dir, "size=2m")
	folder := filepath.Join(dir, "objects")
	d := newDaemon(t, "--disk", folder)
	u := d.dial("test")
	p := newPrometheus(t, web("ringcache", d.address))
	p.healthy(nil)
	f, err := os.Create(filepath.Join(dir, "logs of somebody"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	_, err = io.Copy(f, io.LimitReader(zeros{}, 4<<20))
	require.Error(t, err, "the file system is full")
	refused := 0.0
	p.fires("RingcacheObjectsNotWritten", 15*time.Minute, func() {
		u.store(1, 64<<10)
		d.until("an object is refused", func() bool {
			now := d.value(`ringcache_tier_objects_total{cause="full",kind="not_written",level="disk"}`)
			was := refused
			refused = now
			return now > was
		})
	})
	require.Contains(t, p.texts("RingcacheObjectsNotWritten"), "full")
	require.NoError(t, f.Truncate(0))
	p.ends(30*time.Minute, nil)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// testDamage: bits of a file on the disk are turned over, and the object is asked for when memory does not have it.
func testDamage(t *testing.T) {
	folder := t.TempDir()
	d := newDaemon(t, "--disk", folder)
	u := d.dial("test")
	p := newPrometheus(t, web("ringcache", d.address))
	names, _ := u.store(1, 100<<10)
	d.until("it is written", func() bool { return d.value(`ringcache_level_objects{level="disk"}`) == 1 })
	require.NoError(t, u.Release(t.Context(), wire.Request{Leases: []string{"store-1"}}))
	p.healthy(nil)
	changed := 0
	require.NoError(t, filepath.WalkDir(folder, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if len(b) < 100<<10 {
			return err
		}
		changed++
		for i := len(b) / 2; i < len(b)/2+64; i++ {
			b[i] ^= 0xff
		}
		return os.WriteFile(path, b, 0o600)
	}))
	require.Equal(t, 1, changed)
	for d.value(`ringcache_level_evicted_objects_total{level="memory"}`) == 0 {
		u.store(10, 100<<10)
	}
	require.NotEqual(t, wire.StatusHit, u.look(names)[0].Status)
	p.fires("RingcacheDamage", 5*time.Minute, nil)
	p.ends(2*time.Hour, nil)
}

// testNoRoom: a client pins all that it may, and another one finds no room.
func testNoRoom(t *testing.T) {
	d := newDaemon(t)
	u, other := d.dial("greedy"), d.dial("other")
	p := newPrometheus(t, web("ringcache", d.address))
	p.healthy(func() { u.store(1, 1000) })
	lease := 0
	for {
		lease++
		items, err := u.Reserve(t.Context(), wire.Request{Lease: fmt.Sprint("keep-", lease), Space: space,
			Objects: []wire.Object{{Name: fmt.Sprint("keep-", lease), Size: 256 << 10}}})
		require.NoError(t, err)
		if items[0].Status != wire.StatusReserved {
			break
		}
	}
	p.fires("RingcacheNoRoom", 20*time.Minute, func() { other.store(1, 256<<10) })
	for i := range lease {
		require.NoError(t, u.Release(t.Context(), wire.Request{Leases: []string{fmt.Sprint("keep-", i+1)}}))
	}
	p.ends(10*time.Minute, func() { other.store(1, 100<<10) })
}

// testValuesDropped: values that are larger than the memory.
func testValuesDropped(t *testing.T) {
	dir, err := os.MkdirTemp("", "rc")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	d := newDaemon(t, "--resp", "unix://"+filepath.Join(dir, "resp"))
	l := &load{T: t}
	l.resp, err = net.Dial("unix", filepath.Join(dir, "resp"))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.resp.Close()) }()
	p := newPrometheus(t, web("ringcache", d.address))
	p.healthy(func() { l.command("SET", "key", "value") })
	p.fires("RingcacheValuesDropped", 15*time.Minute, func() {
		before := d.value(`ringcache_values_total{protocol="resp",result="dropped"}`)
		_, err := fmt.Fprintf(l.resp, "*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n%s\r\n", 5<<20, bytes.Repeat([]byte("x"), 5<<20))
		require.NoError(t, err)
		_, err = l.resp.Read(make([]byte, 1000))
		require.NoError(t, err)
		d.until("it is dropped", func() bool { return d.value(`ringcache_values_total{protocol="resp",result="dropped"}`) > before })
	})
	p.ends(20*time.Minute, func() { l.command("SET", "key", "value") })
}

// testRefuses: there are as many connections as there may be.
func testRefuses(t *testing.T) {
	d := newDaemon(t, "--max-connections", "4")
	p := newPrometheus(t, web("ringcache", d.address))
	p.healthy(nil)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			require.NoError(t, c.Close())
		}
	}()
	for range 4 {
		c, err := net.Dial("unix", d.socket)
		require.NoError(t, err)
		conns = append(conns, c)
	}
	p.fires("RingcacheRefuses", 10*time.Minute, func() {
		before := d.value(`ringcache_requests_refused_total{kind="busy"}`)
		d.until("one is refused", func() bool {
			c, err := net.Dial("unix", d.socket)
			require.NoError(t, err)
			q, err := wire.AppendRequest(nil, &wire.Request{ID: 1, Op: wire.Hello, Version: wire.Version, Session: "session-1", Client: "test"})
			require.NoError(t, err)
			_, _ = c.Write(q) // the daemon may have closed it
			_, _ = c.Read(make([]byte, 1000))
			require.NoError(t, c.Close())
			return d.value(`ringcache_requests_refused_total{kind="busy"}`) > before
		})
	})
	require.Contains(t, p.texts("RingcacheRefuses"), "busy")
}

// testSlow: the machine does not run the daemon for a while, in the midst of requests.
func testSlow(t *testing.T) {
	d := newDaemon(t)
	p := newPrometheus(t, web("ringcache", d.address))
	u := d.dial("test")
	p.healthy(func() { u.look([]string{"nobody has it"}) })
	users := make([]*user, 8)
	for i := range users {
		users[i] = d.dial(fmt.Sprint("test ", i))
	}
	p.fires("RingcacheSlow", 20*time.Minute, func() {
		slow := func() float64 {
			return d.value(`ringcache_request_duration_seconds_count{op="pin"}`) -
				d.value(`ringcache_request_duration_seconds_bucket{op="pin",le="0.1"}`)
		}
		before, stop := slow(), make(chan struct{})
		var asking sync.WaitGroup
		for _, u := range users {
			asking.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, err := u.Pin(t.Context(), wire.Request{Lease: "l", Space: space, Names: manyNames})
						if err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		for slow() == before {
			require.NoError(t, d.cmd.Process.Signal(syscall.SIGSTOP))
			time.Sleep(150 * time.Millisecond) // which is the fault
			require.NoError(t, d.cmd.Process.Signal(syscall.SIGCONT))
		}
		close(stop)
		asking.Wait()
	})
}

// manyNames are as many as a request may have.
var manyNames = func() (names []string) {
	for i := range wire.MaxNames {
		names = append(names, fmt.Sprint("nobody has it ", i))
	}
	return names
}()

// testThrashes: what is stored is many times as much as the memory has.
func testThrashes(t *testing.T) {
	d := newDaemon(t)
	u := d.dial("test")
	p := newPrometheus(t, web("ringcache", d.address))
	p.healthy(func() { u.store(1, 1000) })
	p.fires("RingcacheThrashes", 30*time.Minute, func() { u.store(4, 100<<10) })
	p.ends(30*time.Minute, func() { u.store(1, 1000) })
}

// testEngineFailures: an engine's connector calls in vain.
func testEngineFailures(t *testing.T) {
	fails := false
	p := newPrometheus(t, engineTarget(t, func() bool { return fails }))
	p.healthy(nil)
	fails = true
	p.fires("RingcacheEngineFailures", 15*time.Minute, nil)
	fails = false
	p.ends(15*time.Minute, nil)
}
