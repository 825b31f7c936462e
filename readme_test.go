//go:build linux

package ringcache_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// What the program of the README takes as given.
const (
	size  = 1 << 20
	limit = 4096
	key   = "a photo's key"
)

var (
	photo  = []byte("pixels")
	layout = &serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key: "pixel_values", Data: &serde.Tensor{DType: "uint8", Shape: []int{len(photo)}},
	}}}
	sent []mmcache.Wire
)

func decodeInto(photo, into []byte) error {
	copy(into, photo)
	return nil
}

func send(items []mmcache.Wire) error {
	sent = append(sent, items...)
	return nil
}

// program is the Go block of README.md.
func program(ctx context.Context) error {
	cache, err := mmcache.OpenShared(mmcache.Options{Capacity: size, Shared: mmcache.SharedOptions{Readers: 2}})
	if err != nil {
		return err
	}
	defer cache.Abandon() // removes the segment, whatever is open; does nothing after Shutdown

	req, err := cache.Begin(ctx, "request-1", mmcache.Want{Key: key, Bytes: limit})
	if err != nil {
		return err
	}
	defer req.Rollback() // does nothing after Commit
	// The producer runs once for each key, whoever asks.
	_, err = req.Item(ctx, key, func(_ context.Context, b *mmcache.Builder) error {
		if err := b.Layout(layout, nil); err != nil { // makes room, in shared memory if it can
			return err
		}
		return decodeInto(photo, b.Tensor("pixel_values")) // straight into the segment
	})
	if err != nil {
		return err
	}
	err = req.Commit(ctx, func(b mmcache.Batch) error { return send(b.Items) }) // handles, data, or nothing
	if err != nil {
		return err
	}
	req.Finish()               // the engine has answered; req.Abort() if the client has gone
	return cache.Shutdown(ctx) // waits for the requests that are open
}

// TestReadmeProgram runs the Go block of README.md, which is the body of the function program.
func TestReadmeProgram(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("readme_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	require.Len(t, blocks, 1)
	body := regexp.MustCompile(`(?s)\nfunc program\([^\n]*\n(.*?)\n}\n`).FindSubmatch(source)
	require.NotNil(t, body)
	require.Equal(t, regexp.MustCompile(`(?m)^\t`).ReplaceAllString(string(body[1]), ""), strings.TrimSuffix(string(blocks[0][1]), "\n"))

	require.NoError(t, program(t.Context()))
	require.Len(t, sent, 1)
	require.NotNil(t, sent[0].Handle, "the item lies in shared memory")
}
