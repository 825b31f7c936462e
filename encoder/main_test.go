package encoder

import (
	"os"
	"testing"

	"github.com/ringcache/ringcache/internal/goldentest"
)

func TestMain(m *testing.M) { os.Exit(goldentest.ReadOnlyTable(m).Run()) }
