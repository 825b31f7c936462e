package doctor_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/daemon/doctor"
)

// What keeps a daemon with this configuration from its start.
func Example() {
	config, err := daemon.Sources{Flags: map[string]string{"shm-dir": "/nowhere", "http": "off"}}.Load()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range doctor.Run(context.Background(), doctor.Options{Config: config}) {
		if f.Level == slog.LevelError && f.About == "name" {
			fmt.Println(f.Text)
		}
	}
	// Output: shm-dir: the folder /nowhere can't be used: no such file or directory
}
