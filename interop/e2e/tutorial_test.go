//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tutorial is a page of docs/tutorials whose console blocks are typed into one shell.
type tutorial struct {
	path  string
	lines []string
	// steps are the commands, of one or more lines, in their order: where they begin in lines, and where their output does and ends.
	steps []step
}

type step struct {
	command      string
	output, next int
}

func readTutorial(t *testing.T, name string) *tutorial {
	t.Helper()
	p := &tutorial{path: filepath.Join("..", "..", "docs", "tutorials", name)}
	text, err := os.ReadFile(p.path)
	require.NoError(t, err)
	p.lines = strings.Split(string(text), "\n")
	console := false
	for i := 0; i < len(p.lines); i++ {
		command, ok := strings.CutPrefix(p.lines[i], "$ ")
		switch {
		case strings.HasPrefix(p.lines[i], "```"):
			console = p.lines[i] == "```console"
			continue
		case !console || !ok:
			continue
		}
		for i+1 < len(p.lines) && strings.HasPrefix(p.lines[i+1], ">") {
			i++
			command += "\n" + strings.TrimPrefix(strings.TrimPrefix(p.lines[i], ">"), " ")
		}
		s := step{command: command, output: i + 1}
		for i+1 < len(p.lines) && !strings.HasPrefix(p.lines[i+1], "$ ") && !strings.HasPrefix(p.lines[i+1], "```") {
			i++
		}
		s.next = i + 1
		p.steps = append(p.steps, s)
	}
	require.NotEmpty(t, p.steps)
	return p
}

const between = "\x1e" // in front of the output of each command

// run types the commands into a shell in the root of the repository, with the values of here in place of its keys, which the
// page has, and compares what they print with what the page has below them, if that is something; names in it are those of shown.
// RINGCACHE_TEST_UPDATE_PAGE=1 writes what is printed into the page.
func (p *tutorial) run(t *testing.T, here, shown map[string]string) (printed []string) {
	t.Helper()
	var change []string
	for page, ours := range here {
		change = append(change, page, ours)
	}
	var script strings.Builder
	for _, s := range p.steps {
		script.WriteString("printf '" + between + "'\n" + strings.NewReplacer(change...).Replace(s.command) + "\n")
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	cmd.Dir = filepath.Join("..", "..")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("all of %s took %s", filepath.Base(p.path), time.Since(begin).Round(time.Second))
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a failure has left
	t.Logf("%s", out)
	require.NoError(t, err)
	text := string(out)
	for page, ours := range shown {
		text = strings.ReplaceAll(text, ours, page)
	}
	printed = strings.Split(text, between)[1:]
	require.Len(t, printed, len(p.steps))
	update := os.Getenv("RINGCACHE_TEST_UPDATE_PAGE") != ""
	var page []string
	from := 0
	for i, s := range p.steps {
		var got []string
		for line := range strings.Lines(printed[i]) {
			got = append(got, strings.TrimRight(line, " \n"))
		}
		want := p.lines[s.output:s.next]
		page = append(page, p.lines[from:s.output]...)
		switch {
		case len(want) > 0 && update:
			page = append(page, got...)
		case len(want) > 0:
			require.Equal(t, steady(want), steady(got), "%s", s.command)
		}
		from = s.next
	}
	if update {
		require.NoError(t, os.WriteFile(p.path, []byte(strings.Join(append(page, p.lines[from:]...), "\n")), 0o644))
	}
	return printed
}

var (
	times  = regexp.MustCompile(`\b\d+[hms](?:\d+m)?(?:\d+s)?\b`)
	pids   = regexp.MustCompile(`\b\d{3,}\b`)
	shares = regexp.MustCompile(`\d+\.\d %`) // of the last minutes: by how fast the machine is
	models = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	random = regexp.MustCompile(`[A-Z2-7]{26}/`)
	blanks = regexp.MustCompile(` {2,}`)
)

// steady returns lines without what is another each time or elsewhere: processes, times, the model's hash, and the widths of columns.
func steady(lines []string) string {
	text := random.ReplaceAllString(strings.Join(lines, "\n"), "SESSION/")
	text = models.ReplaceAllString(shares.ReplaceAllString(times.ReplaceAllString(text, "TIME"), "SHARE"), "MODEL")
	text = pids.ReplaceAllString(text, "N")
	return blanks.ReplaceAllString(text, " ")
}

// freePort is a port on loopback at which nobody listens now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// TestTutorialFirstHit: every line of docs/tutorials/first-hit.md. A second engine has what the first one computed, and the same answer.
func TestTutorialFirstHit(t *testing.T) {
	dir := t.TempDir()
	name := fmt.Sprintf("try-%d", os.Getpid())
	t.Cleanup(func() { // after a failure
		for _, end := range []string{"", ".ctl", ".leases"} {
			os.Remove("/dev/shm/" + name + end)
		}
	})
	printed := readTutorial(t, "first-hit.md").run(t, map[string]string{
		"/tmp/": dir + "/", "--name try ": "--name " + name + " ", "sweep try ": "sweep " + name + " ", "8000": freePort(t),
		"bin/ringcache ls": "bin/ringcache ls | grep -E '^SEGMENT|^" + name + " '",
	}, map[string]string{"try": name, "/tmp": dir})
	var answers []string
	for _, text := range printed {
		if strings.HasPrefix(text, `"content"`) {
			answers = append(answers, text)
		}
	}
	require.Len(t, answers, 2)
	require.Equal(t, answers[0], answers[1])
	require.NoFileExists(t, "/dev/shm/"+name)
}
