package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func needsPython(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("SKIP: no python3 on PATH, in which the rings of this test are")
	}
}

// pythonRing is a command that runs a ring of testdata/rings.py.
func pythonRing(t *testing.T, ring, bug string) string {
	t.Helper()
	needsPython(t)
	command := "python3 testdata/rings.py " + ring
	if bug != "" {
		command += " '" + bug + "'"
	}
	return command
}

// TestOwnPlacement: a correct ring passes wherever it places chunks; with vLLM's rules best fit
// doesn't.
func TestOwnPlacement(t *testing.T) {
	for _, args := range [][]string{
		{"--system", pythonRing(t, "best-fit", "")},
		{"--system", pythonRing(t, "fifo", ""), "--fifo"},
		{"--system", agentProcess(t), "--fifo"},
		{"--fifo"},
	} {
		out, err := runFuzz(t, append([]string{"--placement", "own", "--ops", "4000"}, args...)...)
		require.NoError(t, err, "%s: %s", args, out)
		require.Regexp(t, `^ring, own placement, .*: 4000 operations in 20 sequences, seeds 1 to 20, .* nothing found\n$`, out)
	}
	out, err := runFuzz(t, "ring", "--ops", "4000", "--system", pythonRing(t, "fifo", ""))
	require.NoError(t, err, out)
	_, err = runFuzz(t, "ring", "--ops", "4000", "--system", pythonRing(t, "best-fit", ""))
	require.ErrorContains(t, err, "the systems differ")
	_, err = runFuzz(t, "--placement", "own", "--fifo", "--ops", "4000", "--system", pythonRing(t, "best-fit", ""))
	require.ErrorContains(t, err, "ring: fifo", "only --fifo asks for the order")
}

// TestOwnPlacementFindsBugs that are planted in rings of either placement, and the lines that it prints
// show each again.
func TestOwnPlacementFindsBugs(t *testing.T) {
	for bug, invariant := range map[string]string{
		"overlap": "no-overlap|bounds|headers", "early free": "live", "wrong id": "headers", "lost bytes": "payload",
		"lost room": "drain", "raises": "broken",
	} {
		for _, ring := range []string{"fifo", "best-fit"} {
			t.Run(bug+" in "+ring, func(t *testing.T) {
				system := pythonRing(t, ring, bug)
				out, err := runFuzz(t, "--placement", "own", "--system", system)
				require.ErrorContains(t, err, "ring: ")
				require.Regexp(t, "^("+invariant+"): ", out)
				if bug == "raises" {
					require.Contains(t, out, "KeyError: 'planted'", "the traceback is shown")
				}
				lines := regexp.MustCompile(`(?m)^    (\{"op".*)$`).FindAllStringSubmatch(out, -1)
				require.NotEmpty(t, lines)
				require.LessOrEqual(t, len(lines), 8, "it is minimized")
				var text strings.Builder
				for _, line := range lines {
					text.WriteString(line[1] + "\n")
				}
				file := filepath.Join(t.TempDir(), "lines")
				require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
				again, err := runFuzz(t, "--placement", "own", "--system", system, "--replay", file)
				require.ErrorContains(t, err, "ring: ")
				require.Regexp(t, "^("+invariant+"): ", again)
				out, err = runFuzz(t, "--placement", "own", "--system", pythonRing(t, ring, ""), "--replay", file)
				require.NoError(t, err)
				require.Contains(t, out, "nothing found")
			})
		}
	}
}

// TestVLLMPlacementFindsBugs that are planted in a ring which places as vLLM does.
func TestVLLMPlacementFindsBugs(t *testing.T) {
	for _, bug := range []string{"overlap", "early free", "wrong id", "lost room"} {
		_, err := runFuzz(t, "ring", "--system", pythonRing(t, "fifo", bug))
		require.ErrorContains(t, err, "ring: the systems differ", bug)
	}
	_, err := runFuzz(t, "ring", "--system", pythonRing(t, "fifo", "raises"))
	require.ErrorContains(t, err, "ring: a system broke")
}

// TestOwnPlacementRefuses what would test nothing.
func TestOwnPlacementRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"ended without a reply": {"--system", "false"},
		"no ring was made": {"--system",
			`sh -c 'while read -r x; do echo "{\"ok\":false,\"error\":{\"kind\":\"unsupported\"}}"; done'`},
		"no chunk was":          {"--system", pythonRing(t, "fifo", "full")},
		"contains no operation": {"--replay", os.DevNull},
	} {
		out, err := runFuzz(t, append([]string{"--placement", "own", "--ops", "200"}, args...)...)
		require.Error(t, err)
		require.Contains(t, out+err.Error(), want)
	}
}

// TestRingPage: docs/test-your-own-ring.md shows what the command prints for agent.py with the bug that
// the page plants.
func TestRingPage(t *testing.T) {
	needsPython(t)
	page, err := os.ReadFile("../../docs/test-your-own-ring.md")
	require.NoError(t, err)
	code, err := os.ReadFile("../../examples/ringtest/agent.py")
	require.NoError(t, err)
	planted := regexp.MustCompile(`sed -i 's/(.*)/(.*)/' agent.py\n`).FindSubmatch(page)
	require.NotNil(t, planted)
	require.Equal(t, 1, strings.Count(string(code), string(planted[1])))
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("agent.py",
		[]byte(strings.Replace(string(code), string(planted[1]), string(planted[2]), 1)), 0o600))
	out, err := runFuzz(t, "ring", "--placement", "own", "--system", "python3 agent.py")
	require.ErrorContains(t, err, "ring: no-overlap")
	require.Contains(t, string(page), "$ ringcache fuzz ring --placement own --system 'python3 agent.py'\n")
	finding, _, ended := strings.Cut(out, "\nring, own placement")
	require.True(t, ended)
	require.Contains(t, string(page), "    "+strings.ReplaceAll(finding, "\n", "\n    ")+"\n")
}
