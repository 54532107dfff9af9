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
	pod := podtest.New("p", podtest.In("n"), podtest.Containers("c"))
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
	mounts := []*runtimeapi.Mount{
		{HostPath: "/h", UidMappings: mapping, GidMappings: mapping},
		{Image: &runtimeapi.ImageSpec{Image: "i"}, UidMappings: mapping, GidMappings: mapping},
	}
	if diff := cmp.Diff(mounts, container.Mounts, protocmp.Transform()); diff != "" {
		t.Error("-want +got:\n", diff)
	}
}
