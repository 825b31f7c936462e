//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEncoderTree: vLLM's own connector in one engine, and ours in another, over one folder of files on disk.
// What one of them has saved, the other one loads.
func TestEncoderTree(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	require.NoError(t, os.Mkdir(tree, 0o700))
	s := newCacheServer(t, "--disk", tree+"?layout=vllm-ec&space="+space)
	s.start()
	theirs := startEncoder(t, encoderSetup{role: "ec_both", tree: tree}, nil)
	ours := startEncoder(t, encoderSetup{role: "ec_both", extra: map[string]any{"space": space}}, s)
	theirs.ready()
	ours.ready()

	theirs.does(8, 0, numbered(0, 8)...)
	theirs.does(2, 0, "two9") // 9 and 13
	ours.does(0, 8, numbered(0, 8)...)
	ours.does(0, 2, "two9")

	a := ours.does(4, 0, numbered(20, 4)...)
	a.Answers = append(a.Answers, ours.does(1, 0, "rocket.jpg").Answers...)
	for _, answer := range a.Answers {
		file := filepath.Join(tree, answer.Identifiers[0], "encoder_cache.safetensors")
		require.Eventually(t, func() bool {
			_, err := os.Stat(file)
			return err == nil
		}, patience, 5*time.Millisecond, "the server did not write %s", file)
	}
	theirs.does(0, 4, numbered(20, 4)...)
	theirs.does(0, 1, "rocket.jpg")
	theirs.end()

	// And nothing but the folder is left.
	s.stop()
	s.loseMemory()
	s.start()
	ours.recovers("image0")
	ours.again(0, 13, append(numbered(0, 8), "two9", "image20", "image21", "rocket.jpg")...)
	ours.end()
	s.idle()
}
