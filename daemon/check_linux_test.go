package daemon

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmstore"
)

// everything lists what is below folders.
func everything(t *testing.T, folders ...string) (all []string) {
	t.Helper()
	for _, folder := range folders {
		require.NoError(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			all = append(all, path)
			return err
		}))
	}
	return all
}

// TestServeCheckFindsWhatFails: each thing that keeps a daemon from its start is found before, with what the
// daemon would say, and nothing is left or changed.
func TestServeCheckFindsWhatFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	closed := filepath.Join(t.TempDir(), "closed")
	require.NoError(t, os.Mkdir(closed, 0o500))
	served := testRunner(t)
	left := testConfig(t) // with a segment and a disk that a daemon left
	l, err := left.open(t.Context(), quiet(), nil)
	require.NoError(t, err)
	l.fresh = false
	require.NoError(t, l.close())
	root := os.Geteuid() == 0
	// adopted gives a configuration a segment of its own that a daemon left.
	adopted := func(c *Config) {
		l, err := c.open(t.Context(), quiet(), nil)
		require.NoError(t, err)
		l.fresh = false
		require.NoError(t, l.close())
	}
	copyLeft := func(c *Config, suffix string) {
		b, err := os.ReadFile(filepath.Join(left.ShmDir, left.Name+suffix))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(c.ShmDir, c.Name+suffix), b, 0o600))
	}

	for name, v := range map[string]struct {
		change  func(*Config)
		key     string // "" is that nothing is wrong
		text    string
		skipped bool
	}{
		"nothing":                    {change: func(*Config) {}},
		"all is made":                {change: func(c *Config) { c.Socket += "/a/b"; c.Disk += "/a/b/c" }},
		"no disk, no http":           {change: func(c *Config) { c.Disk, c.HTTP = "", "off" }},
		"what a daemon left":         {change: func(c *Config) { *c = left }},
		"no memory":                  {change: func(c *Config) { c.Size = 1 << 60 }, key: "name", text: "to make it fit"},
		"no folder of memory":        {change: func(c *Config) { c.ShmDir += "/none" }, key: "name", text: "shm-dir: "},
		"segment of another size":    {change: func(c *Config) { *c = left; c.Size *= 2 }, key: "name", text: "keep it by size: 1MiB"},
		"segment of another program": {change: func(c *Config) { require.NoError(t, os.WriteFile(filepath.Join(c.ShmDir, c.Name), []byte("x"), 0o600)) }, key: "name", text: "is no segment that a daemon of this user made"},
		"damaged sidecar": {change: func(c *Config) {
			require.NoError(t, os.WriteFile(filepath.Join(c.ShmDir, c.Name+".ctl"), []byte("x"), 0o600))
		}, key: "name", text: "not a usable sidecar"},
		"sidecar without a segment": {change: func(c *Config) { copyLeft(c, ".ctl") }},
		"sidecar without a segment, and no memory": {change: func(c *Config) {
			copyLeft(c, ".ctl")
			c.Size = 1 << 60
		}, key: "name", text: "to make it fit"},
		"leases that are a folder": {change: func(c *Config) {
			require.NoError(t, os.Mkdir(filepath.Join(c.ShmDir, c.Name+".leases"), 0o700))
		}, key: "name", text: ".leases is something else; remove it"},
		"leases of a segment that are a folder": {change: func(c *Config) {
			adopted(c)
			require.NoError(t, os.Remove(filepath.Join(c.ShmDir, c.Name+".leases")))
			require.NoError(t, os.Mkdir(filepath.Join(c.ShmDir, c.Name+".leases"), 0o700))
		}, key: "name", text: "leasetable: opening: "},
		"leases that are a file of something else": {change: func(c *Config) {
			require.NoError(t, os.WriteFile(filepath.Join(c.ShmDir, c.Name+".leases"), []byte("something else"), 0o600))
		}, key: "name", text: ".leases is something else; remove it"},
		"segment that was cut": {change: func(c *Config) {
			adopted(c)
			require.NoError(t, os.Truncate(filepath.Join(c.ShmDir, c.Name), 100))
		}, key: "name", text: "it was cut short, or something else made it"},
		"segment of another format": {change: func(c *Config) {
			s, err := shmstore.Create(shmstore.Options{Name: c.Name, Dir: c.ShmDir, Size: int(c.Size), Format: "other"})
			require.NoError(t, err)
			require.NoError(t, s.Yield())
		}, key: "name", text: "something else made it"},
		"segment of another daemon":   {change: func(c *Config) { c.ShmDir = served.config.ShmDir }, key: "name", text: "serves the segment ringcache-test: end it, or"},
		"disk of another daemon":      {change: func(c *Config) { c.Disk = served.config.Disk }, key: "disk", text: "another process has this root"},
		"disk that is a file":         {change: func(c *Config) { c.Disk = file }, key: "disk", text: "disk " + file},
		"disk below a file":           {change: func(c *Config) { c.Disk = file + "/folder" }, key: "disk", text: "disk " + file},
		"disk with strangers":         {change: func(c *Config) { c.Disk = filepath.Dir(file) }, key: "disk", text: "is no root, and not empty"},
		"disk of another space":       {change: func(c *Config) { *c = left; c.Disk += "?space=other" }, key: "disk", text: "is a root for every space"},
		"disk that can't be made":     {change: func(c *Config) { c.Disk = closed + "/folder" }, key: "disk", text: "can't be made by the user", skipped: root},
		"disk that can't be written":  {change: func(c *Config) { c.Disk = closed }, key: "disk", text: "can't be written to by the user", skipped: root},
		"disk on no real disk":        {change: func(c *Config) { c.Disk = "/proc/ringcache" }, key: "disk", text: "disk /proc/ringcache: "},
		"socket of another daemon":    {change: func(c *Config) { c.Socket = served.config.Socket }, key: "socket", text: "has the socket " + served.config.Socket},
		"socket that is a file":       {change: func(c *Config) { c.Socket = file }, key: "socket", text: "is no socket, but a file"},
		"socket that can't be made":   {change: func(c *Config) { c.Socket = closed + "/a/s" }, key: "socket", text: "can't be made by the user", skipped: root},
		"socket whose folder is none": {change: func(c *Config) { c.Socket = file + "/s" }, key: "socket", text: "folder of the socket"},
		"http is taken":               {change: func(c *Config) { c.HTTP = taken.Addr().String() }, key: "http", text: "give another address by http, or off"},
		"http of another machine":     {change: func(c *Config) { c.HTTP, c.HTTPAny = "192.0.2.1:80", true }, key: "http", text: "192.0.2.1:80"},
		"http by TLS":                 {change: newAuthority(t).encrypt},
		"profiles":                    {change: func(c *Config) { c.PProf = "127.0.0.1:0" }},
		"pprof is taken":              {change: func(c *Config) { c.PProf = taken.Addr().String() }, key: "pprof", text: "give another address"},
	} {
		t.Run(name, func(t *testing.T) {
			if v.skipped {
				t.Skip("nothing is forbidden to root")
			}
			c := testConfig(t)
			c.Socket = filepath.Join(filepath.Dir(c.Socket), "s")
			v.change(&c)
			folders := []string{
				t.TempDir(),
				filepath.Dir(file),
				closed,
				served.config.ShmDir,
				served.config.Disk,
				filepath.Dir(served.config.Socket),
				left.ShmDir,
				left.Disk,
			}
			if _, err := os.Stat(c.ShmDir); err == nil {
				folders = append(folders, c.ShmDir)
			}
			before := everything(t, folders...)
			found := c.Check(t.Context())
			require.Equal(t, before, everything(t, folders...))
			if c.Socket != served.config.Socket {
				require.NoFileExists(t, c.Socket+".lock")
			}
			var wrong []Finding
			for _, f := range found {
				if f.Level == slog.LevelError {
					wrong = append(wrong, f)
				}
			}
			if v.key == "" {
				require.Empty(t, wrong)
				for _, key := range []string{"max-connections", "name", "socket", "http"} {
					require.Equal(t, slog.LevelInfo, about(found, key)[0].Level)
				}
			} else {
				require.Len(t, wrong, 1)
				require.Equal(t, v.key, wrong[0].Key)
				require.Contains(t, wrong[0].Text, v.text)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := newRunner(RunOptions{Config: c, Log: cancelAt{"msg=serving", cancel}})
			err := r.run(ctx)
			if v.key == "" {
				require.NoError(t, err, "a daemon starts")
			} else {
				require.Error(t, err, "a daemon does not start")
			}
		})
	}
}

// TestServeCheckOfCertificates: what HTTP asks for is said, and a certificate that clients refuse is a warning.
func TestServeCheckOfCertificates(t *testing.T) {
	a := newAuthority(t)
	c := testConfig(t)
	a.encrypt(&c)
	c.HTTPClientCA = write(t, a.pem())
	require.NoError(t, c.Validate())
	found := about(c.Check(t.Context()), "http")[0]
	require.Equal(t, slog.LevelInfo, found.Level)
	require.Contains(t, found.Text, "is free, by TLS with a certificate of the client")
	cert, key := a.sign("daemon", time.Now().Add(-time.Minute))
	c.HTTPCert, c.HTTPCertKey = write(t, cert), write(t, key)
	require.NoError(t, c.Validate(), "the daemon starts")
	found = about(c.Check(t.Context()), "http")[0]
	require.Equal(t, slog.LevelWarn, found.Level)
	require.Contains(t, found.Text, "clients refuse this certificate: renew it")
}

// TestServeCheckOfARedisThatIsAway: the daemon starts without it, so it is a warning.
func TestServeCheckOfARedisThatIsAway(t *testing.T) {
	c := testConfig(t)
	c.Redis = "unix://" + filepath.Join(t.TempDir(), "none")
	got := about(c.Check(t.Context()), "redis")
	require.Len(t, got, 1)
	require.Equal(t, slog.LevelWarn, got[0].Level)
	require.Contains(t, got[0].Text, "the Redis does not answer")
	c.Redis = "redis+nonsense://x"
	got = about(c.Check(t.Context()), "redis")
	require.Len(t, got, 1)
	require.Equal(t, slog.LevelError, got[0].Level)
}
