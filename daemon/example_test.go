package daemon_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/daemon"
)

// A flag wins over the environment, and everything that is wrong is reported at once.
func ExampleSources_Load() {
	c, err := daemon.Sources{
		Flags:   map[string]string{"size": "2GiB"},
		Environ: []string{"RINGCACHE_SIZE=1GiB", "RINGCACHE_NAME=cache"},
	}.Load()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Name, c.Size>>30, "GiB")

	_, err = daemon.Sources{Flags: map[string]string{"size": "much", "grace": "soon"}}.Load()
	var wrong *daemon.ConfigError
	fmt.Println(errors.As(err, &wrong), len(wrong.Problems))
	// Output:
	// cache 2 GiB
	// true 2
}
