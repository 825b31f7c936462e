//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPreprocess: what preprocess makes of images beside what vLLM's own
// processors make of them now, number by number.
func TestPreprocess(t *testing.T) {
	env, err := environment()
	require.NoError(t, err)
	dir := filepath.Join(work, "preprocess")
	out, err := exec.Command(env["python"], "../../preprocess/reference.py", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command("go", "test", "-count=1", "-v", "-run", "^TestReference$", "../../preprocess")
	cmd.Env = append(os.Environ(), "PREPROCESS_REFERENCE="+dir)
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	// Each line ends with how many numbers are so many steps of a byte apart.
	all := map[string]int{}
	images := 0
	for _, m := range regexp.MustCompile(`by steps apart: map\[(.*)\]`).FindAllStringSubmatch(string(out), -1) {
		images++
		for _, pair := range strings.Fields(m[1]) {
			step, count, ok := strings.Cut(pair, ":")
			require.True(t, ok)
			var n int
			_, err := fmt.Sscan(count, &n)
			require.NoError(t, err)
			all[step] += n
		}
	}
	require.Greater(t, images, 500)
	require.Equal(t, []string{"0"}, keys(all), "equal, not only near")
	t.Logf("%d items of images: numbers by the steps of a byte that they are apart: %v", images, all)
}

func keys(m map[string]int) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}
