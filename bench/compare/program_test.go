package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func tiny(t *testing.T) options {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(fakeEnv, "1")
	return options{Python: program, Scripts: "peer", Disk: t.TempDir(), Smoke: true, Rounds: 2,
		Budget: time.Millisecond, ColdMiB: 1, LiveMax: 100, Prefault: 1}
}

// TestEveryJob runs everything that is ours, with small sizes, beside peers in this program.
func TestEveryJob(t *testing.T) {
	o := tiny(t)
	r := &Record{Options: o, LeftOut: []LeftOut{}}
	require.NoError(t, r.measure(t.Context(), o))

	// A second and later case of a job may leave a peer out; the first has all but Redis.
	for _, e := range experiments {
		first := e.cases(o)[0]
		for _, j := range e.jobs(newEnvironment(o), first) {
			x, ok := r.find(first, j.Peer())
			if j.Peer() == "Redis" {
				assert.False(t, ok)
				continue
			}
			if !assert.True(t, ok, "%s, %s", e.name, j.Peer()) {
				continue
			}
			assert.GreaterOrEqual(t, len(x.Samples), 2, "a sample for each round")
			assert.Positive(t, x.Summary().Min, "%s, %s", e.name, j.Peer())
		}
	}
	assert.Equal(t, []LeftOut{{"way: Redis", "the package redis-server is not available"}}, r.LeftOut)
	assert.Equal(t, "fake", r.Machine.Versions["vLLM"])
	for _, folder := range []string{"/dev/shm", o.Disk} {
		left, err := filepath.Glob(fmt.Sprintf("%s/ringcache-compare-%d-*", folder, os.Getpid()))
		require.NoError(t, err)
		assert.Empty(t, left, "segments and files that were left behind")
	}

	// What is written reads the same, and draws the same.
	folder := t.TempDir()
	require.NoError(t, report(r, folder))
	again, err := readRecord(filepath.Join(folder, "raw.json"))
	require.NoError(t, err)
	assert.Equal(t, r.Results, again.Results)
	assert.Equal(t, string(table(r)), string(table(again)))
	for _, name := range []string{"new-warm", "live-put", "goroutines-cold-4", "latency-delivery-warm-4"} {
		text, err := os.ReadFile(filepath.Join(folder, name+".svg"))
		require.NoError(t, err)
		require.NoError(t, xml.Unmarshal(text, new(struct{ XMLName xml.Name })))
	}
}

func TestAPeerThatFailsIsAnError(t *testing.T) {
	env := newEnvironment(tiny(t))
	defer func() { require.NoError(t, env.Close()) }()
	_, _, err := runner{rounds: 1, budget: time.Millisecond, most: 1}.measure(Case{Job: "fail"},
		[]Job{inPython("vLLM").make(env)})
	require.ErrorContains(t, err, "as asked")
}

func TestWithoutPythonItsPeersAreLeftOut(t *testing.T) {
	env := newEnvironment(options{})
	results, out, err := runner{rounds: 1, budget: time.Millisecond, most: 4}.measure(
		Case{Job: "hash", Size: 10}, []Job{inPython("vLLM").make(env), ourHash()})
	require.NoError(t, err)
	require.Len(t, results, 1)
	assert.Equal(t, "mmhash", results[0].Peer)
	require.Len(t, out, 1)
	assert.Contains(t, out[0].Reason, "not available")
}

func TestAPeerThatEndsIsStartedAgain(t *testing.T) {
	env := newEnvironment(tiny(t))
	defer func() { require.NoError(t, env.Close()) }()
	run := runner{rounds: 1, budget: time.Millisecond, most: 1}
	_, _, err := run.measure(Case{Job: "end"}, []Job{inPython("vLLM").make(env)})
	require.ErrorContains(t, err, "ended")
	results, _, err := run.measure(Case{Job: "hash", Size: 10}, []Job{inPython("vLLM").make(env)})
	require.NoError(t, err)
	assert.Len(t, results, 1)
}
