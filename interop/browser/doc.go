// Package browser tests the page of `ringcache serve` in a real headless Chromium: content, updates, keys, hostile
// names, a level that goes away, a phone, a daemon that goes and comes back. It also makes the pictures of
// docs/page.md.
//
//	make test-browser                                                     # a minute or two
//	make test-browser BROWSER_ARGS='-busy 31m -images ../../docs/images'  # the pictures, with half an hour of load
package browser
