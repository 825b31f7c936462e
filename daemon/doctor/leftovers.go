package doctor

import (
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sizes"
)

// leftovers looks for segments and a socket whose owners are gone.
func (d *doctor) leftovers() {
	found, err := inspect.List(inspect.Options{Dir: d.Config.ShmDir})
	if err != nil {
		d.add(slog.LevelError, "segments", "", "%v", err)
		return
	}
	left, bytes := 0, int64(0)
	for _, s := range found {
		bytes += max(s.Bytes, 0)
		planned := s.Name == d.Config.Name
		switch {
		case s.State == inspect.Orphan && planned:
			d.add(slog.LevelInfo, "segments", "ringcache serve",
				"%s was left by a daemon that was killed; the next one takes over its %d objects", s.Name, s.Objects)
		case s.State == inspect.Orphan:
			left++
			d.add(slog.LevelWarn, "segments", d.sweep(s.Name),
				"%s (%s, owner %q) was left by a process that was killed: "+
					"start its service again, or remove it", s.Name, sizes.Text(s.Bytes), s.Owner)
		case s.State == inspect.Damaged:
			left++
			d.add(slog.LevelWarn, "segments", d.sweep(s.Name), "%s is damaged: %s", s.Name, s.Problem)
		case s.State == inspect.Foreign && len(s.OpenBy) == 0:
			left++
			d.add(slog.LevelWarn, "segments", "rm "+quote(filepath.Join(d.shmDir(), s.Name)),
				"%s (%s) is a ring without an owner: no process that this user can see has it open",
				s.Name, sizes.Text(s.Bytes))
		case s.State == inspect.Denied:
			d.add(slog.LevelInfo, "segments", "", "%s can't be looked at: %s", s.Name, s.Problem)
		}
		if s.DeadReaders > 0 && s.State == inspect.Alive {
			d.add(slog.LevelInfo, "segments", "",
				"%d readers of %s have died with a slot; its writer takes the slots back when it needs room",
				s.DeadReaders, s.Name)
		}
	}
	if left == 0 {
		d.add(slog.LevelInfo, "segments", "",
			"%d segments with %s in %s, none without an owner", len(found), sizes.Text(bytes), d.shmDir())
	}
	if d.runs {
		return
	}
	if state, err := daemon.SweepSocket(d.Config.Socket, false); err == nil && state == "stale" {
		d.add(slog.LevelInfo, "socket", "ringcache serve",
			"%s was left by a daemon that is dead; the next one replaces it", d.Config.Socket)
	}
}

// sweep is the command that removes a segment.
func (d *doctor) sweep(name string) string {
	command := shmfile.SweepCommand(quote(name))
	if d.Config.ShmDir != "" {
		command += " --dir " + quote(d.Config.ShmDir)
	}
	return command
}

// quote makes a text one word of a shell.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_./:@=+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
