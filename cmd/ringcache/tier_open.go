package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/ringcache/ringcache/internal/location"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/folder"
	"github.com/ringcache/ringcache/tier/redis"
	"github.com/ringcache/ringcache/tier/s3"
)

// open opens the level that the command line names, and returns the space whose objects are listed. With
// write it locks the level; without, another process may serve the level meanwhile. create allows a folder
// that is not there.
func (p levelArgs) open(ctx context.Context, write, create bool) (level tier.Level, space string, err error) {
	at, err := location.Parse(p.Level)
	if err != nil {
		return nil, "", err
	}
	if at, err = at.Identify(create); err != nil {
		return nil, "", err
	}
	if level, err = at.Open(ctx, location.Options{ShmDir: p.Dir, ReadOnly: !write}); err != nil {
		return nil, "", err
	}
	switch l := level.(type) {
	case *redis.Level:
		err = l.Ping(ctx)
	case *s3.Level:
		err = l.Ping(ctx)
	case *folder.Level:
		err = l.Ping(ctx)
	case *disk.Level:
		err = l.WaitIndex(ctx) // else objects would be missing in the list
	}
	if err != nil {
		return nil, "", errors.Join(err, level.Close())
	}
	return level, cmp.Or(p.Space, at.Space), nil
}
