package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"

	"github.com/ringcache/ringcache/internal/terminal"
	"github.com/ringcache/ringcache/lmcache/resp"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/redis"
)

// fromRedis copies the values of a Redis.
func (c migrateCommand) fromRedis() (err error) {
	if strings.Contains(c.From, "layout=") {
		return fmt.Errorf("%s has a layout: use `ringcache tier copy` for one layout, or leave it out", c.From)
	}
	ctx, stop := interruptible()
	defer stop()
	level, err := redis.Open(ctx, redis.Options{URL: c.From, Layout: redis.RESP{Space: resp.Space, Pairs: true}})
	if err != nil {
		return err
	}
	from := &whole{Level: level}
	defer func() { err = errors.Join(err, from.Close()) }()
	if err := level.Ping(ctx); err != nil {
		return err
	}
	to, _, err := levelArgs{Level: c.To, Dir: c.Dir}.open(ctx, true, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	err = tierCopy{From: c.From, To: c.To, JSON: c.JSON}.copy(ctx, to, from, "")
	switch {
	case c.JSON:
		sum := struct {
			Halves int `json:"halves"`
		}{from.halves}
		err = errors.Join(err, json.NewEncoder(terminal.Writer(os.Stdout)).Encode(sum))
	case from.halves > 0:
		fmt.Printf("%d keys are skipped: the Redis has not got the other key of their pair any more\n", from.halves)
	}
	return err
}

// The two keys of LMCache's Redis connector (lmcache/v1/storage_backend/connector/redis_connector.py).
const (
	pairBytes    = "kv_bytes"
	pairMetadata = "metadata"
)

// whole is a Redis without keys whose other half was evicted.
type whole struct {
	tier.Level
	halves int // that List has skipped
}

// List implements tier.Level.
func (w *whole) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		var all []tier.Object
		var unlisted error
		there := map[string]bool{}
		for o, err := range w.Level.List(ctx, space) {
			if err != nil {
				unlisted = err
				break
			}
			all = append(all, o)
			there[o.Name] = true
		}
		w.halves = 0
		for _, o := range all {
			if other := otherKey(o.Name); other != "" && !there[other] {
				w.halves++
			} else if !yield(o, nil) {
				return
			}
		}
		if unlisted != nil {
			yield(tier.Object{}, unlisted)
		}
	}
}

// otherKey returns the other key of a pair; it is empty for a key that has none.
func otherKey(name string) string {
	if stem, ok := strings.CutSuffix(name, pairBytes); ok {
		return stem + pairMetadata
	}
	if stem, ok := strings.CutSuffix(name, pairMetadata); ok {
		return stem + pairBytes
	}
	return ""
}
