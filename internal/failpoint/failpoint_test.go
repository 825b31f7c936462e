package failpoint

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPointsAreThoseOfTheSource: TestKillMatrix of objstore kills at each of them.
func TestPointsAreThoseOfTheSource(t *testing.T) {
	call := regexp.MustCompile(`failpoint\.Hit\("([^"]*)"\)`)
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range call.FindAllSubmatch(b, -1) {
			found[string(m[1])] = true
		}
		return err
	}))
	listed := map[string]bool{}
	for _, p := range Points {
		require.False(t, listed[p.Name], "%s is listed twice", p.Name)
		require.NotEmpty(t, p.When, p.Name)
		listed[p.Name] = true
	}
	require.Equal(t, found, listed, "the list and the calls of Hit")
}

func TestHook(t *testing.T) {
	var hits []string
	hook := func(name string) { hits = append(hits, name) }
	Hit("nobody listens")
	if !Enabled {
		require.Panics(t, func() { Set(hook) }, "a test that relies on it would pass without a word")
		skipped := &skipper{}
		Need(skipped)
		require.Contains(t, skipped.reason, "-tags failpoints")
		return
	}
	Need(nilSkipper{})
	Set(hook)
	Hit("a")
	Set(nil)
	Hit("b")
	require.Equal(t, []string{"a"}, hits)
}

type skipper struct{ reason string }

func (s *skipper) Helper()          {}
func (s *skipper) Skip(args ...any) { s.reason = args[0].(string) }

type nilSkipper struct{}

func (nilSkipper) Helper()     {}
func (nilSkipper) Skip(...any) { panic("skipped") }

// TestProductionBuildsHaveNone: the calls disappear, with the names that they pass.
func TestProductionBuildsHaveNone(t *testing.T) {
	const users = "github.com/ringcache/ringcache/internal/sidecar"
	for tags, want := range map[string]bool{"": false, "failpoints": true} {
		object := filepath.Join(t.TempDir(), "sidecar.a")
		run(t, "build", "-tags="+tags, "-o", object, users)
		calls := slices.DeleteFunc(strings.Split(run(t, "tool", "nm", object), "\n"), func(line string) bool {
			return !strings.Contains(line, "failpoint.") || strings.Contains(line, "go:info") || // for debuggers
				strings.Contains(line, "..inittask") // an order of packages
		})
		require.Equal(t, want, len(calls) > 0, "tags %q: %q", tags, calls)
		b, err := os.ReadFile(object)
		require.NoError(t, err)
		require.Equal(t, want, strings.Contains(string(b), "sidecar.put.half"), "tags %q: names", tags)
	}
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
