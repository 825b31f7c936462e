//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// pinning is how an engine runs with regard to the plugin ringcache.vllm.
type pinning string

const (
	pinOff  pinning = "off"  // installed, and not asked for
	pinFake pinning = "fake" // with the fake driver, whose device's memory the model computes on
	pinNone pinning = "none" // asked for, on this machine without a GPU
)

// pinned is what makes an engine run so, and what it leaves to be looked at.
type pinned struct {
	t      testing.TB
	as     pinning
	folder string
	env    []string
}

// fakeDriver compiles the fake CUDA driver once.
var fakeDriver = sync.OnceValues(func() (string, error) {
	library := filepath.Join(work, "libcuda.so.1")
	source := filepath.Join("..", "..", "pin", "cuda", "testdata", "driver", "driver.c")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-pthread", "-o", library,
		source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return library, nil
})

func newPinned(t testing.TB, k kind, as pinning) *pinned {
	t.Helper()
	p := &pinned{t: t, as: as, folder: t.TempDir()}
	p.env = []string{"PIN_PROBE=" + p.folder, "PYTHONPATH=" + p.path(k)}
	if as != pinOff {
		p.env = append(p.env, "RINGCACHE_VLLM_PIN=1")
	}
	if as == pinFake {
		if _, err := exec.LookPath("cc"); err != nil {
			t.Skip("no C compiler for the fake driver:", err)
		}
		library, err := fakeDriver()
		require.NoError(t, err)
		p.env = append(p.env, "PIN_PROBE_DEVICE=fake", "RINGCACHE_CUDA_LIBRARY="+library,
			"FAKE_CUDA_LOG="+p.driverLog(), "FAKE_CUDA_DELAY_US=2000")
	}
	return p
}

func (p *pinned) driverLog() string { return filepath.Join(p.folder, "driver.log") }

// path is a PYTHONPATH on which vLLM finds the plugin as if its wheel were installed,
// and that of the probe.
func (p *pinned) path(k kind) string {
	here, err := filepath.Abs(".")
	require.NoError(p.t, err)
	found := []string{
		p.distribution("ringcache", entryPoints(p.t)),
		p.distribution("ringcache-e2e-probe", "[vllm.general_plugins]\nprobe = pin_probe:register\n"),
		filepath.Join(here, "..", "..", "python", "src"), here,
	}
	if k.version != newest {
		env, err := environment()
		require.NoError(p.t, err)
		found = append(found, env["release_"+k.version])
	}
	return strings.Join(found, string(os.PathListSeparator))
}

// distribution makes a folder in which a distribution is installed that has the entry points.
func (p *pinned) distribution(name, points string) string {
	folder := filepath.Join(p.folder, name)
	info := filepath.Join(folder, strings.ReplaceAll(name, "-", "_")+"-0.dist-info")
	require.NoError(p.t, os.MkdirAll(info, 0o700))
	require.NoError(p.t, os.WriteFile(filepath.Join(info, "METADATA"),
		[]byte("Metadata-Version: 2.1\nName: "+name+"\nVersion: 0\n"), 0o600))
	require.NoError(p.t, os.WriteFile(filepath.Join(info, "entry_points.txt"), []byte(points), 0o600))
	return folder
}

var pluginSection = regexp.MustCompile(`(?m)^\[project\.entry-points\."vllm\.general_plugins"\]\n((?:\w.*\n)+)`)

// entryPoints are those that the wheel ships.
func entryPoints(t testing.TB) string {
	b, err := os.ReadFile(filepath.Join("..", "..", "python", "pyproject.toml"))
	require.NoError(t, err)
	found := pluginSection.FindSubmatch(b)
	require.NotNil(t, found, "pyproject.toml has no plugin of vLLM")
	return "[vllm.general_plugins]\n" + strings.ReplaceAll(string(found[1]), `"`, "")
}

// worker is what the probe reports of a worker, see pin_probe.py.
type worker struct {
	InPlace     int `json:"in_place"` // objects from the receiver
	Copied      int
	FromDevice  int `json:"from_device"` // tensors that were joined to batches
	FromRing    int `json:"from_ring"`
	FromPrivate int `json:"from_private"`
	Compared    int
	Wrong, Late int // of those compared
	Live        int // of the fake driver, at the end
	Contexts    int
	Violations  int
	Statistics  *struct {
		Registrations int
		InPlace       int `json:"in_place"`
		Copied        int
		DeviceCopies  int `json:"device_copies"`
		Spilled       int
	}
}

func (w worker) objects() int { return w.InPlace + w.Copied }

// workers checks what n workers report that have ended.
func (p *pinned) workers(n int) (found []worker) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.folder, "*.json"))
	require.NoError(p.t, err)
	require.Len(p.t, files, n, "workers that came to their end")
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(p.t, err)
		var w worker
		require.NoError(p.t, json.Unmarshal(b, &w))
		require.Zero(p.t, w.FromRing, "the model got tensors that view the ring")
		if p.as == pinFake {
			require.Positive(p.t, w.InPlace)
			require.Positive(p.t, w.Compared)
			require.Equal(p.t, w.FromDevice, w.Compared)
			require.Zero(p.t, w.Wrong, "copies on the device that differ from the ring")
			require.Positive(p.t, w.Late, "no copy was asynchronous, so that nothing was shown")
			require.Equal(p.t, []int{1, w.InPlace, w.Copied, w.FromDevice},
				[]int{w.Statistics.Registrations, w.Statistics.InPlace, w.Statistics.Copied, w.Statistics.DeviceCopies})
			require.Zero(p.t, w.Live+w.Contexts+w.Violations, "%+v", w)
		} else {
			require.Zero(p.t, w.InPlace+w.FromDevice)
			require.Positive(p.t, w.FromPrivate)
			require.Equal(p.t, p.as == pinOff, w.Statistics == nil)
		}
		found = append(found, w)
		p.t.Logf("%-4s objects %4d, host copies per object %.2f; tensors joined from device %4d (%d compared, %d of them asynchronous), from private memory %4d",
			p.as, w.objects(), float64(w.Copied)/float64(w.objects()), w.FromDevice, w.Compared, w.Late, w.FromPrivate)
	}
	return found
}

// driver checks the calls that n processes made to the fake driver.
func (p *pinned) driver(n, copies int, ends bool) {
	p.t.Helper()
	b, err := os.ReadFile(p.driverLog())
	require.NoError(p.t, err)
	calls := map[string]map[string]int{} // by what was called, by process
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		require.NotContains(p.t, line, "VIOLATION")
		if words[2] == "exit" {
			require.Contains(p.t, line, "exit live=0 contexts=0 violations=0")
		} else {
			require.True(p.t, strings.HasSuffix(line, " = 0\n"), line)
		}
		if calls[words[2]] == nil {
			calls[words[2]] = map[string]int{}
		}
		calls[words[2]][words[0]]++
	}
	for _, call := range []string{"cuMemHostRegister", "cuMemHostUnregister"} {
		require.Len(p.t, calls[call], n, call)
		for pid, times := range calls[call] {
			require.Equal(p.t, 1, times, "%s by %s", call, pid)
		}
	}
	if ends {
		require.Len(p.t, calls["exit"], n)
	}
	total := 0
	for _, times := range calls["cuMemcpyHtoDAsync"] {
		total += times
	}
	require.Equal(p.t, copies, total)
	p.t.Logf("driver: %d processes registered and unregistered once each, %d copies", n, total)
}

// TestPinned: the plugin ringcache.vllm in the workers of an engine whose inputs this
// frontend sends. Tokens stay what they are, and no object is copied on the host.
func TestPinned(t *testing.T) {
	for _, test := range []struct {
		kind
		tp int
		as pinning
	}{
		{kind{newest, "llava"}, 1, pinOff},
		{kind{newest, "llava"}, 1, pinFake},
		{kind{newest, "llava"}, 1, pinNone},
		{kind{newest, "llava"}, 2, pinOff},
		{kind{newest, "llava"}, 2, pinFake},
		{kind{newest, "llava"}, 2, pinNone},
		{kind{newest, "qwen2vl"}, 2, pinFake},
		{kind{"0.31.0", "llava"}, 1, pinFake},
	} {
		t.Run(fmt.Sprintf("%s/%s/tp%d/%s", test.version, test.model, test.tp, test.as), func(t *testing.T) {
			p := newPinned(t, test.kind, test.as)
			r := newRig(t, setup{kind: test.kind, tp: test.tp, mode: "shm", env: p.env})
			all, objects := r.ref.all(), 0
			for _, in := range all {
				r.right(in)
				objects += len(in.Images)
			}
			require.Zero(t, r.everything(4, all), "everything was cached")
			objects *= 2
			r.balanced()
			r.sound()
			require.NoError(t, r.Close(r.ctx)) // in order, so that workers come to their end
			copies := 0
			for _, w := range p.workers(test.tp) {
				require.Equal(t, objects, w.objects())
				copies += w.FromDevice
			}
			said := map[string]int{}
			for _, text := range []string{"The plugin of ringcache", "cannot pin segment", "copies to the device"} {
				said[text] = strings.Count(r.words(), text)
			}
			want := map[string]int{"The plugin of ringcache": 0, "cannot pin segment": 0, "copies to the device": 0}
			if test.as != pinOff {
				want["copies to the device"] = test.tp // the numbers at the end of a worker
			}
			if test.as == pinNone {
				want["cannot pin segment"] = test.tp // once from each worker
			}
			require.Equal(t, want, said)
			for line := range strings.Lines(r.words()) {
				if strings.Contains(line, "cannot pin segment") || strings.Contains(line, "copies to the device") {
					t.Log(strings.TrimSpace(line))
				}
			}
			if test.as == pinFake {
				ended := !strings.Contains(r.words(), "workers still running after grace period")
				if !ended { // on a busy machine vLLM terminates workers that would have ended by themselves
					t.Log("vLLM has terminated the workers, so whether each has given all back at its end is not checked")
				}
				p.driver(test.tp, copies, test.tp > 1 && ended)
			}
		})
	}
}

// TestPinnedOffline: with vLLM's own frontend, whose writer frees in the order in which it
// wrote. A request that lasts keeps its object in use, and the ring goes round beside it.
func TestPinnedOffline(t *testing.T) {
	const long = "image3"
	for _, test := range []struct {
		tp int
		as pinning
	}{{1, pinOff}, {1, pinFake}, {2, pinFake}} {
		t.Run(fmt.Sprintf("%s/llava/tp%d/%s", newest, test.tp, test.as), func(t *testing.T) {
			k := kind{newest, "llava"}
			p, ref := newPinned(t, k, test.as), referenceOf(t, k)
			cmd := k.command(t, "pin_offline.py", "--inputs", filepath.Join(ref.dir, "inputs.json"), "--long", long,
				"--tp", fmt.Sprint(test.tp))
			cmd.Env = append(cmd.Env, p.env...)
			var log bytes.Buffer
			cmd.Stderr = &log
			out, err := cmd.Output()
			require.NoError(t, err, log.String())
			var found struct {
				Tokens map[string][]uint32
				Sent   struct{ Ring, Message int }
			}
			require.NoError(t, json.Unmarshal(out, &found), string(out))
			all, objects := ref.all(), 1
			for _, in := range all {
				require.Equal(t, in.Tokens, found.Tokens[in.Name], in.Name)
				objects += len(in.Images)
			}
			require.Equal(t, ref.named(t, long).Tokens, found.Tokens["long"][:len(ref.named(t, long).Tokens)])
			require.Equal(t, objects, found.Sent.Ring)
			require.Zero(t, found.Sent.Message, "items that found no room in the ring")
			copies := 0
			for _, w := range p.workers(test.tp) {
				require.Equal(t, objects, w.objects())
				copies += w.FromDevice
				if test.as == pinFake {
					require.Positive(t, w.Statistics.Spilled)
					t.Logf("%d objects through a ring of 1 MiB beside one that is in use: %d copied to let the writer go on", objects, w.Statistics.Spilled)
				}
			}
			if test.as == pinFake {
				p.driver(test.tp, copies, false) // that frontend waits for no end but its own
			}
		})
	}
}
