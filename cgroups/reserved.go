package cgroups

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/containerd/cgroups/v3/cgroup1"
	v1 "k8s.io/api/core/v1"
)

// EnforceReserved limits a cgroup that others made, for the daemons of the system or of Kubernetes,
// to what is reserved for them. The name is a path or, for systemd, a slice with or without its
// suffix. A missing cgroup is an error: the limit would have no effect.
//
// https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/
func (t *Tree) EnforceReserved(ctx context.Context, name string, r Resources) error {
	g, err := rootGroup(t.driver, name)
	if err != nil {
		return err
	}
	path := g.path(t.driver)
	kernel, lacks := t.kernel.existing(path, r)
	if lacks != "" {
		return fmt.Errorf("%s does not exist: create the cgroup %q; the agent does not create it",
			lacks, path)
	}
	if t.memory.On && r.Memory > 0 {
		r.Protection = &Protection{Min: r.Memory}
	}
	r.HugePages = everySize(r.HugePages, t.sizes)
	return t.write(ctx, kernel, g, r)
}

// ReservedResources returns the values for the cgroup of such daemons: for all reserved resources,
// or only for compressible ones, which is CPU time. Huge pages cannot be reserved: such a cgroup
// may have none.
func ReservedResources(reserved v1.ResourceList, compressible bool) Resources {
	var r Resources
	if cpu, ok := reserved[v1.ResourceCPU]; ok {
		r.Shares = Shares(cpu.MilliValue())
	}
	if compressible {
		return r
	}
	r.Memory = reserved.Memory().Value()
	pids := reserved[pidResource]
	r.Pids = pids.Value()
	return r
}

func (l *legacy) existing(path string, r Resources) (hierarchy, string) {
	writes := map[cgroup1.Name]bool{
		cgroup1.Cpu: r.Shares > 0, cgroup1.Memory: r.Memory != 0, cgroup1.Pids: r.Pids > 0,
	}
	out := &legacy{mount: l.mount}
	for _, s := range l.subsystems {
		dir := filepath.Join(l.mount, string(s.Name()), path)
		if exists(dir) {
			out.subsystems = append(out.subsystems, s)
		} else if writes[s.Name()] {
			return nil, dir
		}
	}
	return out, ""
}

func (u *unified) existing(path string, _ Resources) (hierarchy, string) {
	if dir := filepath.Join(u.mount, path); !exists(dir) {
		return nil, dir
	}
	return u, ""
}
