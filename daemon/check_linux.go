package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/daemon/internal/lmcache"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/lmcache/lm"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/tier/memory"
)

// Check looks at everything that a daemon of this configuration opens, by the same functions as far as they
// change nothing, and returns a Finding for each, and the Hints. What is damaged within a segment or a disk,
// and costs objects only, is found when they are opened. It leaves nothing behind; folders and files that it
// makes are gone when it returns. Beside a daemon that runs it finds that the daemon has what it needs.
func (c Config) Check(ctx context.Context) []Finding {
	var f findings
	look := func(key string, check func() (string, error)) {
		switch text, err := check(); {
		case errors.Is(err, errNoAnswer), errors.Is(err, errFolderAway), errors.Is(err, errNoSource),
			errors.Is(err, lmcache.ErrState), errors.Is(err, errCertificateTime):
			f.add(slog.LevelWarn, key, "%v", err)
		case err != nil:
			f.add(slog.LevelError, key, "%v", err)
		default:
			f.add(slog.LevelInfo, key, "%s", text)
		}
	}
	look("max-connections", func() (string, error) {
		x := c.files()
		l, _ := x.fit(c.configured())
		return fmt.Sprintf("this process may open %d files, enough for %d connections", x.all, l.MaxConnections),
			checkFiles(c)
	})
	look("name", c.checkSegment)
	for _, x := range c.lower() {
		if x.place != "" {
			look(x.key, func() (string, error) { return x.check(ctx) })
		}
	}
	look("socket", c.checkSocket)
	for _, text := range c.LMCache {
		look("lmcache", func() (string, error) { return checkLMCache(ctx, text) })
	}
	if len(c.LMCache) > 0 {
		look("lmcache", func() (string, error) { return lmcache.CheckState(lmcacheFile(c)) })
	}
	for _, x := range c.valueProtocols() {
		for _, text := range x.addresses {
			look(x.key, func() (string, error) {
				network, address, err := parseValueAddress(text, c.ValuesAny)
				if err != nil {
					return "", err
				}
				return checkAddress(ctx, x.key, network, address)
			})
		}
	}
	if c.LMFrom != "" {
		look("lm-from", func() (string, error) { return checkLMFrom(ctx, c.LMFrom) })
	}
	look("http", func() (string, error) {
		if c.HTTP == httpOff {
			return "off", nil
		}
		l, err := listenHTTP(c, ctx)
		if err != nil {
			return "", err
		}
		text := c.HTTP + " is free"
		if keys, _ := httpKeys(c); len(keys) > 0 { // they are validated
			text += fmt.Sprintf(", and one of %d keys opens it", len(keys))
		}
		if encrypted, _ := c.httpTLS(); encrypted != nil { // validated, too
			text += ", by TLS"
			if encrypted.ClientCAs != nil {
				text += " with a certificate of the client"
			}
			err = checkCertificate(encrypted, time.Now())
		}
		return text, errors.Join(err, l.Close())
	})
	if c.PProf != "" {
		look("pprof", func() (string, error) { return checkAddress(ctx, "pprof", "tcp", c.PProf) })
	}
	return append(f, c.Hints()...)
}

// checkSegment looks at the segment that is there, or at the room for a new one.
func (c Config) checkSegment() (string, error) {
	dir := cmp.Or(c.ShmDir, shmfile.DefaultDir)
	if err := tryFolder(dir, false); err != nil {
		return "", fmt.Errorf("shm-dir: %w", err)
	}
	_, segmentErr := os.Lstat(filepath.Join(dir, c.Name))
	there := segmentErr == nil
	f, err := sidecar.OpenToLook(c.ShmDir, c.Name)
	switch {
	case err == nil:
		err = errors.Join(checkSidecar(c, f, there), f.Close())
	case errors.Is(err, segment.ErrForeign) && !there:
		err = nil
	}
	if err == nil && there {
		err = checkContent(c)
	}
	if err == nil {
		err = leasetable.Check(c.ShmDir, c.Name, there)
	}
	switch {
	case err != nil:
		return "", explainMemory(c, err)
	case there:
		return fmt.Sprintf("the segment %s of %s is in %s, and is taken over", c.Name, sizes.Format(c.Size), dir), nil
	}
	return fmt.Sprintf("the segment %s of %s is made in %s", c.Name, sizes.Format(c.Size), dir), checkRoom(c)
}

// checkSidecar looks at the sidecar of a segment, which may be what was left of one that is gone.
func checkSidecar(c Config, f *sidecar.File, there bool) error {
	alive, err := f.Alive()
	switch {
	case err != nil:
		return err
	case alive:
		return segment.ErrOwned
	case there && int64(f.Options().RingSize) != c.Size:
		return segment.ErrSize
	}
	return nil
}

// checkContent looks at a segment that nobody serves: whether it is as long as its sidecar says, and a memory level.
func checkContent(c Config) error {
	l, err := memory.Look(c.Name, c.ShmDir)
	if err != nil {
		return err
	}
	return l.Close()
}

// checkSocket looks at our socket.
func (c Config) checkSocket() (string, error) {
	if os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) {
		return "the service manager has opened it", nil
	}
	return tryPath(c.Socket, "socket")
}

// checkLMCache looks at an address of LMCache's protocol.
func checkLMCache(ctx context.Context, text string) (string, error) {
	a, err := parseLMCache(text)
	if err != nil {
		return "", err
	}
	return checkAddress(ctx, "lmcache", a.network, a.address)
}

// errNoSource is of an lm-from that is away, without which the daemon starts.
var errNoSource = errors.New(
	"the server does not answer; the daemon starts without it, and asks it again for each value")

// checkLMFrom asks the server that is drained whether it is there.
func checkLMFrom(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := lm.NewClient(lm.ClientOptions{Address: address})
	if err := errors.Join(client.Health(ctx), client.Close()); err != nil {
		return "", fmt.Errorf("%w: lm:// at %s: %w", errNoSource, address, err)
	}
	return "lm:// at " + address + " answers", nil
}

// errCertificateTime is of a certificate with which the daemon starts, and which clients refuse.
var errCertificateTime = errors.New(
	"http-cert: clients refuse this certificate: renew it, and the daemon reads it by itself")

// checkCertificate looks at the time of the certificate of HTTP.
func checkCertificate(c *tls.Config, now time.Time) error {
	leaf := c.Certificates[0].Leaf
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return fmt.Errorf("%w: it is for the time from %s to %s", errCertificateTime,
			leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// checkAddress looks at an address of a unix socket or of TCP. key is the setting.
func checkAddress(ctx context.Context, key, network, address string) (string, error) {
	if network == "unix" {
		return tryPath(address, key)
	}
	l, err := listenTCP(ctx, key, address)
	if err != nil {
		return "", err
	}
	return address + " is free", l.Close()
}

// tryPath looks at the folder of a socket, at its lock, and for somebody who listens. It makes no socket: clients
// might connect. key is the setting.
func tryPath(path, key string) (string, error) {
	if err := tryFolder(filepath.Dir(path), true); err != nil {
		return "", fmt.Errorf("the folder of the socket: %w; make it for this user, or give another path by %s",
			err, key)
	}
	lock, err := tryLockSocket(path, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	default:
		if err := errors.Join(shmfile.Unlock(lock), lock.Close()); err != nil {
			return "", err
		}
	}
	stale, err := isStale(path)
	if stale {
		return path + " was left by a daemon that is dead, and is replaced", err
	}
	return path + " is free", err
}

// tryFolder makes and locks a file in a folder, and removes it again. create makes the folder first, as far
// as it is missing, and removes what it has made.
func tryFolder(folder string, create bool) (err error) {
	if _, statErr := os.Stat(folder); create && errors.Is(statErr, fs.ErrNotExist) && filepath.Dir(folder) != folder {
		return makeFolder(folder, func() error { return tryFolder(folder, false) })
	}
	// Without a name, so that nothing can be left.
	fd, err := unix.Open(folder, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	var f *os.File
	if err == nil {
		f = os.NewFile(uintptr(fd), folder)
	} else if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) { // the file system can't
		if f, err = os.CreateTemp(folder, ".ringcache-check-*"); err == nil {
			defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
		}
	}
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
			return fmt.Errorf("the folder %s can't be written to by the user %d: %w; use a volume of this user (in Kubernetes fsGroup, or an init container that changes the owner), or another folder", folder, os.Geteuid(), err)
		}
		return fmt.Errorf("the folder %s can't be used: %w", folder, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := shmfile.TryLock(f); err != nil {
		return fmt.Errorf("files in %s can't be locked: %w", folder, err)
	}
	return nil
}

// makeFolder makes a folder that is missing, with those above it, for a moment.
func makeFolder(folder string, use func() error) (err error) {
	above := filepath.Dir(folder)
	if _, statErr := os.Stat(above); errors.Is(statErr, fs.ErrNotExist) && above != folder {
		return makeFolder(above, func() error { return makeFolder(folder, use) })
	}
	switch err := os.Mkdir(folder, 0o700); {
	case errors.Is(err, fs.ErrExist): // somebody else was faster
		return use()
	case err != nil:
		return fmt.Errorf("the folder %s can't be made by the user %d: %w", folder, os.Geteuid(), err)
	}
	err = use()
	if rmErr := os.Remove(folder); !errors.Is(rmErr, unix.ENOTEMPTY) { // somebody uses it by now
		err = errors.Join(err, rmErr)
	}
	return err
}
