// Package controlplane runs a Kubernetes control plane of our own beside whatever the machine has:
// etcd, the API server with Node and RBAC authorization, the controller manager and the scheduler,
// with their certificates and kubeconfigs. It lies in one directory, listens only on loopback, and
// ends when it is stopped. The playground and the tests that need a real cluster use it; an agent
// in production uses its own cluster.
//
// The API server reaches nodes on this machine over loopback too, whatever address they register:
// see tunnel.
package controlplane
