package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/topology"
)

// response returns the answer to Allocate for one container.
func (a Answer) response(
	resource string, ids []string,
) (*v1beta1.ContainerAllocateResponse, error) {
	resp := &v1beta1.ContainerAllocateResponse{
		Envs:        map[string]string{EnvName(resource): strings.Join(ids, ",")},
		Annotations: a.Annotations,
	}
	for _, path := range a.DevicePaths {
		host, rest, _ := strings.Cut(path, ":")
		container, permissions, _ := strings.Cut(rest, ":")
		if !strings.HasPrefix(host, "/") {
			return nil, fmt.Errorf("device path %q: write host, host:container or "+
				"host:container:rwm", path)
		}
		resp.Devices = append(resp.Devices, &v1beta1.DeviceSpec{
			HostPath: host, ContainerPath: cmp.Or(container, host),
			Permissions: cmp.Or(permissions, "rw"),
		})
	}
	for _, mount := range a.Mounts {
		parts := strings.Split(mount, ":")
		if len(parts) < 2 || len(parts) > 3 || len(parts) == 3 && parts[2] != "ro" {
			return nil, fmt.Errorf("mount %q: write host:container or host:container:ro", mount)
		}
		resp.Mounts = append(resp.Mounts, &v1beta1.Mount{
			HostPath: parts[0], ContainerPath: parts[1], ReadOnly: len(parts) == 3,
		})
	}
	if a.CDIKind != "" {
		for _, id := range ids {
			resp.CdiDevices = append(resp.CdiDevices,
				&v1beta1.CDIDevice{Name: a.CDIKind + "=" + id})
		}
	}
	return resp, nil
}

// prefer picks size ids of available, must included, on few nodes: first the nodes of must, then
// the node that just suffices, then the nodes with the most devices.
func prefer(available, must []Device, size int) []string {
	var chosen []string
	onMust := map[topology.NodeID]bool{}
	for _, d := range must {
		chosen = append(chosen, d.ID)
		onMust[firstNode(d)] = true
	}
	byNode := map[topology.NodeID][]string{}
	for _, d := range available {
		if !slices.Contains(chosen, d.ID) {
			byNode[firstNode(d)] = append(byNode[firstNode(d)], d.ID)
		}
	}
	for len(chosen) < size && len(byNode) > 0 {
		missing := size - len(chosen)
		rank := func(n topology.NodeID) []int {
			has, enough := len(byNode[n]), len(byNode[n]) >= missing
			if !enough {
				has = -has // if none suffices, the more the better
			}
			return []int{late(onMust[n]), late(enough), has, int(n)}
		}
		best := slices.MinFunc(slices.Collect(maps.Keys(byNode)), func(x, y topology.NodeID) int {
			return slices.Compare(rank(x), rank(y))
		})
		ids := byNode[best]
		chosen = append(chosen, ids[:min(missing, len(ids))]...)
		delete(byNode, best)
	}
	return chosen
}

func firstNode(d Device) topology.NodeID {
	if len(d.Nodes) == 0 {
		return topology.NoNode
	}
	return d.Nodes[0]
}

// late orders true before false.
func late(b bool) int {
	if b {
		return 0
	}
	return 1
}
