package main

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/internal/zmtp"
)

var sharedKills = flag.Int("directory.sharedkills", 6, "TestDirectoriesShare: how often processes are killed")

// TestDirectoriesShare: two processes of ringcache directory with one Redis know what a worker reports to either. The
// worker goes on at the other one without a full synchronisation, also after both were killed, and whatever a kill or
// an empty Redis has lost is healed.
func TestDirectoriesShare(t *testing.T) {
	redis := redistest.Start(t)
	hosts := make([]*killedDirectory, 2)
	for i := range hosts {
		d := withSockets(t, "--redis", "redis://"+redis.Addr()+"/1")
		d.start()
		hosts[i] = d
		defer func() {
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait() // the error is the signal
		}()
	}
	kill := func(all ...*killedDirectory) {
		for _, d := range all {
			require.NoError(t, d.cmd.Process.Kill())
			_ = d.cmd.Wait() // the error is the signal
		}
		for _, d := range all {
			d.start()
		}
	}
	w := &reportingWorker{d: hosts[0], conns: map[string]*zmtp.Conn{}}
	defer w.hangUp()
	// says asks a directory, as any client.
	says := func(d *killedDirectory) bool {
		asker := &reportingWorker{d: d, conns: map[string]*zmtp.Conn{}}
		defer asker.hangUp()
		for _, key := range w.keys(false) {
			if asker.held(key) != 0 {
				return false
			}
		}
		all := w.keys(true)
		return len(all) == 0 || asker.held(all...) == int64(len(all))
	}
	agree := func(why string, args ...any) {
		for _, d := range hosts {
			for end := time.Now().Add(time.Minute); !says(d); w.heal(func() {}) { // a heartbeat may be ahead of a report
				require.True(t, time.Now().Before(end), append([]any{why}, args...)...)
			}
		}
	}
	move := func(to *killedDirectory) {
		w.hangUp()
		w.d = to
	}
	rng := rand.New(rand.NewPCG(9, 10))
	w.ask("reply", "RegisterMsg", map[string]any{"ip": "127.0.0.1", "port": 1, "peer_init_url": "here:1"})
	for n := range *sharedKills {
		for range 20 {
			w.report(rng.IntN(killedKeys))
		}
		agree("before kill %d", n)
		was := w.d
		switch n % 3 {
		case 0: // the worker goes on elsewhere
			move(hosts[1-n%2])
			kill(was)
		case 1:
			move(hosts[1-n%2])
			kill(hosts...)
		case 2:
			w.hangUp()
			kill(was)
		}
		require.True(t, says(w.d), "what was told is known after kill %d", n)
		for range 3 {
			w.report(rng.IntN(killedKeys))
		}
		w.heal(func() {})
		agree("after kill %d", n)
	}
	require.Zero(t, w.syncs, "nothing was lost")

	w.report(rng.IntN(killedKeys)) // it may be lost with the directory
	kill(w.d)
	w.hangUp()
	w.report(rng.IntN(killedKeys))
	w.heal(func() {})
	agree("after a kill under reports")

	redis.Restart() // it has nothing any more
	w.report(rng.IntN(killedKeys))
	w.heal(func() {})
	agree("with a new Redis")
	redis.Do("flushall")
	require.Eventually(t, func() bool { return redis.Do("-n", "1", "exists", "directory:ringcache:controller:count") == "1" },
		time.Minute, time.Millisecond, "all is told again")
	kill(hosts...)
	w.hangUp()
	agree("after that all begin with what the Redis has")
	t.Logf("%d full synchronisations", w.syncs)
}

// TestDirectoryWithoutRedis: a Redis that is away keeps nobody from being served, and is told when it is there.
func TestDirectoryWithoutRedis(t *testing.T) {
	redis := redistest.New(t)
	d := withSockets(t, "--redis", "redis://"+redis.Addr())
	d.start()
	defer func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait() // the error is the signal
	}()
	w := &reportingWorker{d: d, conns: map[string]*zmtp.Conn{}}
	defer w.hangUp()
	w.ask("reply", "RegisterMsg", map[string]any{"ip": "127.0.0.1", "port": 1, "peer_init_url": "here:1"})
	w.report(1)
	require.Eventually(t, func() bool { return w.held(2) == 1 }, time.Minute, time.Millisecond)
	redis.Start()
	require.Eventually(t, func() bool { return redis.Do("scard", "directory:ringcache:controller:workers") == "1" },
		time.Minute, 10*time.Millisecond)
}
