package litmus_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// The environment of the process that runs a right side: the side, and the file that both processes map.
const (
	sideEnv = "RINGCACHE_LITMUS_SIDE"
	fileEnv = "RINGCACHE_LITMUS_FILE"
)

// rightSides are those that another process can run.
var rightSides = map[string]func(b arena) func(c int){
	"readPublished":    readPublished,
	"takeHold":         takeHold,
	"takeHoldUnfenced": takeHoldUnfenced,
}

func TestMain(m *testing.M) {
	if side := os.Getenv(sideEnv); side != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // until the parent has ended
			os.Exit(2)
		}()
		f, err := os.OpenFile(os.Getenv(fileEnv), os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		b, err := mapFile(f)
		if err != nil {
			panic(err)
		}
		follow(board(b[arenaSize:]), rightSides[side](newArena(b)))
		return
	}
	os.Exit(m.Run())
}

func mapFile(f *os.File) ([]byte, error) { return shmfile.Map(f, processesSize, true) }

// The file has the memory of the program, and the board behind it.
const processesSize = arenaSize + boardSize

// TestProcesses: publication and hold by two processes.
func TestProcesses(t *testing.T) {
	for _, c := range []struct {
		left  func(a arena, t *testing.T) program
		right string
	}{
		{func(a arena, t *testing.T) program { return publication(a, fill(t, a)) }, "readPublished"},
		{func(a arena, t *testing.T) program { return hold(a, fill(t, a)) }, "takeHold"},
		{func(a arena, t *testing.T) program { return unfencedHold(a, fill(t, a)) }, "takeHoldUnfenced"},
	} {
		t.Run(c.right, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "shared")
			f, err := os.Create(path)
			require.NoError(t, err)
			defer func() { require.NoError(t, f.Close()) }()
			require.NoError(t, f.Truncate(processesSize))
			a, err := mapFile(f)
			require.NoError(t, err)
			defer func() { require.NoError(t, shmfile.Unmap(a)) }()
			p, b := c.left(newArena(a), t), board(a[arenaSize:])
			p.name = "two processes: " + p.name

			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), sideEnv+"="+c.right, fileEnv+"="+path)
			child.Stderr = os.Stderr
			in, err := child.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, child.Start())
			defer func() { _ = in.Close() }() // ends the child if the test fails
			ended := make(chan error, 1)
			go func() {
				err := child.Wait()
				mem.Store32(b.gone(), 1)
				ended <- err
			}()
			n := p.lead(b)
			require.NoError(t, <-ended)
			p.report(t, n)
		})
	}
}
