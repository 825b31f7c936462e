module github.com/ringcache/ringcache/examples/ringtest

go 1.26.0

require (
	github.com/ringcache/ringcache v0.0.0
	pgregory.net/rapid v1.3.0
)

replace github.com/ringcache/ringcache => ../..
