// Package controlplane runs a Kubernetes control plane of our own beside whatever the machine has:
// etcd, the API server with Node and RBAC authorization, the controller manager and the scheduler,
// their certificates and kubeconfigs. All of it lies in one folder, listens on loopback only, and
// is gone when it has stopped. The playground and the tests that need a real cluster use it; an
// agent in production finds its cluster running.
//
// The API server reaches nodes on this machine over loopback too, whatever address they register:
// see tunnel.
package controlplane
