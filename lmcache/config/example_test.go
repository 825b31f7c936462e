package config_test

import (
	"fmt"
	"log"

	"github.com/ringcache/ringcache/lmcache/config"
)

// What a configuration of LMCache means for ringcache serve.
func Example() {
	c, err := config.Sources{
		Name: "lmcache.yaml", File: []byte("chunk_size: 256\nmax_local_cpu_size: 5\nenable_xpyd: true\n"),
	}.Load()
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range c.Problems {
		fmt.Println("passed over:", p.Name)
	}
	for _, s := range c.Translate(config.Engine{Workers: 2}).Settings {
		fmt.Println(s.Key, s.Value)
	}
	// Output:
	// passed over: enable_xpyd
	// lmcache-chunk-size 256
	// size 10GiB
	// lmcache grpc+unix:///run/ringcache/kv.sock
}
