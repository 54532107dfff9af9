package cri

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// IDs are the host's user and group ids of a pod with a user namespace (KEP-127): Length of them
// from First on, which is the pod's 0. Of a pod whose ids are the host's they are nil.
type IDs struct{ First, Length uint32 }

// OwnUsers reports whether the pod is to have a user namespace.
func OwnUsers(pod *v1.Pod) bool { return !ptr.Deref(pod.Spec.HostUsers, true) }

// mapping is what the kernel is told of the ids, nil if they are the host's.
func (i *IDs) mapping() []*runtimeapi.IDMapping {
	if i == nil {
		return nil
	}
	return []*runtimeapi.IDMapping{{HostId: i.First, ContainerId: 0, Length: i.Length}}
}

func (i *IDs) options() *runtimeapi.UserNamespace {
	if i == nil {
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
	}
	return &runtimeapi.UserNamespace{
		Mode: runtimeapi.NamespaceMode_POD, Uids: i.mapping(), Gids: i.mapping(),
	}
}

// mapped has what is mounted, images as well, show its owners as the pod's ids.
func (i *IDs) mapped(mounts []*runtimeapi.Mount) []*runtimeapi.Mount {
	for _, m := range mounts {
		if i != nil {
			m.UidMappings, m.GidMappings = i.mapping(), i.mapping()
		}
	}
	return mounts
}
