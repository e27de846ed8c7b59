// Package invariant states what must hold of a cluster and its cloud while
// Kamino works on them, whatever is killed, lies or interferes, as functions
// over a small picture of the world.
//
// Whoever runs Kamino in a world that he can see into feeds an [Auditor]: the
// [State] after every change ([Auditor.Changed]), every mutating [Call] before
// it takes effect ([Auditor.Before]) and once it did ([Auditor.After]), and the
// State once nothing goes wrong any more and the last process has ended well
// ([Auditor.Settled]). Violations carry the number of the invariant; [All]
// tells what each says.
//
// The package imports nothing of Kamino's: a referee that used the player's
// functions would share his mistakes. Names that Kamino writes are repeated
// here for that reason.
package invariant
