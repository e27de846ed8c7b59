// Package controller keeps the pools of NodePrototypes up to date. It is thin: for each object it
// asks the engine what auto-update would do, writes that into the status, and runs auto-update when
// it is due. It stores no state: if a status or this process is lost, the next pass finds
// everything in the pool, its images and its lease. The command line works with the same lease
// beside it.
package controller
