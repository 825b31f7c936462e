package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// runFuzz runs `ringcache fuzz` with arguments, and returns what it printed.
func runFuzz(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var c commands
	p, err := kong.New(&c, append(options(), kong.Writers(io.Discard, io.Discard))...)
	require.NoError(t, err)
	ctx, err := p.Parse(append([]string{"fuzz"}, args...))
	require.NoError(t, err)
	return output(t, func() error { err = ctx.Run(); return nil }), err
}

// agentProcess is a command that runs the agent.
func agentProcess(t *testing.T) string {
	t.Helper()
	t.Setenv("RINGCACHE_TEST_AGENT", "1")
	return os.Args[0]
}

func TestFuzzAgainstTheModels(t *testing.T) {
	out, err := runFuzz(t, "--ops", "500", "--seed", "7")
	require.NoError(t, err)
	for _, family := range []string{"ring", "store", "lru", "pair"} {
		require.Regexp(t, "(?m)^"+family+`, vLLM \S+, ours against model: \d+ operations in \d+ sequences, seeds 7 to \d+, .* 0 differences$`, out)
	}
	out, err = runFuzz(t, "store", "--release", "0.12.0", "--ops", "200", "--minutes", "10")
	require.NoError(t, err)
	require.Regexp(t, `^store, vLLM 0.12.0.* 0 differences\n$`, out)
}

// TestFuzzFindsTheDifference of another system, prints it with both replies, and the command
// that it prints finds it again.
func TestFuzzFindsTheDifference(t *testing.T) {
	system := agentProcess(t) + ` | sed -u 's/"address":28,/"address":29,/'`
	args := []string{"ring", "--system", system, "--ops", "20000", "--length", "30"}
	out, err := runFuzz(t, args...)
	require.ErrorContains(t, err, "ring: the systems differ")
	require.Contains(t, out, `sed -u 's/"address":28,/"address":29,/': {"address":29,`)
	require.Regexp(t, `(?m)^  model: +\{"address":28,`, out)
	require.Contains(t, out, "1 differences")
	require.Regexp(t, `(?m)^  again: ringcache fuzz ring --release 0.33.0 --against model --lead auto --system '.*' --length 30 --seed \d+ --ops 1$`, out)

	_, err = runFuzz(t, "ring", "--against", system, "--ops", "20000", "--length", "30")
	require.ErrorContains(t, err, "ring: the systems differ")
}

func TestFuzzReplays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(file, []byte(`# two chunks
{"op":"ring.new","ring":"r","size":100}
{"op":"ring.alloc","ring":"r","size":20}
{"op":"ring.alloc","ring":"r","size":20}
`), 0o600))
	out, err := runFuzz(t, "--replay", file)
	require.NoError(t, err)
	require.Contains(t, out, "{\"op\":\"ring.alloc\",\"ring\":\"r\",\"size\":20}\n  ours: {\"address\":28,\"id\":1}\n  model: {\"address\":28,\"id\":1}\n")
	require.Contains(t, out, "3 operations, 0 differences")

	out, err = runFuzz(t, "--replay", file, "--system", agentProcess(t)+` | sed -u 's/"address":28,/"address":29,/'`)
	require.ErrorContains(t, err, "differ")
	require.Contains(t, out, "different: address differs")
	require.Contains(t, out, "3 operations, 1 differences")
}

func TestFuzzValidates(t *testing.T) {
	for _, flag := range []string{"--ops=-1", "--length=0", "--minutes=-1", "--minutes=NaN", "--limit=0s"} {
		p, err := kong.New(&commands{}, options()...)
		require.NoError(t, err)
		_, err = p.Parse([]string{"fuzz", flag})
		require.ErrorContains(t, err, flag[:strings.Index(flag, "=")])
	}
	for _, args := range []string{"--fifo", "--without headers", "store --placement own", "all --placement own",
		"--placement own --against vllm", "--placement own --release 0.33.0"} {
		p, err := kong.New(&commands{}, options()...)
		require.NoError(t, err)
		_, err = p.Parse(append([]string{"fuzz"}, strings.Fields(args)...))
		require.ErrorContains(t, err, "--placement own", args)
	}
}

// TestFuzzNamesInvariants: a wrong name is a wrong command line, and those that are off are none.
func TestFuzzNamesInvariants(t *testing.T) {
	const others = "bounds, no-overlap, headers, payload, live, id-window, ids-unique, refusal, stale-handle, drain"
	for args, want := range map[string]string{
		"--without nonsense":                        `--without: there is no invariant "nonsense"; there are ` + others,
		"--without fifo":                            `--without: there is no invariant "fifo"; there are ` + others,
		"--without headers --without stale-at-once": `--without: there is no invariant "stale-at-once"; there are ` + others,
		"--fifo --without nonsense":                 `--without: there is no invariant "nonsense"; there are ` + strings.Replace(others, "live, ", "live, fifo, ", 1),
		"--fifo --without fifo":                     "",
		"--without stale-handle":                    "",
	} {
		p, err := kong.New(&commands{}, options()...)
		require.NoError(t, err)
		_, err = p.Parse(append([]string{"fuzz", "--placement", "own"}, strings.Fields(args)...))
		if want == "" {
			require.NoError(t, err, args)
			continue
		}
		require.ErrorContains(t, err, want, args)
		require.True(t, strings.HasSuffix(err.Error(), want), err.Error())
	}
}

// TestFuzzShowsTheAnswerThatIsNone: which field of which reply is wrong, what to answer, and the operations
// up to that reply.
func TestFuzzShowsTheAnswerThatIsNone(t *testing.T) {
	for change, want := range map[string]string{
		`s/"address":[0-9]*/"address":0.0/`:      `ring.alloc: the field "address" is 0.0: answer a whole number from 0 to 9223372036854775807, without a point`,
		`s/"address":[0-9]*,//`:                  `ring.alloc: the field "address" is missing: answer a whole number from 0 to 9223372036854775807, without a point`,
		`s/"address":\([0-9]*\)/"address":"\1"/`: `: answer a whole number from 0 to 9223372036854775807, without a point`,
	} {
		out, err := runFuzz(t, "ring", "--placement", "own", "--system", agentProcess(t)+" | sed -u '"+change+"'")
		require.Error(t, err)
		require.Contains(t, out, want)
		require.Regexp(t, `\{"op":"ring.new","ring":"r","size":\d+\}\n +\{"op":"ring.alloc","ring":"r","size":\d+\}\n +again: `, out)
		var lines []string
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "{") {
				lines = append(lines, line)
			}
		}
		file := filepath.Join(t.TempDir(), "lines")
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600))
		again, err := runFuzz(t, "ring", "--placement", "own", "--replay", file, "--system",
			agentProcess(t)+" | sed -u '"+change+"'")
		require.Error(t, err)
		require.Contains(t, again, want)
	}
}

func TestFuzzRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"no family":             {"rings"},
		"itself":                {"--lead", "model"},
		"0.99.0":                {"--release", "0.99.0"},
		"/nowhere/python":       {"--against", "vllm", "--python", "/nowhere/python"},
		"no such file":          {"--replay", "/nowhere/lines"},
		"ended without a reply": {"ring", "--against", "false"},
		"ring: a system broke":  {"ring", "--against", "false"},
		"contains no operation": {"--replay", os.DevNull},
		"nothing was compared":  {"ring", "--minutes", "1e-9"},
	} {
		out, err := runFuzz(t, args...)
		require.Error(t, err)
		require.Contains(t, out+err.Error(), want)
	}
}
