package browser

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

var (
	command = flag.String("command", "", "The command ringcache; without it one is built.")
	busy    = flag.Duration("busy", 20*time.Second, "How long there is load before the picture of a busy daemon.")
	images  = flag.String("images", "", "Folder for the pictures; they are made, and not kept, without it.")
)

// TestMain builds the command.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if *command != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "ringcache")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		*command = filepath.Join(dir, "ringcache")
		build := exec.Command("go", "build", "-o", *command, "./cmd/ringcache")
		build.Dir = filepath.Join("..", "..")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stdout, build.Stderr = os.Stdout, os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "building ringcache:", err)
			return 1
		}
		return m.Run()
	}())
}

// served is a daemon.
type served struct {
	testing.TB
	dir, http string
	args      []string
	cmd       *exec.Cmd
}

// serve starts a daemon, which ends with the test. Its folder is in memory where there is a place for it.
func serve(t testing.TB, args ...string) *served {
	t.Helper()
	parent := "/dev/shm"
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "ringcache")
	require.NoError(t, err)
	d := &served{TB: t, dir: dir, http: freeAddress(t)}
	d.args = append([]string{
		"serve", "--name", "ringcache", "--shm-dir", dir, "--socket", d.socket(), "--disk", filepath.Join(dir, "disk"), "--http", d.http,
	}, args...)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "disk"), 0o700))
	t.Cleanup(func() {
		d.end()
		require.NoError(t, os.RemoveAll(dir))
	})
	d.start()
	return d
}

func (d *served) socket() string { return filepath.Join(d.dir, "socket") }
func (d *served) url() string    { return "http://" + d.http + "/page/" }

func (d *served) start() {
	d.Helper()
	d.cmd = exec.Command(*command, d.args...)
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(d, err)
	defer log.Close()
	d.cmd.Stdout, d.cmd.Stderr = log, log
	require.NoError(d, d.cmd.Start())
	d.eventually("it serves", func() bool {
		resp, err := http.Get("http://" + d.http + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func (d *served) end() {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.cmd.Wait(); err != nil {
		text, _ := os.ReadFile(filepath.Join(d.dir, "log"))
		d.Errorf("the daemon ended with %v:\n%s", err, text)
	}
	d.cmd = nil
}

// eventually waits for what another process does.
func (d *served) eventually(what string, is func() bool) {
	d.Helper()
	for begin := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 3*time.Minute {
			text, _ := os.ReadFile(filepath.Join(d.dir, "log"))
			d.Fatalf("%s: it did not come to that; the log of the daemon:\n%s", what, text)
		}
	}
}

// freeAddress returns an address on loopback where nobody listened a moment ago.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// dial connects a client of this name.
func (d *served) dial(name string) *client.Client {
	d.Helper()
	c, err := client.Dial(context.Background(), client.Options{Socket: d.socket(), Name: name})
	require.NoError(d, err)
	return c
}

// store stores objects, and keeps them under a lease if that has a name.
func (d *served) store(c *client.Client, lease, space string, size int64, names ...string) {
	d.Helper()
	require.NoError(d, store(context.Background(), c, lease, space, size, names...))
}

func store(ctx context.Context, c *client.Client, lease, space string, size int64, names ...string) error {
	keep := lease != ""
	if !keep {
		lease = "storing"
	}
	objects := make([]wire.Object, len(names))
	for i, n := range names {
		objects[i] = wire.Object{Name: n, Size: size}
	}
	items, err := c.Reserve(ctx, wire.Request{Lease: lease, Space: space, Objects: objects})
	if err != nil {
		return err
	}
	var reserved []string
	for i, it := range items {
		if it.Status == wire.StatusReserved {
			reserved = append(reserved, names[i])
		}
	}
	if len(reserved) > 0 {
		_, err = c.Commit(ctx, wire.Request{Lease: lease, Space: space, Names: reserved, Keep: keep})
	}
	return err
}

// load has sessions ask for objects, of which some are asked for more than others, and store what is a miss.
func (d *served) load() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for i, name := range []string{"vllm 0.33.0 worker 0", "vllm 0.33.0 worker 1", "vllm 0.33.0 scheduler", "warm"} {
		c := d.dial(name)
		work.Go(func() {
			defer c.Close()
			random := rand.New(rand.NewPCG(1, uint64(i)))
			ticks := time.NewTicker(20 * time.Millisecond)
			defer ticks.Stop()
			for turn := 0; ; turn++ {
				select {
				case <-ctx.Done():
					return
				case <-ticks.C:
				}
				lease := fmt.Sprintf("request-%d", turn%(4+4*i))
				at := min(random.ExpFloat64()*400, 5000)
				key := fmt.Sprintf("%064x", int64(at)+int64(turn/3000)*50)
				items, err := c.Pin(ctx, wire.Request{Lease: lease, Space: "llava-1.5 bfloat16", Names: []string{key}, Seconds: 60})
				switch {
				case err != nil:
				case items[0].Status == wire.StatusMiss, items[0].Status == wire.StatusUnavailable:
					_ = store(ctx, c, "", "llava-1.5 bfloat16", 20<<10+int64(at), key) // without room it is not stored
				}
				if turn%5 == 4 {
					_ = c.Release(ctx, wire.Request{Leases: []string{fmt.Sprintf("request-%d", (turn+1)%(4+4*i))}})
				}
			}
		})
	}
	return func() {
		cancel()
		work.Wait()
	}
}

// chromium returns the browser and its environment, or skips the test.
func chromium(t testing.TB) (path string, env []string) {
	t.Helper()
	root := os.Getenv("RINGCACHE_TEST_CHROMIUM")
	if root == "" {
		t.Skip("RINGCACHE_TEST_CHROMIUM is not the folder that scripts/fetch-chromium.sh prints: use make test-browser")
	}
	libraries, err := os.ReadFile(filepath.Join(root, "libraries"))
	require.NoError(t, err)
	return filepath.Join(root, "usr/lib/chromium/chromium-headless-shell"), []string{
		"LD_LIBRARY_PATH=" + strings.TrimSpace(string(libraries)), "FONTCONFIG_FILE=" + filepath.Join(root, "fonts.conf"),
	}
}
