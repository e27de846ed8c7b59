// Package azure implements kamino.Provider on Azure scale sets and compute
// galleries, with the Azure SDK for Go.
//
// It begins operations and never waits for them: how far an operation has come
// is read from the resource itself (provisioning state, power state, completion
// percent, replication status), which works for any later process too. Pollers
// are kept in memory only, to learn in Azure's own words why a resource failed.
// Their resume tokens are never written anywhere: a token holds a URL that the
// SDK would follow with the credentials attached.
//
// Facts about Azure stand with their source; those that no documentation
// states are marked "unverified".
package azure
