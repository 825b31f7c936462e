package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// mmcacheJob is the transaction of a frontend on images that are there: Begin, Item, Commit, Finish.
type mmcacheJob struct {
	cache     *mmcache.Shared
	item      *serde.Item
	keys, ids []string
	made      int
}

func ourTransaction() Job { return &mmcacheJob{} }

func (*mmcacheJob) Peer() string { return "mmcache" }

func (j *mmcacheJob) Prepare(c Case) (err error) {
	j.cache, err = mmcache.OpenShared(mmcache.Options{
		Capacity: float64(c.RingBytes), Shared: mmcache.SharedOptions{Name: segmentName(), Readers: 1,
			MaxObject: c.Size + slack},
	})
	if err != nil {
		return err
	}
	j.item = qwenItem(c.Size)
	for i := range c.Live {
		j.keys, j.ids = append(j.keys, keyOf(i)), append(j.ids, "request-"+strconv.Itoa(i))
	}
	for range c.Live {
		if err := j.once(); err != nil {
			return err
		}
	}
	return nil
}

func (j *mmcacheJob) Run(n int) ([]float64, error) {
	return timed(n, j.once, func() error { return nil })
}

func (j *mmcacheJob) once() error {
	j.made++
	at, ctx := j.made%len(j.keys), context.Background()
	request, err := j.cache.Begin(ctx, j.ids[at], mmcache.Want{Key: j.keys[at], Bytes: 1 << 20})
	if err != nil {
		return err
	}
	_, err = request.Item(ctx, j.keys[at], mmcache.Ready(j.item, nil))
	if err := errors.Join(err, request.Commit(ctx, send)); err != nil {
		return err
	}
	request.Finish()
	return nil
}

func send(mmcache.Batch) error { return nil }

func (j *mmcacheJob) Close() error {
	if j.cache == nil {
		return nil
	}
	return j.cache.Abandon()
}
