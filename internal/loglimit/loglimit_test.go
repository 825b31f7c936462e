package loglimit

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var l Limit
		for range 1000 {
			l.Warn(log, "odd", "peer", 7)
		}
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
		require.NotContains(t, out.String(), "skipped")
		time.Sleep(Interval - 1)
		l.Warn(log, "odd", "peer", 7)
		time.Sleep(time.Nanosecond)
		l.Warn(log, "odd", "peer", 8)
		require.Equal(t, 2, strings.Count(out.String(), "\n"))
		require.Contains(t, out.String(), "peer=8 skipped=1000")
		l.Info(log, "fine")
		time.Sleep(Interval)
		l.Info(log, "fine")
		require.Contains(t, out.String(), "level=INFO msg=fine skipped=1")
	})
}

func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		l := Limit{Burst: 3}
		for i := range 4 {
			for range 100 {
				l.Info(log, "event")
			}
			require.Equal(t, 3*(i+1), strings.Count(out.String(), "\n"))
			require.Equal(t, i, strings.Count(out.String(), "skipped=97"))
			time.Sleep(Interval)
		}
	})
}
