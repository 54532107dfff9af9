package preflight

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/node/tunables"
	"github.com/numalet/numalet/cri"
)

// runtime asks the container runtime who it is and what runs in it.
func (l *looking) runtime(ctx context.Context) {
	k := &l.cfg.Kubelet
	endpoint := k.ContainerRuntimeEndpoint
	client, err := cri.Connect(ctx, cri.Config{
		RuntimeEndpoint: endpoint, ImageEndpoint: k.ImageServiceEndpoint, Timeout: patience,
	})
	if err != nil {
		l.add(Runtime, endpoint, Blocks, "%v", err)
		return
	}
	defer client.Close()
	status, err := client.Status(ctx)
	if err != nil {
		l.add(Runtime, endpoint, Blocks, "%v", err)
		return
	}
	l.add(Runtime, status.Name+" "+status.Version, Same, "CRI %s at %s", status.APIVersion, endpoint)
	for what, condition := range map[string]cri.Condition{
		"runtime": status.Ready, "network": status.Network,
	} {
		if !condition.OK {
			l.add(Runtime, what, Blocks, "it is not ready: %s: %s", condition.Reason, condition.Message).
				Advice = "the node is not Ready either way until it is"
		}
	}
	l.driver(ctx, client)
	if l.running, err = client.Pods(ctx); err != nil {
		l.add(Runtime, "pods", Blocks, "they cannot be listed: %v", err)
	}
	l.reached = err == nil
}

// driver compares the cgroup drivers of runtime and configuration.
func (l *looking) driver(ctx context.Context, client *cri.Client) {
	configured := l.cfg.Kubelet.CgroupDriver
	switch told, err := client.CgroupDriver(ctx); {
	case errors.Is(err, cri.ErrNoRuntimeConfig):
		l.add(Runtime, "cgroup driver", Same, "%s, by cgroupDriver: the runtime does not tell its own", configured)
	case err != nil:
		l.add(Runtime, "cgroup driver", Blocks, "%v", err)
	case told != configured:
		l.add(Runtime, "cgroup driver", Same, "%s, as the runtime says; cgroupDriver is %s and does not count",
			told, configured)
	default:
		l.add(Runtime, "cgroup driver", Same, "%s", told)
	}
}

// controllers are those of cgroup v2 that limits of pods need.
var controllers = []string{"cpu", "cpuset", "memory", "pids"}

// cgroups looks at what the host has for limits.
func (l *looking) cgroups(ctx context.Context) {
	k := &l.cfg.Kubelet
	if err := hostinfo.Check(ctx, k); err != nil {
		l.add(Cgroups, "host", Blocks, "%v", err)
	}
	if !*k.CgroupsPerQOS {
		l.add(Cgroups, "cgroupsPerQOS", Note, "false: pods have no cgroups of their own")
		return
	}
	raw, err := os.ReadFile(filepath.Join(l.Cgroups, "cgroup.controllers"))
	if err != nil {
		l.add(Cgroups, "version", Note, "1, since %s has no cgroup.controllers", l.Cgroups)
	} else {
		has := strings.Fields(string(raw))
		lacks := slices.DeleteFunc(slices.Clone(controllers),
			func(name string) bool { return slices.Contains(has, name) })
		if len(lacks) > 0 {
			l.add(Cgroups, "controllers", Blocks, "cgroup v2 has no %s", strings.Join(lacks, ", ")).Advice =
				"the kernel's command line may turn them off (cgroup_disable)"
		} else {
			l.add(Cgroups, "version", Same, "2, with %s", strings.Join(has, ", "))
		}
	}
	if k.ProtectKernelDefaults {
		if err := tunables.Check(sysctl.New()); err != nil {
			l.add(Cgroups, "protectKernelDefaults", Blocks, "%v", err)
		}
	}
}

// kernel returns the kernel's version.
func kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(name.Release[:])
}
