//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
)

// TestServe: the engine is started as operators do it, by `vllm serve --headless`.
func TestServe(t *testing.T) {
	r := newRig(t, setup{mode: "shm", serve: true})
	for _, in := range r.ref.all()[:60] {
		r.right(in)
	}
	r.balanced()
	r.drained()
	r.sound()
	t.Log("60 requests to an engine of vllm serve --headless: all tokens equal")
}

// serve is that command. vLLM's own looks for a distribution called "vllm", which the
// one for CPUs is not, so it is given a description of one.
func (r *rig) serve(a engine.Address) *exec.Cmd {
	env, err := environment()
	require.NoError(r.t, err)
	shim := filepath.Join(work, "shim")
	info := filepath.Join(shim, "vllm-"+r.s.version+"+cpu.dist-info")
	require.NoError(r.t, os.MkdirAll(info, 0o700))
	text := "Metadata-Version: 2.1\nName: vllm\nVersion: " + r.s.version + "+cpu\n"
	require.NoError(r.t, os.WriteFile(filepath.Join(info, "METADATA"), []byte(text), 0o600))
	cmd := exec.Command(env["python"], "-m", "vllm.entrypoints.cli.main", "serve", env["model_"+r.s.model],
		"--headless", "--data-parallel-address", a.Host, "--data-parallel-rpc-port", a.Port,
		"--mm-processor-cache-type", r.s.mode, "--mm-processor-cache-gb",
		strconv.FormatFloat(float64(r.s.ring)/(1<<30), 'g', -1, 64),
		"--dtype", "float32", "--enforce-eager", "--seed", "0", "--max-model-len", "4096", "--max-num-seqs", "4",
		"--max-num-batched-tokens", "512", "--no-enable-prefix-caching", "--skip-mm-profiling",
		"--num-gpu-blocks-override", "256")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+shim, "VLLM_ENABLE_V1_MULTIPROCESSING=0", "VLLM_CPU_KVCACHE_SPACE=1",
		"VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it does not notice a frontend's end
	cmd.Stdout, cmd.Stderr = r, r
	return cmd
}
