// Command ringcache is the operator's tool. See `ringcache --help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/ringcache/ringcache/internal/terminal"
)

type commands struct {
	Serve serveCommand `cmd:"" help:"Run the daemon: engines share one cache that outlives them."`
	Agent agentCommand `cmd:"" help:"Drive a store by JSON lines on stdin and stdout, from any language."`

	Ls      lsCommand      `cmd:"" help:"List the segments of this machine: owner, size, fill, age, readers."`
	Inspect inspectCommand `cmd:"" help:"Show a segment: geometry, objects, counters, and who keeps what."`
	Map     mapCommand     `cmd:"" help:"Draw the memory of a segment, in the terminal or as SVG."`
	Top     topCommand     `cmd:"" help:"Watch a daemon or a segment in the terminal."`
	Doctor  doctorCommand  `cmd:"" help:"Find what is wrong with this machine, and print commands that repair it."`
	Check   checkCommand   `cmd:"" help:"Check the bytes of a living segment, or of one that a writer left."`
	Sweep   sweepCommand   `cmd:"" help:"List segments whose writer was killed, and remove them if told to."`
	Tier    tierCommand    `cmd:"" help:"List, read, verify, copy and remove objects of a folder, segment or Redis."`

	Blend         blendCommand         `cmd:"" help:"Explain what of a prompt could be reused at other places."`
	KV            kvCommand            `cmd:"" name:"kv" help:"Ask a running daemon who has a prompt, and clear KV."`
	Directory     directoryCommand     `cmd:"" help:"Know which engines hold which KV, and tell routers."`
	Migrate       migrateCommand       `cmd:"" help:"Copy what LMCache has kept in a folder or a Redis into a level."`
	LMCacheConfig lmcacheConfigCommand `cmd:"" name:"lmcache-config" help:"Translate LMCache's configuration."`

	Warm warmCommand `cmd:"" help:"Fill the encoder cache of a running engine with images from folders and lists."`
	Fuzz fuzzCommand `cmd:"" help:"Compare rings, stores and caches with models, with a real vLLM, or with your own."`

	Completion completionCommand `cmd:"" help:"Print the completion of a shell."`
	Complete   completeCommand   `cmd:"" hidden:"" help:"Print what can stand at the cursor, for completions."`
	Man        manCommand        `cmd:"" help:"Print the man page."`

	Version kong.VersionFlag `help:"Print the version, and the releases of vLLM that it works with."`
}

func options() []kong.Option {
	info, _ := debug.ReadBuildInfo()
	return []kong.Option{
		kong.Name("ringcache"),
		kong.Description("Shared memory for multimodal inputs, wire-compatible with vLLM."),
		kong.ShortUsageOnError(),
		kong.Vars{"version": versionText(info)},
	}
}

func newCommands() *commands {
	c := &commands{}
	c.Serve.Settings, c.Doctor.Settings = settings(), settings()
	return c
}

// interruptible returns a context that ends at SIGINT or SIGTERM, so that a command can close what it has
// opened. stop ends the handling of signals: the next one ends the process.
func interruptible() (ctx context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

func main() {
	parser := kong.Must(newCommands(), options()...)
	ctx, err := parser.Parse(os.Args[1:])
	if err == nil {
		err = ctx.Run()
	}
	parser.FatalIfErrorf(terminal.Error(err)) // it may contain text of a peer or from a segment
}
