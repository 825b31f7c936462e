//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const space = "e2e" // of keys, where a test must know it

// TestEncoderCache: what one engine's vision tower has made, another engine's tower need not make: its tokens
// are those of an engine without a connector, and it executes no tower. The server is killed at the worst
// moments.
func TestEncoderCache(t *testing.T) {
	s := newCacheServer(t, "--disk", t.TempDir())
	s.start()
	setup := encoderSetup{role: "ec_both", extra: map[string]any{"space": space}}
	producer := newEncoder(t, setup, s)
	producer.does(1, 0, "image0")
	producer.does(0, 0, "image0") // the engine's own cache
	producer.again(0, 1, "image0")
	producer.does(2, 0, "two1")             // images 1 and 5
	producer.does(2, 0, numbered(0, 4)...)  // 2 and 3 are new
	producer.again(1, 5, numbered(0, 6)...) // 4 is new
	producer.does(0, 0, "text0")

	// Killed when the engine comes to save.
	producer.arm("save", s)
	a := producer.does(1, 0, "image6")
	require.False(t, a.Workers[0].Armed)
	s.gone()
	producer.again(2, 0, "image0", "image7") // no daemon is there
	s.start()
	producer.recovers("image0")
	producer.right(numbered(0, 8)...)
	producer.recovers(numbered(0, 8)...)
	producer.end()

	setup.role = "ec_consumer"
	consumer := newEncoder(t, setup, s)
	consumer.does(0, 1, "image0")
	consumer.does(0, 2, "two1")
	consumer.does(1, 4, "image0", "image2", "image3", "image4", "image6", "image20") // image20 was never encoded
	consumer.again(1, 0, "image20")                                                  // a consumer does not save

	// Pinned, and then the server is killed: the engine has the memory mapped.
	consumer.forget()
	consumer.arm("load", s)
	a = consumer.does(0, 2, "image2", "image3")
	require.False(t, a.Workers[0].Armed)
	s.gone()
	s.start()
	consumer.recovers("image0")
	consumer.again(0, 7, numbered(0, 7)...)

	// Only the disk has it: the requests wait.
	s.stop()
	s.loseMemory()
	s.start()
	consumer.recovers("image0")
	a = consumer.again(0, 6, numbered(1, 6)...)
	require.Positive(t, *a.Pending, "the scheduler was never asked to wait")
	t.Logf("the scheduler was asked to wait %d times", *a.Pending)

	// The tokens are those of the bytes in memory.
	first := consumer.again(0, 1, "image0").Answers[0].Identifiers[0]
	second := consumer.again(0, 1, "image1").Answers[0].Identifiers[0]
	s.overwrite(first, second)
	consumer.forget()
	a = consumer.ask("image0")
	require.Equal(t, consumer.ref.named(t, "swapped").Tokens, a.Answers[0].Tokens)
	require.NotEqual(t, consumer.ref.named(t, "image0").Tokens, a.Answers[0].Tokens)
	consumer.end()
	s.idle()
}

// TestEncoderModels: another model, engines in several processes as vLLM has them by default, and keys that
// the connector derives from the engine's configuration.
func TestEncoderModels(t *testing.T) {
	s := newCacheServer(t)
	s.start()
	all := append(numbered(0, 8), "two2", "two3", "coffee.png", "rocket.jpg")
	images := 8 + 2 + 2 // of two2: 2 and 10, of two3: 3 and 15
	producer := newEncoder(t, encoderSetup{kind: kind{model: "qwen2vl"}, role: "ec_both"}, s)
	producer.does(images, 0, all...)
	producer.again(0, images, all...)
	producer.end()
	other := newEncoder(t, encoderSetup{kind: kind{model: "llava"}, role: "ec_both",
		flags: []string{"--executor", "mp"}}, s)
	other.does(8, 0, numbered(0, 8)...) // the same pictures, and nothing that it could use
	other.again(0, 8, numbered(0, 8)...)
	other.end()
	consumer := newEncoder(t, encoderSetup{kind: kind{model: "qwen2vl"}, role: "ec_consumer",
		flags: []string{"--executor", "mp"}}, s)
	consumer.does(0, images, all...)
	consumer.does(0, 0, all...)
	consumer.again(0, images, all...)
	consumer.end()
	s.idle()
}

// TestEncoderRoles: an engine that only encodes, and makes no token, and one that loads what that has made.
func TestEncoderRoles(t *testing.T) {
	s := newCacheServer(t)
	s.start()
	producer := newEncoder(t, encoderSetup{role: "ec_producer"}, s)
	for i, name := range []string{"image0", "image1", "two2"} {
		a := producer.ask(name)
		require.Empty(t, a.Answers[0].Tokens)
		require.Equal(t, "stop", a.Answers[0].Finish)
		require.Equal(t, 1+i/2, a.Workers[0].Items)
	}
	producer.end()
	consumer := newEncoder(t, encoderSetup{role: "ec_consumer"}, s)
	consumer.does(0, 4, "image0", "image1", "two2")
	consumer.does(1, 0, "image3")
	consumer.end()
	s.idle()
}

// TestEncoderCounters: with both caches of vLLM off, identifiers are counters, and another engine's item has
// the same one. Such an engine does not start.
func TestEncoderCounters(t *testing.T) {
	s := newCacheServer(t)
	s.start()
	e := startEncoder(t, encoderSetup{role: "ec_both", flags: []string{"--cache-gb", "0"}}, s)
	require.Error(t, e.wait())
	for _, word := range []string{"--mm-processor-cache-gb", "--enable-prefix-caching"} {
		require.Contains(t, e.words(), word)
	}
}

// TestEncoderParallel: with two workers, one saves what both have, and both load it. Engines with one worker
// share it.
func TestEncoderParallel(t *testing.T) {
	s := newCacheServer(t)
	s.start()
	two := newEncoder(t, encoderSetup{role: "ec_both", tp: 2}, s)
	two.does(8, 0, numbered(0, 8)...)
	two.again(0, 8, numbered(0, 8)...)
	two.forget()
	two.arm("load", s)
	two.does(0, 1, "image0") // a second request may come a step later, when nothing is pinned any more
	s.gone()
	two.again(1, 0, "image0")
	s.start()
	two.recovers(numbered(0, 8)...)
	two.end()
	one := newEncoder(t, encoderSetup{role: "ec_both"}, s)
	one.does(0, 8, numbered(0, 8)...)
	one.does(4, 0, numbered(8, 4)...)
	one.end()
	two = newEncoder(t, encoderSetup{role: "ec_consumer", tp: 2}, s)
	two.does(0, 12, numbered(0, 12)...)
	two.end()
	s.idle()
}

// TestEncoderTwoEngines: two engines at once, in a memory that is smaller than what they use, and a server
// that is killed now and then.
func TestEncoderTwoEngines(t *testing.T) {
	s := newCacheServer(t, "--size", "256KiB") // an image takes 8 KiB
	s.start()
	setup := encoderSetup{role: "ec_both"}
	engines := []*encoderEngine{startEncoder(t, setup, s), startEncoder(t, setup, s)}
	for _, e := range engines {
		e.ready()
	}
	loaded, encoded := 0, 0
	for round := range 60 {
		names := numbered(round*5%97, 6)
		for _, e := range engines {
			if round%4 == 0 {
				e.forget()
			}
			e.send(map[string]any{"ask": names})
		}
		if round%10 == 5 {
			s.restart()
		}
		for _, e := range engines {
			w := e.check(e.answered(names...), names...).Workers[0]
			loaded, encoded = loaded+w.Loads, encoded+w.Items
		}
	}
	require.Positive(t, loaded)
	t.Logf("120 times 6 images of 97 in two engines: %d loaded, %d encoded, all tokens right", loaded, encoded)
	for _, e := range engines {
		e.end()
	}
	s.idle()
}
