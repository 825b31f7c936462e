package doctor

import (
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/pycompat"
)

// lmcacheReleases are those whose wires the daemon speaks.
var lmcacheReleases = []string{"0.5.6", "0.5.7"}

// python looks for vLLM and LMCache, by what pip leaves of them: no Python is run.
func (d *doctor) python() {
	folders := []string{"/usr/lib", "/usr/local/lib", "/opt/conda/lib", "/opt/venv/lib"}
	for _, e := range slices.Concat(d.Environments, []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")}) {
		if abs, err := filepath.Abs(e); e != "" && err == nil {
			folders = append(folders, path.Join(abs, "lib"))
		}
	}
	seen := map[string]bool{}
	for _, f := range folders {
		for _, packages := range []string{"site-packages", "dist-packages"} {
			for _, name := range []string{"vllm", "lmcache"} {
				pattern := path.Join(strings.TrimPrefix(f, "/"), "python3*", packages, name+"-*.dist-info")
				found, _ := fs.Glob(d.Root, pattern) // a folder that can't be read has nothing
				for _, p := range found {
					if seen[p] {
						continue
					}
					seen[p] = true
					version := strings.TrimSuffix(strings.TrimPrefix(path.Base(p), name+"-"), ".dist-info")
					d.release(name, version, "/"+path.Dir(p))
				}
			}
		}
	}
	if len(seen) == 0 {
		d.add(slog.LevelInfo, "python", "",
			"neither vLLM nor LMCache is installed where Python looks first; name an environment by --python")
	}
}

// release judges a release of an engine, or of LMCache.
func (d *doctor) release(name, version, where string) {
	plain, _, _ := strings.Cut(version, "+") // 0.32.0+cpu is 0.32.0
	if name == "lmcache" {
		if slices.ContainsFunc(lmcacheReleases, func(r string) bool {
			return plain == r || strings.HasPrefix(plain, r+".") || strings.HasPrefix(plain, r+"rc")
		}) {
			d.add(slog.LevelInfo, "python", "", "LMCache %s in %s", version, where)
			return
		}
		d.add(slog.LevelWarn, "python", "pip install lmcache=="+lmcacheReleases[0],
			"LMCache %s in %s: the daemon speaks the wires of %s, and no others were tried",
			version, where, strings.Join(lmcacheReleases, " and "))
		return
	}
	if _, err := pycompat.Lookup(plain); err != nil {
		d.add(slog.LevelWarn, "python", "pip install vllm=="+pycompat.Newest().Version,
			"vLLM %s in %s: %v", version, where, err)
		return
	}
	d.add(slog.LevelInfo, "python", "", "vLLM %s in %s", version, where)
}
