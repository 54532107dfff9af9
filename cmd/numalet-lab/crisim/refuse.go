package crisim

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
)

// Checks that containerd makes before it creates anything, and checks that the kernel would make.

// identity is the user and group of a process, from the configuration of a sandbox or container.
type identity interface {
	GetRunAsUser() *runtimeapi.Int64Value
	GetRunAsGroup() *runtimeapi.Int64Value
}

// checkIdentity refuses a group without a user id or name.
func checkIdentity(who identity, userName string) error {
	if who.GetRunAsGroup() != nil && who.GetRunAsUser() == nil && userName == "" {
		return status.Errorf(codes.Unknown, "failed to generate user string: user group %d is "+
			"specified without user; set runAsUser beside runAsGroup", who.GetRunAsGroup().GetValue())
	}
	return nil
}

// checkContainer refuses a configuration that no container can be created from.
func checkContainer(cfg *runtimeapi.ContainerConfig) error {
	if cfg.GetMetadata().GetName() == "" {
		return status.Error(codes.InvalidArgument, "container metadata needs a name")
	}
	who := cfg.GetLinux().GetSecurityContext()
	if err := checkIdentity(who, who.GetRunAsUsername()); err != nil {
		return err
	}
	return checkResources(cfg.GetLinux().GetResources())
}

// checkResources refuses invalid CPU sets and memory nodes.
func checkResources(r *runtimeapi.LinuxContainerResources) error {
	for _, list := range []string{r.GetCpusetCpus(), r.GetCpusetMems()} {
		if _, err := cpuset.Parse(list); err != nil {
			return status.Errorf(codes.InvalidArgument, "cpuset %q: %v", list, err)
		}
	}
	return nil
}
