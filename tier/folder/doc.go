// Package folder keeps the objects of package tier in a folder that several hosts share.
package folder
