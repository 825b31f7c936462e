// The benchmarks' own module, so that what they compare with never reaches
// users of the library.
module github.com/ringcache/ringcache/bench

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	github.com/ringcache/ringcache v0.0.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/sys v0.49.0
	golang.org/x/tools v0.52.0
)

require (
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/tinylib/msgp v1.6.5 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/ringcache/ringcache => ../
