package controlplane

import (
	"fmt"
	"syscall"
)

// Server is one of the cluster's servers, to have accidents with. One at a time may.
type Server struct{ process *process }

// Server returns the server of that name: etcd, kube-apiserver, kube-controller-manager or
// kube-scheduler.
func (c *Cluster) Server(name string) (Server, error) {
	for _, p := range c.servers {
		if p.name() == name {
			return Server{p}, nil
		}
	}
	return Server{}, fmt.Errorf("the control plane has no server %q", name)
}

// Data is the folder with all that etcd has, to be copied and put back while etcd does not run.
func (c *Cluster) Data() string { return c.config.path(etcdData) }

// Kill kills it, and returns when it has exited.
func (s Server) Kill() { s.process.kill() }

// Start starts it again after Kill, and does not wait until it is ready.
func (s Server) Start() error { return s.process.start() }

// Freeze stops it from running, as on a machine that hangs: what connects to it gets no answer.
func (s Server) Freeze() error { return s.process.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (s Server) Thaw() error { return s.process.cmd.Process.Signal(syscall.SIGCONT) }
