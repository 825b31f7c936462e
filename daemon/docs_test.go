package daemon

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOperationsHaveAllSettingsAndMetrics: the tables in docs/operations.md are those of the code.
func TestOperationsHaveAllSettingsAndMetrics(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "docs", "operations.md"))
	require.NoError(t, err)
	text := string(b)
	for f := range reflect.TypeFor[Config]().Fields() {
		if !f.IsExported() {
			continue
		}
		row := "| `" + f.Tag.Get("name") + "`"
		if f.Tag.Get("reload") == "yes" {
			row += " ↻"
		}
		row += " | "
		if d := f.Tag.Get("default"); d != "" {
			row += "`" + d + "`"
		}
		require.Contains(t, text, row+" | "+f.Tag.Get("help")+" |")
	}
	name, help := regexp.MustCompile(`fqName: "(\w+)"`), regexp.MustCompile(`help: "([^"]+)"`)
	for _, m := range allMetrics {
		d := m.desc.String()
		require.Regexp(t, "(?m)^\\| `"+name.FindStringSubmatch(d)[1]+"` \\| .*\\| "+regexp.QuoteMeta(help.FindStringSubmatch(d)[1]), text)
	}
	for _, found := range regexp.MustCompile("(?m)^\\| `(ringcache_\\w+)`").FindAllStringSubmatch(text, -1) {
		known := false
		for _, m := range allMetrics {
			known = known || name.FindStringSubmatch(m.desc.String())[1] == found[1]
		}
		require.True(t, known, found[1])
	}
}
