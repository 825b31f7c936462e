// Tests of the library against other people's implementations, in a module of
// their own, so that these are no dependency of the library.
module github.com/ringcache/ringcache/scripts/oracle

go 1.26.0

require (
	github.com/kisielk/og-rek v1.3.0
	github.com/ringcache/ringcache v0.0.0
	github.com/stretchr/testify v1.12.1
	pgregory.net/rapid v1.3.0
)

require (
	github.com/aristanetworks/gomap v0.0.0-20230726210543-f4e41046dced // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/tinylib/msgp v1.6.5 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp v0.0.0-20230725093048-515e97ebf090 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/ringcache/ringcache => ../..
