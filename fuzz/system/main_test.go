package system_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/agent"
	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/system"
)

// TestMain lets the test binary stand in for a process that speaks the agent's protocol: for a
// good one, and for those that break at the first ring.alloc of so many bytes.
func TestMain(m *testing.M) {
	if mode := os.Getenv("SYSTEM_TEST_PEER"); mode != "" {
		peer(mode)
	}
	os.Exit(m.Run())
}

const fatalSize = `"size":77`

func peer(mode string) {
	if mode == "exits at once" {
		fmt.Fprintln(os.Stderr, "no license")
		os.Exit(3)
	}
	a := agent.New()
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		if strings.Contains(line, fatalSize) {
			_ = out.Flush()
			breakDown(mode, out)
		}
		_, _ = out.Write(append(a.Do([]byte(line)), '\n'))
		if in.Buffered() == 0 {
			_ = out.Flush()
		}
	}
	_ = a.Close()
	if mode == "does not end" {
		select {}
	}
	os.Exit(0)
}

// breakDown does what a mode is named after.
func breakDown(mode string, out *bufio.Writer) {
	switch mode {
	case "dies":
		fmt.Fprintln(os.Stderr, "out of luck")
		os.Exit(7)
	case "dies within a line":
		fmt.Print(`{"ok":true,"addr`)
		os.Exit(0)
	case "hangs":
		fmt.Fprintln(os.Stderr, "waiting for a lock")
		time.Sleep(time.Hour)
	case "garbage":
		_, _ = out.WriteString("core dumped\n")
	case "panics":
		_, _ = out.WriteString(`{"ok":false,"error":{"kind":"invalid","text":"internal error, please report it: nil"}}` + "\n")
	}
	_ = out.Flush()
}

// startPeer starts the test binary as a process of a mode.
func startPeer(ctx context.Context, mode string, limit time.Duration) (fuzz.System, error) {
	o := system.ProcessOptions{Limit: limit, Env: append(os.Environ(), "SYSTEM_TEST_PEER="+mode)}
	return system.Start(ctx, o, os.Args[0])
}

func peerOf(t *testing.T, mode string, limit time.Duration) fuzz.System {
	t.Helper()
	s, err := startPeer(context.Background(), mode, limit)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newRing() fuzz.Op {
	return fuzz.Op{Name: "ring.new", Args: map[string]any{"ring": "r", "size": 1000}}
}

func alloc(size int) fuzz.Op {
	return fuzz.Op{Name: "ring.alloc", Args: map[string]any{"ring": "r", "size": size}}
}
