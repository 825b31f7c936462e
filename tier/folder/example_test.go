package folder_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/folder"
)

// Two hosts have one folder open: what one of them has put the other one reads, and every read is verified.
func Example() {
	mount, err := os.MkdirTemp("", "") // in truth a folder on a mount that both have
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(mount)
	var hosts []*folder.Level
	for range 2 {
		l, err := folder.Open(context.Background(), mount, folder.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer l.Close()
		hosts = append(hosts, l)
	}
	ctx, key := context.Background(), tier.Key{Space: "model", Name: "photo-1"}
	hosts[0].Put(ctx, []tier.Put{{Object: tier.Object{Key: key, Size: 6}, Bytes: []byte("output")}})
	gets := []tier.Get{{Key: key}}
	hosts[1].Get(ctx, gets)
	fmt.Printf("%s %v\n", gets[0].Bytes, gets[0].Err)
	// Output: output <nil>
}
