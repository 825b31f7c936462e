package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// Finding is something that was looked at.
type Finding struct {
	// Level is Info if all is right, Warn if something suffers, Error if the daemon would not start, or does
	// not answer.
	Level slog.Level
	// About is a setting of the daemon, or a short name of what was looked at.
	About string
	// Text is what was found, and if that is not right, what it does.
	Text string
	// Command repairs it, or would make it better where all is right. It is empty where Text has what to do.
	Command string
}

// Options say what to look at.
type Options struct {
	// Config is the plan: the daemon that runs here, or is to run.
	Config daemon.Config
	// Environments are folders of Python environments, such as a venv, that are searched for vLLM and LMCache
	// beside those of the system and of the variables VIRTUAL_ENV and CONDA_PREFIX.
	Environments []string
	// Root is the file system at "/"; nil is this machine's. Tests have another one.
	Root fs.FS
}

// answerTime is the longest wait for a daemon that runs.
const answerTime = 10 * time.Second

// Run looks at everything.
func Run(ctx context.Context, o Options) []Finding {
	if o.Root == nil {
		o.Root = os.DirFS("/")
	}
	d := &doctor{Options: o}
	if d.daemonRuns(ctx) {
		for _, f := range o.Config.Hints() {
			d.add(f.Level, cmp.Or(f.Key, "machine"), "", "%s", f.Text)
		}
	} else {
		for _, f := range o.Config.Check(ctx) {
			d.add(f.Level, cmp.Or(f.Key, "machine"), "", "%s", f.Text)
		}
	}
	d.mount()
	d.memoryLimit()
	d.lockedMemory()
	d.hugePages()
	d.removeIPC()
	d.splitLocks()
	d.python()
	d.leftovers()
	return d.found
}

// doctor collects findings.
type doctor struct {
	Options
	runs  bool // a daemon has the socket
	found []Finding
}

func (d *doctor) add(level slog.Level, about, command, format string, args ...any) {
	d.found = append(d.found, Finding{level, about, fmt.Sprintf(format, args...), command})
}

// daemonRuns asks the daemon at the socket.
func (d *doctor) daemonRuns(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	socket := d.Config.Socket
	c, err := client.Dial(ctx, client.Options{Socket: socket, Name: "ringcache doctor"})
	if err == nil {
		_, err = c.Stat(ctx, wire.Request{})
		err = errors.Join(err, c.Close())
	}
	refused := (*wire.Error)(nil)
	switch {
	case err == nil:
		d.add(slog.LevelInfo, "daemon", "", "a daemon answers at %s", socket)
	case errors.As(err, &refused):
		d.add(slog.LevelWarn, "daemon", "ringcache serve status --socket "+quote(socket),
			"the daemon at %s refuses to answer: %s", socket, refused.Text)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		d.add(slog.LevelInfo, "daemon", "ringcache serve",
			"no daemon listens at %s; below is whether one would start", socket)
		return false
	case errors.Is(err, context.DeadlineExceeded):
		d.add(slog.LevelError, "daemon", "",
			"something has the socket %s, and does not answer within %v: look at its log, and start it anew",
			socket, answerTime)
	default:
		d.add(slog.LevelWarn, "daemon", "", "what is at %s is no daemon that this user can ask: %v", socket, err)
		return false
	}
	d.runs = true
	return true
}

// shmDir is the directory of shared memory.
func (d *doctor) shmDir() string { return cmp.Or(d.Config.ShmDir, shmfile.DefaultDir) }
