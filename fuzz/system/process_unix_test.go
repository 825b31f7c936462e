//go:build unix

package system_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/system"
)

// TestHangOfAPipeline: a program in a shell's pipeline that reads nothing, when there is more to
// write than a pipe holds, is noticed and ended.
func TestHangOfAPipeline(t *testing.T) {
	alive := filepath.Join(t.TempDir(), "alive")
	require.NoError(t, syscall.Mkfifo(alive, 0o600))
	ended := make(chan error, 1)
	go func() {
		f, err := os.Open(alive)
		if err == nil {
			_, err = io.Copy(io.Discard, f) // until no process has the other end
			_ = f.Close()
		}
		ended <- err
	}()
	p, err := system.Start(t.Context(), system.ProcessOptions{Limit: time.Second}, "sh", "-c",
		"sleep 1000 3>"+alive+" | cat")
	require.NoError(t, err)
	var ops []fuzz.Op
	for range 1000 {
		ops = append(ops, fuzz.Op{Name: strings.Repeat("long", 100)})
	}
	_, err = p.Do(ops)
	require.ErrorIs(t, err, system.ErrHangs)
	require.NoError(t, p.Close())
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(5 * time.Minute):
		t.Fatal("the first program of the pipeline lives on")
	}
}
