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
	})
}
