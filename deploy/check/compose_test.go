package check

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

// compose loads files as `docker compose -f FILE -f FILE` does.
func compose(t *testing.T, env []string, files ...string) (*types.Project, error) {
	t.Helper()
	var paths []string
	for _, f := range files {
		paths = append(paths, filepath.Join("..", f))
	}
	o, err := cli.NewProjectOptions(paths, cli.WithName("ringcache"), cli.WithEnv(env), cli.WithInterpolation(true), cli.WithResolvedPaths(true))
	require.NoError(t, err)
	return o.LoadProject(t.Context())
}

// TestCompose: the files are what Compose takes, alone and one over the other, and say what the chart says.
func TestCompose(t *testing.T) {
	_, err := compose(t, nil, "compose.yaml")
	require.ErrorContains(t, err, "name a model")

	model := []string{"MODEL=org/model", "ENGINE_USER=1000:1000"}
	p, err := compose(t, model, "compose.yaml")
	require.NoError(t, err)
	kv, err := compose(t, model, "compose.yaml", "compose.kv.yaml")
	require.NoError(t, err)
	for name, x := range map[string]struct {
		p    *types.Project
		told string
		flag string
		own  types.UnitBytes // memory beside --size
	}{
		"encoder outputs": {p, "ec-transfer-config.json", "--ec-transfer-config", 2 << 30},
		"KV":              {kv, "kv-transfer-config.json", "--kv-transfer-config", 4 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			server, engine := x.p.Services["ringcache"], x.p.Services["engine"]
			chart := render(t, values{"size": "8GiB", "disk": values{"size": "100GiB"}, "lmcache": values{"enabled": name == "KV"}})
			require.Equal(t, chart.daemon().Args, []string(server.Command))
			require.Equal(t, 8<<30+x.own, server.MemLimit)
			require.Equal(t, "1000:1000", server.User)
			require.Equal(t, server.User, engine.User)
			require.Equal(t, []string{"CMD", "/ringcache", "serve", "status"}, []string(server.HealthCheck.Test))
			require.True(t, server.ReadOnly)
			require.Equal(t, []string{"ALL"}, server.CapDrop)
			require.Equal(t, types.ServiceConditionHealthy, engine.DependsOn["ringcache"].Condition)
			require.Equal(t, []string{"vllm", "serve"}, []string(engine.Entrypoint))
			require.Equal(t, "org/model", engine.Command[0])
			require.Equal(t, x.flag, engine.Command[1])
			require.JSONEq(t, told(t, chart)[x.told], engine.Command[2])
			for _, s := range []types.ServiceConfig{server, engine} {
				at := map[string]string{}
				for _, v := range s.Volumes {
					at[v.Target] = v.Source
				}
				require.Equal(t, "shm", at["/dev/shm"])
				require.Equal(t, "run", at["/run/ringcache"])
				require.True(t, strings.HasSuffix(s.Build.Dockerfile, "deploy/Containerfile"))
			}
		})
	}
}
