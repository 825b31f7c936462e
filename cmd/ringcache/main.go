// Command ringcache is the operator's tool. See `ringcache --help`.
package main

import "github.com/alecthomas/kong"

type commands struct {
	Agent agentCommand `cmd:"" help:"Drive a store by JSON lines on stdin and stdout, from any language."`
	Sweep sweepCommand `cmd:"" help:"List segments whose writer was killed, and remove them if told to."`
}

func main() {
	ctx := kong.Parse(&commands{},
		kong.Name("ringcache"),
		kong.Description("Shared memory for multimodal inputs, wire-compatible with vLLM."),
		kong.UsageOnError(),
	)
	ctx.FatalIfErrorf(ctx.Run())
}
