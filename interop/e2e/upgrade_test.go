//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// released builds `ringcache` as releases of some versions have it: from a repository with a tag for each. The paths are by
// version.
func released(t *testing.T, versions ...string) map[string]string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git, which gives a program its version")
	}
	tree := t.TempDir()
	in := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = tree
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com",
			"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %q: %s", name, args, out)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	in("sh", "-c", `tar -C "$1" --exclude=./.git --exclude=./bin --exclude=./bench -cf - . | tar -xf -`, "sh", root)
	in("git", "init", "-q")
	out, programs := t.TempDir(), map[string]string{}
	for _, v := range versions {
		require.NoError(t, os.WriteFile(filepath.Join(tree, "RELEASE"), []byte(v), 0o600))
		in("git", "add", "-A")
		in("git", "commit", "-q", "-m", v)
		in("git", "tag", v)
		programs[v] = filepath.Join(out, v)
		in("go", "build", "-trimpath", "-buildvcs=true", "-o", programs[v], "./cmd/ringcache")
	}
	return programs
}

// upgrade ends the server in order, and starts another program in its place.
func (s *cacheServer) upgrade(programs map[string]string, version string) {
	s.t.Helper()
	if s.process != nil {
		s.stop()
	}
	s.program = programs[version]
	s.start()
	out, err := exec.Command(s.program, "serve", "status", "--socket", s.socket).CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	require.Contains(s.t, string(out), fmt.Sprintf("%q at", "ringcache "+version))
}

// TestUpgrade: the programs of two releases, one in the place of the other and back, below engines that go on. All that
// was stored is loaded afterwards, and every token is right, also of what is asked meanwhile.
func TestUpgrade(t *testing.T) {
	const older, newer = "v1.0.0", "v1.1.0"
	programs := released(t, older, newer)
	t.Run("encoder", func(t *testing.T) {
		s := newCacheServer(t, "--disk", t.TempDir())
		s.upgrade(programs, older)
		e := newEncoder(t, encoderSetup{role: "ec_both"}, s)
		all := numbered(0, 24)
		e.does(24, 0, all...)
		for _, to := range []string{newer, older} {
			s.upgrade(programs, to)
			e.recovers("image0")
			e.again(0, 24, all...)
		}

		// Under load.
		stop, upgrades := make(chan struct{}), 0
		var wait sync.WaitGroup
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(300 * time.Millisecond):
					s.upgrade(programs, []string{newer, older}[upgrades%2])
					upgrades++
				}
			}
		})
		asked := 0
		func() {
			defer wait.Wait()
			defer close(stop)
			for began := time.Now(); time.Since(began) < 10*time.Second || asked < 160; asked += 8 {
				e.forget()
				e.right(numbered(asked%97, 8)...)
			}
		}()
		require.Greater(t, upgrades, 3)
		t.Logf("%d images asked for, one release put in the place of the other %d times meanwhile: all tokens right", asked, upgrades)
		e.recovers(all...)
		e.again(0, 24, all...)
		e.end()
		s.idle()
	})
	t.Run("KV", func(t *testing.T) {
		right := kvRight(t)
		folder, err := os.MkdirTemp("", "kv") // short, as paths of sockets have to be
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
		url := "grpc+unix://" + filepath.Join(folder, "kv")
		s := newCacheServer(t, "--lmcache", url, "--lmcache-chunk-size", "64")
		s.upgrade(programs, older)
		e := newLMCache(t, "0.5.7rc2", url)
		steps := func(known bool) {
			t.Helper()
			for i, step := range kvPlan {
				for j, a := range e.ask(step.prompts...) {
					require.Equal(t, right[i][j].Tokens, a.Tokens, "step %d, prompt %d", i, j)
					if known {
						require.Equal(t, step.cached[j], a.Cached, "step %d, prompt %d", i, j)
					}
				}
			}
		}
		steps(false)
		for _, to := range []string{newer, older} {
			s.upgrade(programs, to)
			steps(true)
		}
		e.end()
		s.leaseless()
	})
}
