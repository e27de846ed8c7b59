package emulator

// eventQueue is the scheduled events of one instance.
type eventQueue struct {
	incarnation int
	events      []object
}
