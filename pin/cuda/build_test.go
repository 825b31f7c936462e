//go:build linux && cgo && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The same package, built so that it can't load anything, runs the test of stub_test.go.
func TestBuildsThatCannotLoadLibraries(t *testing.T) {
	for name, c := range map[string]struct {
		env  string
		args []string
	}{
		"without cgo":         {"CGO_ENABLED=0", nil},
		"with the tag nocuda": {"CGO_ENABLED=1", []string{"-tags=nocuda"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"test", "-v", "-run=^TestProgramThatCannotLoadLibraries$"}, c.args...)
			cmd := exec.Command("go", append(args, ".")...)
			cmd.Env = append(os.Environ(), c.env)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "--- PASS: TestProgramThatCannotLoadLibraries")
		})
	}
}

// A program with this package needs the C library, and nothing of CUDA, to start.
func TestProgramNeedsNoLibraryOfCUDA(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	f, err := elf.Open(self)
	require.NoError(t, err)
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	require.NoError(t, err)
	require.NotEmpty(t, libraries)
	for _, l := range libraries {
		require.True(t, strings.HasPrefix(l, "libc.") || strings.HasPrefix(l, "libpthread.") || strings.HasPrefix(l, "libdl.") ||
			strings.HasPrefix(l, "libresolv.") || strings.HasPrefix(l, "ld-linux"), l)
	}
	symbols, err := f.ImportedSymbols()
	require.NoError(t, err)
	for _, s := range symbols {
		require.False(t, strings.HasPrefix(s.Name, "cu") && len(s.Name) > 2 && s.Name[2] >= 'A' && s.Name[2] <= 'Z' || strings.HasPrefix(s.Name, "cuda"), s.Name)
	}
}
