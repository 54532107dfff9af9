package cri

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/internal/podtest"
)

// The sandbox and its containers share the user namespace, and all mounts, images too, show their
// owners as the pod's ids.
func TestUserNamespace(t *testing.T) {
	ids := &IDs{First: 196608, Length: 65536}
	pod := podtest.New("n/p", podtest.Containers("c"))
	sandbox, err := SandboxConfig(pod, SandboxOptions{IDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	container, err := ContainerConfig(pod, &pod.Spec.Containers[0], ContainerOptions{
		Security: SecurityOptions{IDs: ids}, Mounts: []*runtimeapi.Mount{
			{HostPath: "/h"}, {Image: &runtimeapi.ImageSpec{Image: "i"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	mapping := []*runtimeapi.IDMapping{{HostId: 196608, Length: 65536}}
	want := &runtimeapi.UserNamespace{
		Mode: runtimeapi.NamespaceMode_POD, Uids: mapping, Gids: mapping,
	}
	for what, got := range map[string]*runtimeapi.NamespaceOption{
		"sandbox":   sandbox.Linux.SecurityContext.NamespaceOptions,
		"container": container.Linux.SecurityContext.NamespaceOptions,
	} {
		if diff := cmp.Diff(want, got.UsernsOptions, protocmp.Transform()); diff != "" {
			t.Error(what, "-want +got:\n", diff)
		}
	}
	status := &runtimeapi.PodSandboxStatus{Linux: &runtimeapi.LinuxPodSandboxStatus{
		Namespaces: &runtimeapi.Namespace{Options: sandbox.Linux.SecurityContext.NamespaceOptions},
	}}
	if got := fromSandboxStatus(status).IDs; got != *ids {
		t.Errorf("a sandbox that was made with %+v has %+v", *ids, got)
	}
	mounts := []*runtimeapi.Mount{
		{HostPath: "/h", UidMappings: mapping, GidMappings: mapping},
		{Image: &runtimeapi.ImageSpec{Image: "i"}, UidMappings: mapping, GidMappings: mapping},
	}
	if diff := cmp.Diff(mounts, container.Mounts, protocmp.Transform()); diff != "" {
		t.Error("-want +got:\n", diff)
	}
}

// A user namespace that we do not make has no ids to give back, nor has the host's.
func TestOtherUserNamespaces(t *testing.T) {
	one := func(host, container, length uint32) []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{HostId: host, ContainerId: container, Length: length}}
	}
	ours := one(131072, 0, 65536)
	for name, u := range map[string]*runtimeapi.UserNamespace{
		"nothing": nil,
		"host":    {Mode: runtimeapi.NamespaceMode_NODE, Uids: ours, Gids: ours},
		"target":  {Mode: runtimeapi.NamespaceMode_TARGET, Uids: ours, Gids: ours},
		"shifted": {Uids: one(131072, 1, 65536), Gids: one(131072, 1, 65536)},
		"differ":  {Uids: ours, Gids: one(196608, 0, 65536)},
		"several": {Uids: append(one(65536, 65536, 1), ours...), Gids: ours},
		"none":    {Uids: ours},
	} {
		if got := fromUserNamespace(u); got != (IDs{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
