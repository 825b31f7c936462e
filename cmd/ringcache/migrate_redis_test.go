package main

import (
	"encoding/hex"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
)

// redisGolden are the keys and values that LMCache's Redis connector and RESP connector wrote.
func redisGolden(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("../../tier/redis/testdata/lmcache.json")
	require.NoError(t, err)
	type row struct {
		Key, Hex     string
		Bytes, First int
	}
	var golden struct {
		Redis, RESP []row
	}
	require.NoError(t, json.Unmarshal(b, &golden))
	require.NotEmpty(t, golden.Redis)
	require.NotEmpty(t, golden.RESP)
	values := map[string]string{}
	for _, r := range append(golden.Redis, golden.RESP...) {
		v, err := hex.DecodeString(r.Hex)
		require.NoError(t, err)
		if r.Hex == "" {
			v = counting(r.First, r.Bytes)
		}
		require.Len(t, v, r.Bytes)
		values[r.Key] = string(v)
	}
	return values
}

// TestMigrateRedis: what LMCache's connectors have put into a Redis is found by clients of serve --resp.
// Halves of pairs are not copied, the source stays, and a second run copies nothing.
func TestMigrateRedis(t *testing.T) {
	old := redistest.Start(t)
	ctx := t.Context()
	source := goredis.NewClient(&goredis.Options{Addr: old.Addr()})
	defer source.Close()
	values := redisGolden(t)
	for k, v := range values {
		require.NoError(t, source.Set(ctx, k, v, 0).Err())
	}
	halves := map[string]string{"org/model@1@0@ab@halfkv_bytes": "bytes", "org/model@1@0@cd@halfmetadata": "metadata"}
	for k, v := range halves {
		require.NoError(t, source.Set(ctx, k, v, 0).Err())
	}
	require.NoError(t, source.LPush(ctx, "a list of another program", "x").Err())

	to := filepath.Join(t.TempDir(), "disk")
	args := []string{"migrate", "redis://" + old.Addr(), to}
	out, errOut, code := ringcache(t, args...)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "objects copied")
	require.Contains(t, out, "2 keys are skipped: the Redis has not got the other key of their pair any more\n")
	out, errOut, code = ringcache(t, append(args, "--json")...)
	require.Zero(t, code, errOut)
	require.Contains(t, out, `{"copied":0,"bytes":0,"there":`)
	require.Contains(t, out, `{"halves":2}`)
	require.EqualValues(t, len(values)+len(halves)+1, source.DBSize(ctx).Val())
	_, errOut, code = ringcache(t, "migrate", "redis://"+old.Addr()+"?layout=resp", to)
	require.NotZero(t, code)
	require.Contains(t, errOut, "ringcache tier copy")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	s := newServing(t, "--disk", to, "--resp", l.Addr().String())
	s.start()
	client := goredis.NewClient(&goredis.Options{Addr: l.Addr().String()})
	defer client.Close()
	for k, v := range values {
		require.EqualValues(t, 1, client.Exists(ctx, k).Val(), k)
		require.Equal(t, v, client.Get(ctx, k).Val(), k)
	}
	for k := range halves {
		require.Zero(t, client.Exists(ctx, k).Val(), k)
	}
}
