package doctor

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/objstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plan is a daemon in folders of its own.
func plan(t *testing.T, flags map[string]string) daemon.Config {
	t.Helper()
	all := map[string]string{
		"socket": filepath.Join(t.TempDir(), "s"), "shm-dir": t.TempDir(), "size": "1MiB", "http": "127.0.0.1:0",
	}
	for k, v := range flags {
		all[k] = v
	}
	c, err := daemon.Sources{Flags: all}.Load()
	require.NoError(t, err)
	return c
}

// machine is a file system of path, text, path, text...
func machine(files ...string) fs.FS {
	out := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		out[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return out
}

// about returns what was found about something.
func about(all []Finding, what string) (out []Finding) {
	for _, f := range all {
		if f.About == what {
			out = append(out, f)
		}
	}
	return out
}

// one is the only finding about something.
func one(t *testing.T, all []Finding, what string) Finding {
	t.Helper()
	found := about(all, what)
	require.Len(t, found, 1, what)
	return found[0]
}

func TestHealthyMachine(t *testing.T) {
	t.Setenv("VIRTUAL_ENV", "")
	t.Setenv("CONDA_PREFIX", "")
	c := plan(t, nil)
	all := Run(t.Context(), Options{Config: c, Root: machine()})
	for _, f := range all {
		require.NotEqual(t, slog.LevelError, f.Level, "%+v", f)
	}
	require.Contains(t, one(t, all, "daemon").Text, "no daemon listens at")
	require.Contains(t, about(all, "segments")[0].Text, "0 segments with 0 bytes")
	for _, what := range []string{
		"name", "http", "shared memory", "memory limit", "memlock", "huge pages", "RemoveIPC", "split locks", "python",
	} {
		require.NotEmpty(t, about(all, what), what)
	}
	left, err := os.ReadDir(c.ShmDir)
	require.NoError(t, err)
	require.Empty(t, left, "nothing is left behind")
}

// TestFindings: each thing that is wrong is found, with what repairs it.
func TestFindings(t *testing.T) {
	const (
		cgroup    = "40 31 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
		limit     = "sys/fs/cgroup/memory.max"
		hugePages = "sys/kernel/mm/transparent_hugepage/shmem_enabled"
	)
	t.Setenv("VIRTUAL_ENV", "/venv")
	for name, v := range map[string]struct {
		files   []string
		flags   map[string]string
		about   string
		level   slog.Level
		text    string
		command string
	}{
		"more than the mount": {
			nil, map[string]string{"size": "1024TiB"},
			"shared memory", slog.LevelError, "and the plan takes", "mount -o remount,size=",
		},
		"memory limit": {
			[]string{"proc/self/cgroup", "0::/\n", "proc/self/mountinfo", cgroup, limit, "1000\n"}, nil,
			"memory limit", slog.LevelError, "/sys/fs/cgroup/memory.max allows 1000 bytes, and the plan takes", "",
		},
		"enough memory": {
			[]string{"proc/self/cgroup", "0::/\n", "proc/self/mountinfo", cgroup, limit, "1000000000000\n"}, nil,
			"memory limit", slog.LevelInfo, "are left", "",
		},
		"huge pages denied": {
			[]string{hugePages, "always within_size advise never [deny] force\n"}, nil,
			"huge pages", slog.LevelInfo, "refuses", "echo advise > ",
		},
		"huge pages forced": {
			[]string{hugePages, "always never deny [force]\n"}, nil,
			"huge pages", slog.LevelInfo, "may have huge pages", "",
		},
		"no huge pages": {
			[]string{hugePages, "always [never] deny force\n"}, nil,
			"huge pages", slog.LevelInfo, "without huge pages", "mount -o remount,huge=advise ",
		},
		"split locks fatal": {
			[]string{"proc/cmdline", "quiet split_lock_detect=fatal\n"}, nil,
			"split locks", slog.LevelWarn, "kills programs", "",
		},
		"split locks slow": {
			[]string{"proc/sys/kernel/split_lock_mitigate", "1\n"}, nil,
			"split locks", slog.LevelInfo, "slows", "sysctl kernel.split_lock_mitigate=0",
		},
		"vLLM": {
			[]string{"venv/lib/python3.12/site-packages/vllm-0.32.0+cpu.dist-info/METADATA", ""}, nil,
			"python", slog.LevelInfo, "vLLM 0.32.0+cpu in /venv/lib/python3.12/site-packages", "",
		},
		"newer vLLM": {
			[]string{"venv/lib/python3.12/site-packages/vllm-9.9.0.dist-info/METADATA", ""}, nil,
			"python", slog.LevelWarn, "9.9.0", "pip install vllm==",
		},
		"LMCache": {
			[]string{"usr/lib/python3.11/dist-packages/lmcache-0.5.7rc2.dist-info/METADATA", ""}, nil,
			"python", slog.LevelInfo, "LMCache 0.5.7rc2", "",
		},
		"other LMCache": {
			[]string{"usr/lib/python3.11/dist-packages/lmcache-0.3.1.dist-info/METADATA", ""}, nil,
			"python", slog.LevelWarn, "no others were tried", "pip install lmcache==0.5.6",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := one(t, Run(t.Context(), Options{Config: plan(t, v.flags), Root: machine(v.files...)}), v.about)
			require.Equal(t, v.level, f.Level, "%+v", f)
			require.Contains(t, f.Text, v.text)
			require.True(t, strings.HasPrefix(f.Command, v.command) && (f.Command == "") == (v.command == ""), "%+v", f)
		})
	}
}

func TestRemoveIPC(t *testing.T) {
	const running, conf, drop = "run/systemd/system/x", "etc/systemd/logind.conf", "etc/systemd/logind.conf.d/a.conf"
	for name, v := range map[string]struct {
		files []string
		uid   int
		level slog.Level
	}{
		"the default":   {[]string{running, ""}, 1000, slog.LevelWarn},
		"a system user": {[]string{running, ""}, 999, slog.LevelInfo},
		"off":           {[]string{running, "", conf, "[Login]\nRemoveIPC=no\n"}, 1000, slog.LevelInfo},
		"a comment":     {[]string{running, "", conf, "[Login]\n#RemoveIPC=no\n"}, 1000, slog.LevelWarn},
		"on again in a drop-in": {
			[]string{running, "", conf, "[Login]\nRemoveIPC=no\n", drop, "[Login]\nRemoveIPC=yes\n"},
			1000, slog.LevelWarn,
		},
	} {
		d := &doctor{Options: Options{Root: machine(v.files...)}}
		d.judgeRemoveIPC(v.uid)
		require.Equal(t, v.level, d.found[0].Level, name)
		require.Equal(t, v.level == slog.LevelWarn, d.found[0].Command != "", name)
	}
	d := &doctor{Options: Options{Root: machine()}}
	d.removeIPC()
	require.Contains(t, d.found[0].Text, "systemd does not run here")
}

func TestLockedMemory(t *testing.T) {
	for _, v := range []struct {
		limit uint64
		root  bool
		text  string
	}{
		{8 << 20, true, "root may"},
		{1<<64 - 1, false, "any amount"},
		{64 << 10, false, "less than the segment"},
		{8 << 30, false, "8.00 GiB may be locked"},
	} {
		d := &doctor{Options: Options{Config: plan(t, nil)}}
		d.judgeLocked(v.limit, v.root)
		require.Contains(t, d.found[0].Text, v.text)
	}
}

// TestLeftovers: what processes left is found with the command that removes it; what lives, and what the
// daemon takes over, is none.
func TestLeftovers(t *testing.T) {
	c := plan(t, nil)
	w, err := objstore.CreatePool(objstore.Options{
		Name: "alive", Dir: c.ShmDir, RingSize: 4096, MaxObjectSize: 1024, Readers: 1,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.CheckStructure()); require.NoError(t, w.Abandon()) }()
	require.NoError(t, os.WriteFile(filepath.Join(c.ShmDir, "it's.ctl"), []byte("x"), 0o600))
	foreign := filepath.Join(c.ShmDir, "VLLM_OBJECT_STORAGE_SHM_BUFFER_1")
	require.NoError(t, os.WriteFile(foreign, make([]byte, 4096), 0o600))
	l, err := net.Listen("unix", c.Socket)
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	all := Run(context.Background(), Options{Config: c, Root: machine()})
	found := about(all, "segments")
	require.Len(t, found, 2)
	require.Equal(t, "rm "+foreign, found[0].Command)
	require.Equal(t, `ringcache sweep 'it'\''s' --any-owner --remove --dir `+c.ShmDir, found[1].Command)
	require.Len(t, about(all, "socket"), 2, "of serve check, and what was left")
	require.Contains(t, about(all, "daemon")[0].Text, "no daemon listens")
}
