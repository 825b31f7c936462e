// Package ring contains two small allocators that are not ringcache's, and the tests of them that package
// fuzz/ringtest of ringcache makes: see ring_test.go for how little that takes. [Queue] has bugs
// that can be switched on, so that the tests show what they find.
//
//	go test -v -run TestBugs .
package ring
