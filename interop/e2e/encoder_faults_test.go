//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
)

// TestEncoderFaults: the server is away when the engine starts, comes, is killed and started again under
// load, is stopped, and loses its memory. Every token is right, and what some level still has is loaded.
func TestEncoderFaults(t *testing.T) {
	s := newCacheServer(t, "--disk", t.TempDir())
	// A call that is not answered is a miss after 0.2 s, which is the connector's default.
	e := newEncoder(t, encoderSetup{role: "ec_both", extra: map[string]any{"timeout": 0.2}}, s)
	e.does(1, 0, "image0")
	e.again(2, 0, "image0", "image1")
	s.start()
	e.recovers("image0", "image1")

	// Killed under load.
	all := numbered(0, 40)
	e.right(all...)
	e.recovers(all...)
	stop, kills := make(chan struct{}), 0
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
				s.restart()
				kills++
			}
		}
	})
	asked := 0
	func() {
		defer wait.Wait()
		defer close(stop)
		for began := time.Now(); time.Since(began) < 15*time.Second || asked < 400; asked += 8 {
			e.forget()
			e.right(numbered(asked%97, 8)...)
		}
	}()
	require.Greater(t, kills, 3)
	t.Logf("%d images asked for, the server killed %d times meanwhile: all tokens right", asked, kills)
	e.recovers(all...)
	e.again(0, 40, all...)

	// Stopped: it takes connections, and does not answer.
	s.signal(syscall.SIGSTOP)
	began := time.Now()
	e.again(4, 0, numbered(0, 4)...)
	t.Logf("4 images without an answer of the server: %.1f s", time.Since(began).Seconds())
	e.does(1, 0, "image150")
	s.signal(syscall.SIGCONT)
	e.recovers(all...)

	// As after a restart of the machine.
	s.stop()
	s.loseMemory()
	s.start()
	e.recovers("image0")
	e.again(0, 40, all...)
	e.end()

	e = newEncoder(t, encoderSetup{role: "ec_both"}, s)
	e.does(0, 40, all...)
	e.end()
	s.idle()
}

// TestEncoderRedis: memory and disk are gone, and Redis has everything.
func TestEncoderRedis(t *testing.T) {
	redis, disk := redistest.Start(t), filepath.Join(t.TempDir(), "disk")
	s := newCacheServer(t, "--disk", disk, "--redis", redis.Addr())
	s.start()
	e := newEncoder(t, encoderSetup{role: "ec_both"}, s)
	all := numbered(0, 24)
	e.does(24, 0, all...)
	for range 2 {
		s.stop()
		s.loseMemory()
		require.NoError(t, os.RemoveAll(disk))
		s.start()
		e.recovers("image0")
		e.again(0, 24, all...)
	}
	// Redis is away as well.
	redis.Kill()
	s.stop()
	s.loseMemory()
	require.NoError(t, os.RemoveAll(disk))
	s.start()
	e.again(24, 0, all...)
	e.recovers(all...)
	e.end()
	s.idle()
}
