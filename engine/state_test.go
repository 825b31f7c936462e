package engine_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
)

// documented returns the tables in the comment of state.go.
func documented(t *testing.T) map[string]engine.Table {
	t.Helper()
	b, err := os.ReadFile("state.go")
	require.NoError(t, err)
	tables := map[string]engine.Table{}
	name, events := "", []string(nil)
	split := func(row string) []string {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		return cells
	}
	for line := range strings.Lines(string(b)) {
		row, isRow := strings.CutPrefix(line, "//\t")
		switch {
		case isRow && events == nil:
			cells := split(row)
			require.Equal(t, "state", cells[0])
			events = cells[1:]
			tables[name] = engine.Table{}
		case isRow:
			cells := split(row)
			require.Len(t, cells, len(events)+1, row)
			tables[name][cells[0]] = map[string]string{}
			for i, e := range events {
				tables[name][cells[0]][e] = cells[i+1]
			}
		default:
			events = nil
			if words := strings.Fields(strings.TrimPrefix(line, "//")); len(words) > 0 {
				name = strings.Trim(words[0], ",")
			}
		}
	}
	return tables
}

// TestTables: the program has the transitions that are written down, and no others.
func TestTables(t *testing.T) {
	require.Equal(t, documented(t), engine.Tables())
}

// TestSessionStates: every event in every state, by the functions of the product.
func TestSessionStates(t *testing.T) {
	takes := map[string]error{
		"starting": engine.ErrNotRunning, "running": nil, "asleep": engine.ErrAsleep, "leaving": engine.ErrClosed,
		"gone": engine.ErrDead, "over": engine.ErrDead,
	}
	first := errors.New("first")
	for state, row := range documented(t)["Session"] {
		for event, next := range row {
			t.Run(state+"/"+event, func(t *testing.T) {
				r := newRig(t, setup{idle: state == "starting"})
				s := engine.Session(r.Client)
				if state == "starting" {
					var err error
					s, err = engine.NewSession(r.Client)
					require.NoError(t, err)
				}
				defer func() {
					s.Fire("end", io.ErrUnexpectedEOF)
					<-s.Over()
				}()
				release := s.Hold() // from being over
				release = sync.OnceFunc(release)
				defer release()
				switch state {
				case "asleep":
					require.NoError(t, r.Sleep(r.ctx, 1))
				case "leaving":
					s.Fire("leave", nil)
				case "over", "gone":
					s.Fire("end", first)
				}
				if state == "over" {
					release()
					<-s.Over()
				}
				at, why := s.State()
				require.Equal(t, state, at)
				require.ErrorIs(t, why, takes[state])

				s.Fire(event, io.ErrUnexpectedEOF)
				if next == "-" {
					next = state
				}
				at, why = s.State()
				require.Equal(t, next, at)
				require.ErrorIs(t, why, takes[next])
				select {
				case <-s.Gone():
					require.Contains(t, []string{"gone", "over"}, next)
				default:
					require.NotContains(t, []string{"gone", "over"}, next)
				}
				switch {
				case state == "gone" || state == "over":
					require.ErrorIs(t, s.Dead(), first, "the first cause counts")
				case next == "gone":
					require.ErrorIs(t, s.Dead(), io.ErrUnexpectedEOF)
				default:
					require.NoError(t, s.Dead())
				}
			})
		}
	}
}

// TestClientStates: what a client allows in every state.
func TestClientStates(t *testing.T) {
	for state := range documented(t)["Client"] {
		t.Run(state, func(t *testing.T) {
			r := newRig(t, setup{mode: "shm"})
			closed := make(chan error, 1)
			s, err := r.Generate(r.ctx, r.request(1_000_000, "a"))
			require.NoError(t, err)
			over, cancel := context.WithCancel(r.ctx)
			defer cancel()
			switch state {
			case "closing":
				go func() { closed <- r.Close(r.ctx) }()
				r.until(func() bool {
					_, err := r.Call(r.ctx, "is_sleeping")
					return errors.Is(err, fs.ErrClosed)
				})
				cancel()
				require.ErrorIs(t, r.Close(over), context.Canceled, "the first goes on")
			case "closed":
				s.Close()
				require.NoError(t, r.Close(r.ctx))
				require.NoError(t, r.Close(r.ctx))
			}
			_, callErr := r.Call(r.ctx, "is_sleeping")
			_, generateErr := r.Generate(r.ctx, r.request(1))
			killErr := r.Kill()
			if state == "open" {
				require.NoError(t, callErr)
				require.NoError(t, generateErr)
				require.ErrorIs(t, killErr, fs.ErrInvalid)
				require.ErrorContains(t, r.Start(r.ctx), "running already")
				return
			}
			for _, err := range []error{callErr, generateErr, killErr} {
				require.ErrorIs(t, err, fs.ErrClosed)
			}
			require.ErrorIs(t, r.Start(r.ctx), fs.ErrClosed)
			if state == "closing" {
				_, err := s.Next(r.ctx)
				require.NoError(t, err, "it goes on")
				s.Close()
				require.NoError(t, <-closed)
			}
		})
	}
}
