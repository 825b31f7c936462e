package coordinator_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/ringcache/ringcache/kv/directory"
	"github.com/ringcache/ringcache/lmcache/coordinator"
)

// A server of LMCache's multiprocess mode registers, and reports nothing yet.
func Example() {
	s, err := coordinator.New(coordinator.Options{Directory: directory.New(directory.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	answer, err := http.Post(web.URL+"/instances", "application/json",
		strings.NewReader(`{"instance_id": "pod-1", "ip": "10.0.0.7", "http_port": 8080}`))
	if err != nil {
		log.Fatal(err)
	}
	answer.Body.Close()
	fmt.Println(answer.Status, s.Counts().Instances)

	found, chunks, err := s.Longest("org/model", 1, "", make([]int64, 600), 1)
	fmt.Println(len(found), "have some of", chunks, "chunks", err)
	// Output:
	// 200 OK 1
	// 0 have some of 2 chunks <nil>
}
