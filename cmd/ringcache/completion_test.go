//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// TestComplete: what can stand at the cursor, by the command line's own model.
func TestComplete(t *testing.T) {
	dir := t.TempDir()
	killedPool(t, dir)
	parser, err := kong.New(newCommands(), options()...)
	require.NoError(t, err)
	for line, want := range map[string]string{
		"": "serve agent ls inspect map top doctor check sweep tier " +
			"blend kv directory migrate lmcache-config warm fuzz completion man",
		"in":                                    "inspect",
		"tier ":                                 "ls get verify copy rm",
		"tier v":                                "verify",
		"serve ":                                "status check plan",
		"serve --sock":                          "--socket",
		"serve status --w":                      "--watch",
		"serve status --sock":                   "--socket",
		"inspect --dir " + dir + " ":            "frontend",
		"inspect --dir=" + dir + " fr":          "frontend",
		"check --dir " + dir + " ":              "frontend",
		"inspect --dir " + dir + " frontend ":   "",
		"inspect --sort ":                       "size age address reads",
		"inspect --sort=a":                      "--sort=age --sort=address",
		"inspect --sort = a":                    "age address", // as bash cuts it
		"inspect --json --st":                   "--state",
		"completion ":                           "bash zsh fish",
		"completion bash ":                      "",
		"nothing ":                              "",
		"tier get /tm":                          "", // the shell offers files
		"inspect -- --s":                        "",
		"serve check --":                        "*--json",
		"doctor --pyt":                          "--python",
		"warm --url http://x --mod":             "--model",
		"inspect --dir " + dir + "/none --sort": "--sort",
	} {
		var got []string
		for _, c := range complete(parser.Model.Node, strings.Split(line, " ")) {
			got = append(got, c.word)
		}
		if part, ok := strings.CutPrefix(want, "*"); ok {
			require.Contains(t, got, part, line)
			continue
		}
		require.Equal(t, strings.Fields(want), append([]string{}, got...), line)
	}
}

// TestShells: each shell that is here takes its script, and gets the candidates.
func TestShells(t *testing.T) {
	bin := t.TempDir()
	// The test binary is the command if a variable says so.
	wrapper := fmt.Sprintf("#!/bin/sh\nRINGCACHE_TEST_COMMAND=1 exec %q \"$@\"\n", os.Args[0])
	require.NoError(t, os.WriteFile(filepath.Join(bin, "ringcache"), []byte(wrapper), 0o700))
	for shell, script := range map[string]string{
		"bash": `source <(ringcache completion bash)
COMP_WORDS=(ringcache inspect --sort ""); COMP_CWORD=3; _ringcache; echo "${COMPREPLY[@]}"`,
		"zsh": `autoload -Uz compinit; compinit -u -D; source <(ringcache completion zsh)
compadd() { print -r -- "${(P)@[-1]}" }
words=(ringcache inspect --sort ""); CURRENT=4; _ringcache`,
		"fish": `ringcache completion fish | source; complete -C "ringcache inspect --sort "`,
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip("it is not installed")
			}
			cmd := exec.Command(path, "-c", script)
			if shell == "zsh" {
				cmd = exec.Command(path, "-f", "-c", script)
			}
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
			var errOut bytes.Buffer
			cmd.Stderr = &errOut
			out, err := cmd.Output()
			require.NoError(t, err, errOut.String())
			got := strings.Fields(string(out))
			require.ElementsMatch(t, []string{"size", "age", "address", "reads"}, got, errOut.String())
		})
	}
}

// TestManPage: it has every command and every flag, and whoever reads roff accepts it.
func TestManPage(t *testing.T) {
	out, _, code := ringcache(t, "man")
	require.Zero(t, code)
	parser, err := kong.New(newCommands(), options()...)
	require.NoError(t, err)
	for _, n := range parser.Model.Leaves(true) {
		require.Contains(t, out, ".SH \""+roff(strings.ToUpper(n.Path()))+"\"")
		for _, f := range n.Flags {
			require.Contains(t, out, roff("--"+f.Name))
		}
	}
	require.Contains(t, out, roff("--disk-quotas"), "settings of the daemon")
	requirePrintable(t, "man", out)
	for _, l := range strings.Split(out, "\n") {
		if strings.HasPrefix(l, ".") {
			require.Regexp(t, `^\.(TH|SH|TP|PP|B|I|nf|fi)\b`, l)
		}
	}
	reader, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed")
	}
	cmd := exec.Command(reader, "-man", "-ww", "-Tutf8")
	cmd.Stdin = strings.NewReader(out)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	text, err := cmd.Output()
	require.NoError(t, err)
	require.Empty(t, errOut.String())
	require.Regexp(t, "(?m)^EXIT STATUS$", regexp.MustCompile(".\b").ReplaceAllString(string(text), ""))
}
