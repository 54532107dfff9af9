package actuator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology/podspec"
)

// devices decodes the plugins' answers for the container and calls PreStartContainer where a
// plugin wants that. Devices that drivers of resource claims prepared come first, as with the kubelet.
func (s start) devices(ctx context.Context) (
	[]*pluginapi.ContainerAllocateResponse, error) {
	held := s.held.Containers[s.c.Name]
	known := func(resource string) bool { return s.cfg.Plugins.Inventory().Knows(resource) }
	if err := unallocated(s.pod, s.c, held.Devices(), known); err != nil {
		return nil, err
	}
	whom := holder.Holder{Namespace: s.pod.Namespace, Pod: s.pod.Name, UID: string(s.pod.UID),
		Container: s.c.Name}
	var out []*pluginapi.ContainerAllocateResponse
	for _, d := range held.Devices() {
		if d.Answer == nil {
			return nil, fmt.Errorf("container %s holds %s, but its device plugin has not said "+
				"with what to create the container; it is asked as soon as it is back",
				s.c.Name, d.Resource)
		}
		answer := &pluginapi.ContainerAllocateResponse{}
		if err := proto.Unmarshal(d.Answer, answer); err != nil {
			return nil, fmt.Errorf("decode the recorded answer of %s: %w", d.Resource, err)
		}
		out = append(out, answer)
		if s.cfg.Plugins.Inventory().Resources[d.Resource].Options.PreStart {
			if err := s.cfg.Plugins.PreStart(whom.Context(ctx), d.Resource, d.IDs); err != nil {
				return nil, err
			}
		}
	}
	tellConflicts(klog.LoggerWithValues(klog.FromContext(ctx), "pod", klog.KObj(s.pod),
		"containerName", s.c.Name), held.Devices(), out)
	claimed, err := s.claimed(ctx)
	return append(claimed, out...), err
}

// claimed returns what drivers prepared for the container, in the form of a plugin's answer.
func (s start) claimed(ctx context.Context) ([]*pluginapi.ContainerAllocateResponse, error) {
	if s.cfg.Claims == nil || !claim.Any(s.pod) {
		return nil, nil
	}
	ids, err := s.cfg.Claims.CDI(ctx, s.pod, s.c.Name)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	answer := &pluginapi.ContainerAllocateResponse{}
	for _, id := range ids {
		answer.CdiDevices = append(answer.CdiDevices, &pluginapi.CDIDevice{Name: id})
	}
	return []*pluginapi.ContainerAllocateResponse{answer}, nil
}

// maxConflicts bounds the logged conflicts of a container.
const maxConflicts = 16

// tellConflicts logs where the plugins' answers, given in the order of the devices, contradict each
// other.
func tellConflicts(log klog.Logger, devices []allocation.DeviceSet,
	answers []*pluginapi.ContainerAllocateResponse) {
	conflicts := cri.Conflicts(answers)
	for _, c := range conflicts[:min(len(conflicts), maxConflicts)] {
		log.Error(nil, c.Message, "name", oneline.Of(c.Name),
			"expected", oneline.Of(c.Kept), "resource", devices[c.First].Resource,
			"got", oneline.Of(c.Dropped), "droppedResource", devices[c.Other].Resource)
	}
	if more := len(conflicts) - maxConflicts; more > 0 {
		log.Error(nil, "Device plugins have more conflicting settings", "more", more)
	}
}

// unallocated returns an error that names a resource of device plugins which the container asks for and
// does not hold. known reports whether a plugin has ever had a resource.
func unallocated(pod *v1.Pod, c *v1.Container, held []allocation.DeviceSet,
	known func(resource string) bool) error {
	for _, want := range podspec.DeviceRequests(pod, c) {
		if known(want.Resource) && !slices.ContainsFunc(held, func(d allocation.DeviceSet) bool {
			return d.Resource == want.Resource
		}) {
			return fmt.Errorf("no devices found allocated in local cache for pod %s, "+
				"container %s, resource %s; delete the pod and create it again",
				pod.UID, c.Name, want.Resource)
		}
	}
	return nil
}

// flaws names the parts of the plugins' answers that may be why the runtime refused a container:
// what runtimes refuse, and what the runtime's error mentions. It is empty if there are none.
func (s start) flaws(refusal error) (text string) {
	for _, d := range s.held.Containers[s.c.Name].Devices() {
		answer := &pluginapi.ContainerAllocateResponse{}
		if err := proto.Unmarshal(d.Answer, answer); err != nil {
			continue // it was decoded before
		}
		if flaws := devicemanager.AnswerFlaws(answer); len(flaws) > 0 {
			text += oneline.Of(fmt.Sprintf("; the device plugin of %s on %s answered Allocate with "+
				"what runtimes refuse: %s", d.Resource, s.cfg.Plugins.Endpoint(d.Resource),
				strings.Join(flaws, "; ")))
		}
		if named := devicemanager.NamedIn(refusal.Error(), answer); len(named) > 0 {
			text += oneline.Of(fmt.Sprintf("; %s is what the device plugin of %s on %s answered for "+
				"%s", devicemanager.Few(named), d.Resource, s.cfg.Plugins.Endpoint(d.Resource),
				devicemanager.Few(d.IDs)))
		}
	}
	return text
}
