package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/folder"
)

// errNoAnswer is of a level that is away, without which the daemon starts.
var errNoAnswer = errors.New("does not answer; the daemon starts without it, and asks it again in the background")

// errFolderAway is of a shared folder that is away, without which the daemon starts.
var errFolderAway = errors.New("the shared folder does not answer; the daemon starts without it, and asks it again in the background")

// checkTime is the longest wait for a level that is checked.
const checkTime = 10 * time.Second

// checkDisk looks at the folder of the disk.
func (c Config) checkDisk(context.Context) (string, error) {
	folder, o, err := c.disk()
	if err == nil {
		err = disk.Check(folder, o)
	}
	missing := errors.Is(err, fs.ErrNotExist)
	if err == nil || missing {
		err = tryFolder(folder, true)
	}
	if err != nil {
		return "", explainDisk(c, err)
	}
	if missing {
		return folder + " is made", nil
	}
	return folder + " can be used", nil
}

// checkFolder looks at the folder of several hosts.
func (c Config) checkFolder(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	path, o, err := c.folder(nil)
	if err == nil {
		err = folder.Check(ctx, path, o)
	}
	switch {
	case errors.Is(err, tier.ErrUnavailable):
		return "", fmt.Errorf("%w: %w", errFolderAway, err)
	case err != nil:
		return "", fmt.Errorf("folder %s: %w", c.Folder, err)
	}
	return path + " can be used", nil
}

// checkRedis asks the Redis.
func (c Config) checkRedis(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	r, err := c.dialRedis(ctx)
	if err != nil {
		return "", err
	}
	if err := r.Ping(ctx); err != nil {
		return "", errors.Join(fmt.Errorf("the Redis %w: %w", errNoAnswer, err), r.Close())
	}
	return c.Redis + " answers", r.Close()
}

// checkS3 asks the store of the bucket.
func (c Config) checkS3(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	b, err := c.dialS3(ctx)
	if err != nil {
		return "", err
	}
	if err := b.Ping(ctx); err != nil {
		return "", errors.Join(fmt.Errorf("the store %w: %w", errNoAnswer, err), b.Close())
	}
	return c.S3 + " answers", b.Close()
}
