package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// required are the modules that a go.mod requires, with their versions.
func required(text string) map[string]string {
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(?:require |\t)(\S+) (v\S+)`).FindAllStringSubmatch(text, -1) {
		all[m[1]] = m[2]
	}
	return all
}

// older reports whether a version of a module is older than another one.
func older(a, b string) bool {
	a, beforeA, preA := strings.Cut(strings.TrimPrefix(a, "v"), "-")
	b, beforeB, preB := strings.Cut(strings.TrimPrefix(b, "v"), "-")
	numbersA, numbersB := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(numbersA), len(numbersB)) {
		x, _ := strconv.Atoi(numbersA[i])
		y, _ := strconv.Atoi(numbersB[i])
		if x != y {
			return x < y
		}
	}
	if preA != preB {
		return preA
	}
	return beforeA < beforeB // times of commits
}

// TestModulesFollowTheRoot: a module of the repository that takes the root from its folder requires what the root does in no older
// version. Else go builds nothing there before go mod tidy, which is noticed where those modules are built, and that is seldom.
func TestModulesFollowTheRoot(t *testing.T) {
	require.True(t, older("v1.9.0", "v1.10.0") && older("v1.0.0-rc.1", "v1.0.0") && !older("v1.0.0", "v1.0.0"))
	require.True(t, older("v0.0.0-20260817212433-ac3dfec99bb1", "v0.0.0-20260928230214-8a89bd6388cc"))
	root, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	require.NoError(t, err)
	want := required(string(root))
	require.Greater(t, len(want), 20)
	modules := 0
	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		if d.Name() != "go.mod" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "replace github.com/ringcache/ringcache =>") {
			return err
		}
		modules++
		for name, version := range required(string(text)) {
			if least, ok := want[name]; ok {
				assert.False(t, older(version, least), "%s requires %s %s, and the root %s: run go mod tidy there", path, name, version, least)
			}
		}
		return nil
	}))
	require.Greater(t, modules, 3)
}
