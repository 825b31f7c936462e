//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"
)

// TestEncoderTree: vLLM's own connector in one engine, and ours in another, over one folder of files on disk. What one of
// them has saved, the other one loads.
func TestEncoderTree(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	theirs := newEncoder(t, encoderSetup{role: "ec_both", tree: tree}, nil)
	theirs.does(1, 0, "image0")
	theirs.again(0, 1, "image0")
	theirs.does(2, 0, "two1")
	theirs.end()
	consumer := newEncoder(t, encoderSetup{role: "ec_consumer", tree: tree}, nil)
	consumer.does(0, 3, "image0", "two1")
	consumer.end()
}
