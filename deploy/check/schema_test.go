package check

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon"
)

// TestRefusedValues: what can't work is refused before anything is installed, with a text that names the value.
func TestRefusedValues(t *testing.T) {
	for name, c := range map[string]struct {
		values values
		text   string
	}{
		"a size that is no whole number of GiB":   {values{"size": "1.5GiB"}, "size"},
		"a size without unit":                     {values{"size": 16}, "size"},
		"no such value":                           {values{"sizes": "1GiB"}, "sizes"},
		"no such setting":                         {values{"settings": values{"qouta": "1GiB"}}, "qouta"},
		"a setting that has a value of its own":   {values{"settings": values{"disk": "/mnt"}}, "disk"},
		"a setting of another type":               {values{"settings": values{"prefault": "yes"}}, "prefault"},
		"a port":                                  {values{"lm": values{"port": 0}}, "port"},
		"a path that is not absolute":             {values{"paths": values{"disk": "cache"}}, "disk"},
		"events without a model":                  {values{"directory": values{"events": []any{"tcp://engine:5557"}}}, "events"},
		"two daemons of a node at a time":         {values{"updateStrategy": values{"rollingUpdate": values{"maxSurge": 1}}}, "maxSurge"},
		"HTTP for all pods, without a key":        {values{"http": values{"expose": true}}, "http.keySecret"},
		"HTTP for all pods, by TLS without a key": {values{"http": values{"expose": true, "tlsSecret": values{"name": "served"}}}, "http.keySecret"},
		"clients' certificates without TLS":       {values{"http": values{"expose": true, "tlsSecret": values{"clientCA": true}}}, "clientCA needs TLS"},
		"a monitor of what is on loopback": {values{"http": values{"podMonitor": values{"enabled": true}}},
			"http.expose"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := install(t, c.values)
			require.ErrorContains(t, err, c.text)
		})
	}
	_, err := install(t, values{"http": values{"expose": true}, "lmcache": values{"enabled": false}})
	require.NoError(t, err, "there is nothing to clear")
}

// ofTheChart are the settings that values of the chart stand for. Those of Sentinels need a file, which nothing mounts.
var ofTheChart = map[string]bool{
	"socket":                       true,
	"size":                         true,
	"shm-dir":                      true,
	"disk":                         true,
	"disk-size":                    true,
	"drain":                        true,
	"lmcache":                      true,
	"lm":                           true,
	"resp":                         true,
	"resp-password-file":           true,
	"values-any":                   true,
	"redis":                        true,
	"redis-user":                   true,
	"redis-password-file":          true,
	"redis-sentinel-user":          true,
	"redis-sentinel-password-file": true,
	"http":                         true,
	"http-any":                     true,
	"http-key-file":                true,
	"http-cert":                    true,
	"http-cert-key":                true,
	"http-client-ca":               true,
}

// TestSchemaHasEachSetting: a new setting of the daemon is one of the chart, by a line in values.schema.json.
func TestSchemaHasEachSetting(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	require.NoError(t, err)
	var schema struct {
		Properties struct {
			Settings struct{ Properties map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(text, &schema))
	want := map[string]any{}
	for f := range reflect.TypeFor[daemon.Config]().Fields() {
		name := f.Tag.Get("name")
		if !f.IsExported() || ofTheChart[name] {
			continue
		}
		kind := "string"
		switch f.Type.Kind() {
		case reflect.Bool:
			kind = "boolean"
		case reflect.Int:
			kind = "integer"
		case reflect.Slice:
			want[name] = map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
			continue
		}
		want[name] = map[string]any{"type": kind}
		if f.Tag.Get("is") == "bytes" {
			want[name] = map[string]any{"type": []any{"string", "integer"}}
		}
	}
	require.Equal(t, want, schema.Properties.Settings.Properties)
}
