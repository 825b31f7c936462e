package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goreleaserFile is what these tests look at in .goreleaser.yaml. `make dist` has goreleaser itself check the rest.
type goreleaserFile struct {
	Builds []struct {
		Main    string
		Env     []string
		Flags   []string
		LDFlags []string `yaml:"ldflags"`
		GOOS    []string `yaml:"goos"`
		GOARCH  []string `yaml:"goarch"`
		ModTime string   `yaml:"mod_timestamp"`
		Hooks   struct{ Post []struct{ Cmd string } }
	}
	Archives []struct {
		Files []struct{ Src string }
	}
	NFPMs []struct {
		Formats  []string
		Contents []struct{ Src, Dst, Type string }
	} `yaml:"nfpms"`
	Checksum struct {
		Extra []struct{ Glob string } `yaml:"extra_files"`
	}
	Signs []struct{ Artifacts, Cmd string }
}

func releaseFile(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, parts...)...))
	require.NoError(t, err)
	return string(text)
}

// TestReleaseProgramIsOne: archives, packages, wheels and images have the same program, since all are built by the same command.
func TestReleaseProgramIsOne(t *testing.T) {
	var file goreleaserFile
	readYAML(t, filepath.Join("..", "..", ".goreleaser.yaml"), &file)
	require.Len(t, file.Builds, 1)
	b := file.Builds[0]
	require.Equal(t, "./cmd/ringcache", b.Main)
	require.Equal(t, []string{"linux"}, b.GOOS)
	require.Equal(t, []string{"amd64", "arm64"}, b.GOARCH)
	require.Equal(t, "{{ .CommitTimestamp }}", b.ModTime)
	command := strings.Join(b.Env, " ") + " go build " + strings.Join(b.Flags, " ") + ` -ldflags="` + strings.Join(b.LDFlags, " ") + `"`
	require.Contains(t, command, "-buildvcs=true", "the version is the tag's")
	require.Contains(t, releaseFile(t, "Makefile"), "\nGO_RELEASE := "+command+"\n")
	require.Contains(t, releaseFile(t, "Makefile"), "\tfor arch in "+strings.Join(b.GOARCH, " ")+"; do ")
	require.Contains(t, releaseFile(t, "deploy", "Containerfile"), "\nRUN "+command+" -o /out/ringcache ./cmd/ringcache ")
	require.Contains(t, releaseFile(t, "scripts", "release", "extras.sh"), "\n"+command+" -o ")
	require.Len(t, b.Hooks.Post, 1)
	require.FileExists(t, filepath.Join("..", "..", strings.Fields(b.Hooks.Post[0].Cmd)[0]))
}

// TestReleaseFilesAreThere: what archives and packages contain is in the repository, or is made by the scripts beside it.
func TestReleaseFilesAreThere(t *testing.T) {
	var file goreleaserFile
	readYAML(t, filepath.Join("..", "..", ".goreleaser.yaml"), &file)
	made := releaseFile(t, "scripts", "release", "extras.sh") + releaseFile(t, "scripts", "release", "program.sh")
	installed := map[string]string{}
	var sources []string
	for _, f := range file.Archives[0].Files {
		sources = append(sources, f.Src)
	}
	require.Equal(t, []string{"deb", "rpm"}, file.NFPMs[0].Formats)
	for _, c := range file.NFPMs[0].Contents {
		sources = append(sources, c.Src)
		installed[c.Dst] = c.Type
	}
	require.Greater(t, len(sources), 10)
	for _, s := range sources {
		name := filepath.Base(s)
		switch {
		case strings.HasPrefix(s, "bin/release/"): // completions are written in a loop over the shells
			require.Contains(t, made, strings.TrimSuffix(strings.TrimSuffix(name, filepath.Ext(name)), ".1"), s)
		case strings.HasPrefix(s, "dist/about/"):
			require.Contains(t, made, ` "`+strings.Replace(s, "{{ .Arch }}", "$2", 1)+`"`, s)
		default:
			found, err := filepath.Glob(filepath.Join("..", "..", s))
			require.NoError(t, err)
			require.NotEmpty(t, found, s)
		}
	}
	require.Equal(t, "config|noreplace", installed["/etc/ringcache/ringcache.yaml"], "a new version keeps the settings")
	for _, unit := range unitFiles {
		require.Contains(t, installed, "/usr/lib/systemd/system/"+unit)
	}
	globs := []string{}
	for _, e := range file.Checksum.Extra {
		globs = append(globs, e.Glob)
	}
	require.Contains(t, globs, "dist/*.whl")
	require.Equal(t, "checksum", file.Signs[0].Artifacts)
}

// TestReleaseUnit: the units in packages start the program where packages have it.
func TestReleaseUnit(t *testing.T) {
	extras := releaseFile(t, "scripts", "release", "extras.sh")
	m := regexp.MustCompile(`(?m)^    sed '(.*)' "deploy/systemd/\$unit" > "\$out/\$unit"$`).FindStringSubmatch(extras)
	require.NotNil(t, m)
	require.Contains(t, extras, "\nfor unit in "+strings.Join(unitFiles, " ")+"; do\n")
	var all strings.Builder
	for _, unit := range unitFiles {
		out, err := exec.Command("sed", m[1], deployed("systemd", unit)).Output()
		require.NoError(t, err)
		require.Contains(t, string(out), "# /usr/lib/systemd/system/"+unit)
		all.Write(out)
	}
	require.Contains(t, all.String(), "\nExecStart=/usr/bin/ringcache serve --config /etc/ringcache/ringcache.yaml\n")
	require.Contains(t, all.String(), "\nExecStart=/usr/bin/ringcache directory --http 0.0.0.0:9300\n")
	require.NotContains(t, all.String(), "/usr/local/")
}

// TestReleaseVersions: the version that Go puts into a program is written as Python writes versions, for wheels.
func TestReleaseVersions(t *testing.T) {
	dir := t.TempDir()
	// The script asks Go for the version of a program; here a stand-in answers.
	answer := filepath.Join(dir, "answer")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\ncat "+answer+"\n"), 0o700)) //nolint:gosec // a program
	for version, want := range map[string]string{
		"v0.1.0":                               "0.1.0",
		"v12.34.56":                            "12.34.56",
		"v0.1.0-rc.1":                          "0.1.0rc1",
		"v1.0.0-beta2":                         "1.0.0beta2",
		"v0.1.0+dirty":                         "0.1.0+dirty",
		"v0.0.0-20261127190000-0123456789ab":   "0.0.0.dev20261127190000+g0123456789ab",
		"v0.1.1-0.20261127190000-0123456789ab": "0.1.1.dev20261127190000+g0123456789ab",
		"v0.1.1-0.20261127190000-0123456789ab+dirty": "0.1.1.dev20261127190000+g0123456789ab.dirty",
		"(devel)":       "",
		"v0.1":          "",
		"v0.1.0-wonder": "",
	} {
		require.NoError(t, os.WriteFile(answer, []byte("x: go1.26\n\tpath\tx\n\tmod\tgithub.com/ringcache/ringcache\t"+version+"\t\n"), 0o600))
		cmd := exec.Command(filepath.Join("..", "..", "scripts", "release", "version.sh"), "ringcache")
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		require.Equal(t, want == "", err != nil, "%s: %s", version, out)
		require.Equal(t, want, strings.TrimSpace(string(out)), version)
	}
}
