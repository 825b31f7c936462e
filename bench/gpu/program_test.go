package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readReport reads the JSON file of a run. It must have no field that the program does not know.
func readReport(t *testing.T, folder string) report {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "results.json"))
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var r report
	require.NoError(t, d.Decode(&r))
	return r
}

// checkDriverLog checks that every process gave everything back to the driver, and broke none of its rules.
func checkDriverLog(t *testing.T, path string) {
	t.Helper()
	log, err := os.ReadFile(path)
	require.NoError(t, err)
	open := map[string]int{} // by process and what is open
	for line := range strings.Lines(string(log)) {
		assert.NotContains(t, line, "VIOLATION")
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasSuffix(line, "= 0\n") {
			continue
		}
		switch process, op := f[0], f[2]; op {
		case "cuDevicePrimaryCtxRetain":
			open[process+" contexts"]++
		case "cuDevicePrimaryCtxRelease":
			open[process+" contexts"]--
		case "cuMemHostRegister":
			open[process+" registrations"]++
		case "cuMemHostUnregister":
			open[process+" registrations"]--
		}
	}
	assert.NotEmpty(t, open)
	for what, n := range open {
		assert.Zero(t, n, what)
	}
}

// TestQuickRun runs everything that needs no PyTorch on the fake driver.
func TestQuickRun(t *testing.T) {
	out, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	o := runOnFake(t, []string{"FAKE_CUDA_DELAY_US=5000", "FAKE_CUDA_LOG=" + log}, "--quick", "--out", out, "--plots")
	require.Zero(t, o.status, o.stderr)
	const warning = "NOT RESULTS: the driver is not real, no GPU was involved."
	assert.True(t, strings.HasPrefix(o.stdout, warning), o.stdout)
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	assert.Contains(t, lines[len(lines)-1], warning)

	r := readReport(t, out)
	assert.Contains(t, r.Notice, warning)
	assert.Equal(t, "Fake GPU 0", r.Machine.Device)
	assert.Equal(t, "the driver is not real, no GPU was involved", r.Machine.Doubt)
	require.Len(t, r.Machine.Attributes, 4)
	assert.Equal(t, 99, r.Machine.Attributes[1].Number)
	assert.Equal(t, 1, r.Machine.Attributes[1].Value)
	assert.NotEmpty(t, r.Machine.Kernel)
	assert.Empty(t, r.Failed)

	assert.Len(t, r.Copies, 3*4*2, "three sizes; three offsets and a batch; two arms")
	for _, c := range r.Copies {
		assert.Positive(t, c.Bandwidth, c.point)
		assert.Positive(t, c.Submit.N, c.point)
		assert.LessOrEqual(t, c.Submit.Median, c.Total.Max, c.point)
		assert.LessOrEqual(t, c.Total.Median, c.Total.P99, c.point)
	}
	assert.Empty(t, r.Derived, "nothing that was measured here is compared")
	assert.Len(t, r.Pinning, 3+2*3)
	require.Len(t, r.Together, 4)
	for _, together := range r.Together {
		assert.Equal(t, map[int]int{0: together.Processes * r.Options.Repetitions}, together.Codes)
	}
	require.NotNil(t, r.Correct)
	assert.Positive(t, r.Correct.Copies)
	assert.Equal(t, r.Correct.Copies*r.Correct.Size, r.Correct.Bytes)
	assert.Zero(t, r.Correct.Damaged, r.Correct.First)
	require.NotNil(t, r.Control)
	assert.Positive(t, r.Control.Caught, "the copies begin 5 ms after the call")
	assert.LessOrEqual(t, r.Control.Caught, r.Control.Tries)
	left := map[string]string{}
	for _, l := range r.LeftOut {
		left[l.What] = l.Reason
	}
	for _, name := range torchArms {
		assert.Equal(t, "no interpreter was given (--python)", left[name], name)
	}
	assert.Contains(t, left["memory of a context"], "not real")

	for _, name := range []string{"bandwidth", "submit", "register"} {
		svg, err := os.ReadFile(filepath.Join(out, name+".svg"))
		require.NoError(t, err)
		checkXML(t, svg)
		assert.Contains(t, string(svg), "(NOT A RESULT)")
	}
	checkDriverLog(t, log)
}

func checkXML(t *testing.T, text []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(text))
	for elements := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			assert.Greater(t, elements, 10)
			return
		}
		require.NoError(t, err)
		if _, ok := token.(xml.StartElement); ok {
			elements++
		}
	}
}

// TestNoDriver: a machine without a driver is no failure of the program's, and nothing is written.
func TestNoDriver(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	o := runProgram(t, nil, "--quick", "--library", "/nonexistent/libcuda.so.1", "--out", out)
	assert.Equal(t, statusUnavailable, o.status)
	assert.Contains(t, o.stderr, "gpu: pin: no GPU driver: ")
	if !strings.Contains(o.stderr, withoutCgo) {
		assert.Contains(t, o.stderr, "/nonexistent/libcuda.so.1")
	}
	assert.Empty(t, o.stdout)
	assert.NoDirExists(t, out)
}

// TestDeviceWithAnotherName runs what is left out where the driver is known as the fake: with another name
// for the fake, and a program in place of nvidia-smi.
func TestDeviceWithAnotherName(t *testing.T) {
	fakeDriver(t) // skips without a compiler
	source, err := os.ReadFile(fakeSource)
	require.NoError(t, err)
	require.Contains(t, string(source), `"Fake GPU %d"`)
	folder := t.TempDir()
	renamed, library := filepath.Join(folder, "driver.c"), filepath.Join(folder, "libcuda.so.1")
	require.NoError(t, os.WriteFile(renamed, bytes.ReplaceAll(source, []byte(`"Fake GPU %d"`),
		[]byte(`"Test GPU %d"`)), 0o600))
	require.NoError(t, compile(renamed, library))
	const smi = `#!/bin/sh
[ "$1 $2" = "-i 0000:00:00.0" ] || exit 1
case "$*" in
*memory.used*) n=$(cat "$0.calls" 2>/dev/null || echo 0); echo $((n + 1)) >"$0.calls"; echo $((1000 + n * 600)) ;;
*link*) echo "5, 16, 5, 16" ;;
*) echo "Test GPU, 1.2.3, 80000, 9.9" ;;
esac
`
	require.NoError(t, os.WriteFile(filepath.Join(folder, "nvidia-smi"), []byte(smi), 0o700))
	path := "PATH=" + folder + ":" + os.Getenv("PATH")
	o := runOnFake(t, []string{path}, "--quick", "--only", "copies,context", "--library", library, "--out", folder)
	require.Zero(t, o.status, o.stderr)
	r := readReport(t, folder)
	assert.Equal(t, "Test GPU 0", r.Machine.Device)
	assert.Empty(t, r.Machine.Doubt)
	assert.Equal(t, "Measured on the device named under machine.", r.Notice)
	assert.Equal(t, "1.2.3", r.Machine.GPU["driver_version"])
	assert.Equal(t, "5", r.Machine.Link["pcie.link.gen.current"])
	assert.Equal(t, &contextCost{Before: 1000, During: 1600, Cost: 600}, r.Context)
}

// TestUnknownDevice: figures of a driver that can't be identified are no results.
func TestUnknownDevice(t *testing.T) {
	out := t.TempDir()
	o := runOnFake(t, nil, "--quick", "--only", "processes", "--python", "/nonexistent/python", "--out", out)
	require.Zero(t, o.status, o.stderr)
	r := readReport(t, out)
	assert.Equal(t, "unknown", r.Machine.Device)
	assert.Equal(t, "NOT RESULTS: the device could not be identified: that needs python3. The figures only show that the program runs.", r.Notice)
}

// TestRefusedRegistrations: what processes are refused is counted; a ring that can't be registered is a
// failure, which is reported beside what was measured.
func TestRefusedRegistrations(t *testing.T) {
	out, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	o := runOnFake(t, []string{"FAKE_CUDA_FAIL=cuMemHostRegister:0:1", "FAKE_CUDA_LOG=" + log}, "--quick", "--only",
		"copies,processes", "--out", out)
	assert.Equal(t, 1, o.status, o.stderr)
	assert.Contains(t, o.stderr, "1 of 6 parts failed")
	assert.Contains(t, o.stdout, "FAILED")
	r := readReport(t, out)
	require.Len(t, r.Failed, 1)
	assert.Equal(t, "copies", r.Failed[0].What)
	assert.Contains(t, r.Failed[0].Reason, "CUDA_ERROR_INVALID_VALUE (1)")
	assert.Empty(t, r.Copies)
	require.Len(t, r.Together, 4)
	for _, together := range r.Together {
		assert.Equal(t, map[int]int{1: together.Processes * r.Options.Repetitions}, together.Codes)
	}
	left := map[string]string{}
	for _, l := range r.LeftOut {
		left[l.What] = l.Reason
	}
	assert.Equal(t, "not asked for (--only)", left["correctness"])
	checkDriverLog(t, log)
}

// TestFailedCopy: what was measured before a failure is reported with it. The ring goes, although other
// copies were in pending.
func TestFailedCopy(t *testing.T) {
	out, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	o := runOnFake(t, []string{"FAKE_CUDA_FAIL=cuMemcpyHtoDAsync:80:700", "FAKE_CUDA_DELAY_US=2000",
		"FAKE_CUDA_LOG=" + log}, "--quick", "--only", "copies", "--out", out)
	assert.Equal(t, 1, o.status, o.stderr)
	r := readReport(t, out)
	require.Len(t, r.Failed, 1)
	assert.Contains(t, r.Failed[0].Reason, "cuMemcpyHtoDAsync")
	assert.Contains(t, r.Failed[0].Reason, "Batch:32")
	assert.Len(t, r.Copies, 6, "the single copies of the first size")
	checkDriverLog(t, log)
}

// TestUsage: wrong arguments are refused before the driver is loaded.
func TestUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a size of nothing":       {[]string{"--kib", "0"}, "sizes and counts must be positive"},
		"a part that is not":      {[]string{"--only", "copies,everything"}, "must be one of"},
		"charts without a folder": {[]string{"--plots"}, "--plots needs a folder: --out"},
	} {
		t.Run(name, func(t *testing.T) {
			o := runProgram(t, nil, append(c.args, "--library", "/nonexistent")...)
			assert.NotZero(t, o.status)
			assert.NotEqual(t, statusUnavailable, o.status)
			assert.Contains(t, o.stderr, c.want)
		})
	}
}

// TestLinksNoCUDA: the driver is loaded at run time, so the program starts where there is none.
func TestLinksNoCUDA(t *testing.T) {
	program, err := elf.Open(os.Args[0])
	require.NoError(t, err)
	defer program.Close()
	libraries, err := program.ImportedLibraries()
	require.NoError(t, err)
	for _, l := range libraries {
		assert.NotContains(t, strings.ToLower(l), "cuda")
	}
}
