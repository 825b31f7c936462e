package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ringcache/ringcache/encoder/warm"
	"github.com/ringcache/ringcache/internal/terminal"
)

// warmKey is the variable with the key of the endpoint: the one that vllm serve reads, too.
const warmKey = "VLLM_API_KEY"

type warmCommand struct {
	Paths       []string      `arg:"" optional:"" help:"Images, and folders with images at any depth."`
	List        []string      `sep:"none" help:"File with a path on each line, - for stdin. Can be given several times."`
	URL         string        `name:"url" default:"http://127.0.0.1:8000" help:"The engine's OpenAI endpoint."`
	Model       string        `help:"Name of the model as the engine serves it. The first of its list if empty."`
	Prompt      string        `default:"." help:"Text beside each image."`
	Concurrency int           `default:"4" help:"Requests at a time."`
	State       string        `type:"path" help:"File that notes which images are done, so that the next run goes on there."`
	MaxSize     int64         `default:"67108864" help:"Most bytes of an image."`
	Timeout     time.Duration `default:"10m" help:"Most time for a request."`
	Patience    time.Duration `default:"5m" help:"How long to wait for an engine that is away or too busy; for a daemon at most 10 seconds."`
	Socket      string        `type:"path" placeholder:"PATH" help:"Socket of the daemon, whose tiers are shown at the end; else that of RINGCACHE_SOCKET, or of the daemon's configuration."`
	Config      string        `type:"path" placeholder:"FILE" help:"Configuration of the daemon, for its socket; else that of RINGCACHE_CONFIG."`
}

// Help is the end of ringcache warm --help.
func (warmCommand) Help() string {
	return `Each image goes to the engine as a chat request for one token. The engine computes the output of its encoder,
and its connector stores that in the daemon, where all engines with the same model find it. Images are PNG,
JPEG, WebP, GIF, BMP and TIFF, known by their first bytes; other files in folders are skipped. An image that
is there twice is sent once. The engine knows an image by the bytes of its file: send the very files that
clients send.

If the engine needs a key, put the key into the environment variable ` + warmKey + `.

With --state, a run that was interrupted goes on where it was. The file is for one content of the cache: remove it to send everything again, after the
daemon has been cleared, or with other options for the images in the engine. An engine that still has an image in its own caches does not store it
anew, so start the engine anew, too.

At the end it waits until the daemon's lower tiers have what is stored: through one that hosts share, such as a Redis, all hosts are filled by filling
one. It goes on without that when the number of objects that wait has not fallen for 10 seconds, and says how many they are. Then it says how many outputs
the engine has loaded from the daemon, and how many it had to encode, by the engine's own metrics.

The exit status is 0 if the engine has answered all images, 1 if not or if there are none, and 80 if the command line is wrong.`
}

// Run sends the images.
func (c warmCommand) Run() error {
	ctx, stop := interruptible()
	defer stop()
	return c.run(ctx, os.Stdin, os.Stdout, os.Stderr)
}

func (c warmCommand) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(c.Paths)+len(c.List) == 0 {
		return errors.New("nothing to send: name images or folders, or give a list by --list")
	}
	o := warm.Options{
		URL: c.URL, Model: c.Model, Key: os.Getenv(warmKey), Prompt: c.Prompt, Concurrency: c.Concurrency,
		State: c.State, MaxSize: c.MaxSize, Timeout: c.Timeout, Patience: c.Patience,
	}
	if err := o.Validate(); err != nil {
		return err
	}
	var err error
	if c.Socket, err = c.socket(); err != nil {
		return err
	}
	found, err := c.find(ctx, stdin)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d images found, %d other files skipped\n", len(found.Images), found.Skipped)
	if len(found.Images) == 0 {
		showFailures(stderr, found.Failures)
		return errors.New("no images, so nothing is sent: images are PNG, JPEG, WebP, GIF, BMP and TIFF, known by their first bytes")
	}
	before, err := c.first(ctx)
	if err != nil {
		return err
	}

	view := newWarmView(stderr, len(found.Images))
	o.Report = view.report
	result, err := warm.Run(ctx, found.Images, o)
	view.end()
	if result.Model != "" {
		fmt.Fprintf(stdout, "%d images sent to %s, %d known before, %d failed\n",
			result.Sent, printable(result.Model), result.Known, len(found.Failures)+len(result.Failures))
	}
	failures := append(found.Failures, result.Failures...)
	showFailures(stderr, failures)
	switch left := len(found.Images) - result.Sent - result.Known - len(result.Failures); {
	case ctx.Err() != nil:
		err = fmt.Errorf("interrupted, %d images are left%s", left, c.resume())
	case err != nil:
		err = fmt.Errorf("%d images are left%s: %w", left, c.resume(), err)
	case len(failures) > 0:
		err = fmt.Errorf("%d images failed", len(failures))
	}
	err = errors.Join(err, c.show(ctx, stdout, before, result))
	if result.Sent > 0 && ctx.Err() == nil {
		fmt.Fprintln(stdout, outcome(result))
	}
	return err
}

// outcome describes what the engine did with the images that were sent.
func outcome(r warm.Result) string {
	switch own := r.Sent - r.Loaded - r.Encoded; {
	case !r.Counted:
		return "loaded or encoded is unknown: the engine's metrics have no counts of the connector"
	case own > 0:
		return fmt.Sprintf("%d loaded, %d encoded, %d in the engine's own caches", r.Loaded, r.Encoded, own)
	case own < 0:
		return fmt.Sprintf("%d loaded, %d encoded, more than were sent: others asked the engine, too, or a request was sent twice", r.Loaded, r.Encoded)
	default:
		return fmt.Sprintf("%d loaded, %d encoded", r.Loaded, r.Encoded)
	}
}

func showFailures(to io.Writer, failures []warm.Failure) {
	for _, f := range failures {
		fmt.Fprintf(to, "failed: %s: %v\n", printable(f.Path), terminal.Error(f.Err))
	}
}

func (c warmCommand) resume() string {
	if c.State == "" {
		return " (with --state the next run would go on there)"
	}
	return " (the same command goes on there)"
}

func (c warmCommand) find(ctx context.Context, stdin io.Reader) (warm.Found, error) {
	var lists []io.Reader
	for _, name := range c.List {
		if name == "-" {
			lists = append(lists, stdin)
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return warm.Found{}, err
		}
		defer f.Close()
		lists = append(lists, f)
	}
	return warm.Find(ctx, c.Paths, lists...)
}
