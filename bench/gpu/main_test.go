package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary be the program, which also starts itself.
const asProgram = "RINGCACHE_TEST_GPU_PROGRAM"

var scratch string // for what all tests share

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "ringcache-gpu-test-"); err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// compileFake builds the fake driver, once.
var compileFake = sync.OnceValues(func() (string, error) {
	library := filepath.Join(scratch, "libfakecuda.so.1")
	return library, compile(fakeSource, library)
})

const fakeSource = "../../pin/cuda/testdata/driver/driver.c"

func compile(source, library string) error {
	out, err := exec.Command("cc", "-shared", "-fPIC", "-pthread", "-o", library, source).CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return err
}

// fakeDriver returns the library of the fake driver.
func fakeDriver(t *testing.T) string {
	t.Helper()
	library, err := compileFake()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no C compiler for the fake driver:", err)
	}
	require.NoError(t, err)
	return library
}

// withoutCgo is in the error of a program that can load no driver.
const withoutCgo = "built without cgo"

// outcome is what a run of the program left.
type outcome struct {
	stdout, stderr string
	status         int
}

// runProgram runs the program with the variables and arguments.
func runProgram(t *testing.T, variables []string, args ...string) outcome {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), variables...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	left, err := filepath.Glob(fmt.Sprintf("%s/%s%d-*", sharedMemoryDir, filePrefix, cmd.Process.Pid))
	require.NoError(t, err)
	assert.Empty(t, left, "the program removes what it made")
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// runOnFake runs the program with the variables and arguments on the fake driver.
func runOnFake(t *testing.T, variables []string, args ...string) outcome {
	t.Helper()
	o := runProgram(t, variables, append([]string{"--library", fakeDriver(t)}, args...)...)
	if strings.Contains(o.stderr, withoutCgo) {
		t.Skip("the program was built without cgo, so it loads no driver")
	}
	return o
}
