//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFrontend: the example server, to which photos are posted as files, gives the
// tokens that vLLM's own frontend gives for them: decoding and preprocessing in Go
// included.
func TestFrontend(t *testing.T) {
	env, err := environment()
	require.NoError(t, err)
	bin := filepath.Join(work, "frontend")
	out, err := exec.Command("go", "build", "-o", bin, "../../examples/frontend").CombinedOutput()
	require.NoError(t, err, string(out))
	for _, name := range []string{"llava", "qwen2vl"} {
		t.Run(name, func(t *testing.T) {
			k := kind{newest, name}
			ref := referenceOf(t, k)
			launch := k.command(t, "launch.py", "--handshake", "{handshake}", "--shm", "{segment}", "--cache-gb",
				"0.0625", "--die-with-stdin")
			cmd := exec.Command(bin, append([]string{
				"--model", env["model_"+name], "--version", newest, "--capacity", "0.0625", "--listen", "127.0.0.1:0",
				"--log", "--"}, launch.Args...)...)
			var words bytes.Buffer
			cmd.Stderr = &words
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			defer func() {
				require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
				err := cmd.Wait()
				if t.Failed() {
					t.Log(words.String())
				}
				require.NoError(t, err)
			}()
			first := make([]byte, 256)
			n, err := stdout.Read(first)
			require.NoError(t, err)
			_, url, ok := strings.Cut(string(first[:n]), "listening on ")
			require.True(t, ok)
			url, _, _ = strings.Cut(url, ",")
			go io.Copy(io.Discard, stdout) // ends with the process
			require.Eventually(t, func() bool {
				res, err := http.Get(url + "/health")
				if err != nil {
					return false
				}
				res.Body.Close()
				return res.StatusCode == http.StatusOK
			}, 3*time.Minute, 100*time.Millisecond)

			questions := map[string]question{}
			for _, q := range inputs(name) {
				questions[q.Name] = q
			}
			asked := 0
			for range 2 {
				for _, p := range photos() {
					in := ref.named(t, filepath.Base(p))
					file, err := os.ReadFile(p)
					require.NoError(t, err)
					body, err := json.Marshal(map[string]any{
						"prompt_token_ids": questions[in.Name].Prompt, "images": [][]byte{file}, "params": in.Params,
					})
					require.NoError(t, err)
					res, err := http.Post(url+"/v1/generate", "application/json", bytes.NewReader(body))
					require.NoError(t, err)
					var got []uint32
					for d := json.NewDecoder(res.Body); ; {
						var part struct {
							Tokens []uint32 `json:"token_ids"`
							Error  string
						}
						if err := d.Decode(&part); errors.Is(err, io.EOF) {
							break
						} else {
							require.NoError(t, err)
						}
						require.Empty(t, part.Error)
						got = append(got, part.Tokens...)
					}
					res.Body.Close()
					require.Equal(t, in.Tokens, got, in.Name)
					asked++
				}
			}
			res, err := http.Get(url + "/stats")
			require.NoError(t, err)
			defer res.Body.Close()
			var st struct {
				HitRate float64 `json:"hit_rate"`
				Fill    float64
			}
			require.NoError(t, json.NewDecoder(res.Body).Decode(&st))
			require.InDelta(t, 0.5, st.HitRate, 0.001)
			require.Positive(t, st.Fill)
			t.Logf("%d photos posted, twice each: all tokens equal, hits %.0f %%", asked/2, 100*st.HitRate)
		})
	}
}
