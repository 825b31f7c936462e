//go:build !linux || !cgo || !(amd64 || arm64) || nocuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
)

// load fails: nothing can be loaded by a program that was built like this one.
func load([]string) (library, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return nil, fmt.Errorf("cuda: not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return nil, errors.New("cuda: built without cgo, or with the tag nocuda: build with CGO_ENABLED=1, a C compiler, and without the tag")
}
