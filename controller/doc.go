// Package controller keeps the pools of NodePrototypes as these say. It is thin: for each object it
// asks the engine what auto-update would do, writes what it was told into the status, and lets
// auto-update do it when its time has come. The world stays the state: whatever is lost of a
// status, or of this process, the next pass finds again in the pool, its images and its lease, on
// which the command line goes on to work beside it.
package controller
