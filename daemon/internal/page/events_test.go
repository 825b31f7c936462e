package page

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

func texts(e *Events) (out []string) {
	for _, x := range e.last(mostEvents) {
		out = append(out, x.Text)
	}
	return out
}

// TestLogIsHandedOn: the log stays as it was, and lines from info on are events with all their values.
func TestLogIsHandedOn(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelError} {
		var want, got bytes.Buffer
		o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}
		e := NewEvents()
		for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&want, o)), slog.New(e.Handler(slog.NewTextHandler(&got, o)))} {
			log.Debug("debug")
			log = log.With("a", "b c").WithGroup("g").With("d", 1)
			log.Info("info", "e", "f=g", slog.Group("h", "i", "j"), slog.Group("", "k", "l"))
			log.Error("error")
		}
		require.Equal(t, want.String(), got.String())
		require.Equal(t, []string{"error", "info"}, texts(e))
		require.Equal(t, `a="b c" g.d=1 g.e=f=g g.h.i=j g.k=l`, e.last(2)[1].Details)
		require.Equal(t, slog.LevelInfo, e.last(2)[1].Level)
	}
}

// TestEventsAreBounded: in number, and in bytes.
func TestEventsAreBounded(t *testing.T) {
	e := NewEvents()
	log := slog.New(e.Handler(slog.DiscardHandler))
	long := strings.Repeat("ü", 1<<20)
	for i := range 3 * mostEvents {
		log.Info(fmt.Sprint(i)+long, "a", long, "b", long, "c", long, "d", long, "e", long, "f", long)
	}
	all := e.last(1 << 20)
	require.Len(t, all, mostEvents)
	require.Len(t, e.last(3), 3)
	for i, x := range all {
		require.True(t, strings.HasPrefix(x.Text, fmt.Sprint(3*mostEvents-1-i)+"ü"), "the newest stay")
		require.LessOrEqual(t, len(x.Text)+len(x.Details), mostText+mostAttrs+10)
	}
	require.Equal(t, "ü…", cut("üü", 3), "a character is not cut")
}

// TestCountedEvents: what happens again within a minute is one event.
func TestCountedEvents(t *testing.T) {
	e := NewEvents()
	at := time.Unix(1_800_000_000, 0)
	text := func(what string) func(uint64) string {
		return func(n uint64) string { return fmt.Sprint(what, n) }
	}
	e.count(at, "a", 2, text("a"))
	e.count(at.Add(time.Second), "b", 1, text("b"))
	e.count(at.Add(2*time.Second), "a", 3, text("a"))
	require.Equal(t, []string{"a5", "b1"}, texts(e))
	e.count(at.Add(time.Minute), "a", 1, text("a"))
	require.Equal(t, []string{"a1", "a5", "b1"}, texts(e))
	require.Equal(t, slog.LevelWarn, e.last(1)[0].Level)
}

// TestWatch: storms of evictions begin and end once, refusals and damage are counted, and what is unknown is nothing.
func TestWatch(t *testing.T) {
	e := NewEvents()
	at := func(evicted, objects, corrupt int64, refused uint64) Now {
		return Now{
			At: time.Unix(1_800_000_000, 0), Refused: []Refused{{"objects", "full", refused}},
			Levels: []Level{
				{LevelState: tier.LevelState{Name: "memory", Usage: tier.Usage{Objects: objects, Evicted: evicted, Corrupt: corrupt}}},
				{LevelState: tier.LevelState{Name: "redis", Usage: tier.Usage{Objects: -1, Evicted: -1}}},
			},
		}
	}
	begin := at(0, 1000, 0, 0)
	storms := e.watch(begin, begin, at(249, 1000, 0, 0), nil)
	require.Empty(t, texts(e))
	storms = e.watch(begin, begin, at(250, 1000, 0, 0), storms)
	storms = e.watch(begin, begin, at(125, 1000, 0, 0), storms)
	require.Equal(t, []string{"an eviction storm: level memory has evicted 250 objects within a minute, and has 1000; if hit rates fall, it is too small for what is asked for, or a tenant needs a quota"}, texts(e))
	storms = e.watch(begin, begin, at(124, 1000, 0, 0), storms)
	require.Empty(t, e.watch(begin, begin, at(124, 1000, 0, 0), storms))
	require.Equal(t, "the eviction storm of level memory is over", texts(e)[0])
	require.Len(t, texts(e), 2)
	require.Empty(t, e.watch(begin, begin, at(stormLeast-1, 3, 0, 0), nil), "a few objects are no storm")
	e.watch(begin, begin, at(0, 1000, 2, 5), nil)
	e.watch(begin, at(0, 1000, 2, 5), at(0, 1000, 3, 6), nil)
	require.Equal(t, []string{"damaged objects of level memory went: 3 within a minute; ringcache tier verify reads all of them", "objects refused: full, 6 within a minute"}, texts(e)[:2])
	require.Empty(t, e.watch(Now{}, Now{}, at(1<<40, 1, 1, 0), nil), "the levels have just been opened")
}
