package cri

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// IDs holds the host's user and group ids of a pod with a user namespace (KEP-127): Length ids from
// First, which is the pod's id 0. It is nil for a pod with the host's ids.
type IDs struct{ First, Length uint32 }

// OwnUsers reports whether the pod asks for a user namespace.
func OwnUsers(pod *v1.Pod) bool { return !ptr.Deref(pod.Spec.HostUsers, true) }

// mapping returns the kernel's id mapping, nil if the pod has the host's ids.
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

// fromUserNamespace returns the ids of a sandbox; zero if it has no user namespace, or one that does
// not map one block from id 0 on, the same for users and groups.
func fromUserNamespace(u *runtimeapi.UserNamespace) IDs {
	if u.GetMode() != runtimeapi.NamespaceMode_POD || len(u.GetUids()) != 1 || len(u.GetGids()) != 1 {
		return IDs{}
	}
	users, groups := u.GetUids()[0], u.GetGids()[0]
	out := IDs{First: users.GetHostId(), Length: users.GetLength()}
	if users.GetContainerId() != 0 || groups.GetContainerId() != 0 ||
		out != (IDs{First: groups.GetHostId(), Length: groups.GetLength()}) {
		return IDs{}
	}
	return out
}

// mapped makes all mounts, images too, show their owners as the pod's ids.
func (i *IDs) mapped(mounts []*runtimeapi.Mount) []*runtimeapi.Mount {
	for _, m := range mounts {
		if i != nil {
			m.UidMappings, m.GidMappings = i.mapping(), i.mapping()
		}
	}
	return mounts
}
