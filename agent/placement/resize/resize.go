// Package resize knows the resources that pods were allocated in earlier runs of the agent, which resizes
// the node does, and the words for them.
//
// agent/pods/pod holds what a pod is allocated while the agent runs. For the next run, the store of
// assignments has what a pod was allocated since it was admitted, and each sandbox what it was made for.
// The kubelet's file of allocated pods has it too, and is kept current for a kubelet that takes over the
// node.
package resize

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/checksum"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology/podspec"
)

// Annotation is on every sandbox, with the resources that its pod had when it was made, and on every
// container that a resize may start anew, with its own.
const Annotation = "numalet.io/resources"

// longest bounds an annotation, in bytes: some hundred containers. After a restart, a pod with more
// of them counts with its present spec.
const longest = 32 << 10

// KubeletFile and ActuatedFile are the names of the kubelet's files, in its root: what pods are allocated, and
// what runs of them has of that.
const (
	KubeletFile  = "allocated_pods_state"
	ActuatedFile = "actuated_pods_state"
)

const maxKubeletFile = 64 << 20

// Describe returns the value of Annotation for a pod as it was admitted; empty if it would be too
// long.
func Describe(admitted *v1.Pod) string {
	raw, err := json.Marshal(podspec.ResourcesOf(admitted))
	if err != nil || len(raw) > longest {
		return ""
	}
	return string(raw)
}

// DescribeContainer returns the value of Annotation for a container; empty: it needs none, as no resize
// starts it anew.
func DescribeContainer(c *v1.Container) string {
	if !slices.ContainsFunc(c.ResizePolicy, func(p v1.ContainerResizePolicy) bool {
		return p.RestartPolicy == v1.RestartContainer
	}) {
		return ""
	}
	raw, err := json.Marshal(v1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits})
	if err != nil {
		return ""
	}
	return string(raw)
}

// Made returns the resources that a container was created with; nil: it does not say.
func Made(c cri.Container) *v1.ResourceRequirements {
	text := c.Annotations[Annotation]
	if text == "" {
		return nil
	}
	var r v1.ResourceRequirements
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil // it is not ours
	}
	return &r
}

// Restarts reports whether a container has to be started anew to have its resources, since these are
// others than it was made with and its policy says so.
func Restarts(c *v1.Container, made v1.ResourceRequirements) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p v1.ContainerResizePolicy) bool {
		return p.RestartPolicy == v1.RestartContainer && differ(made, c.Resources, p.ResourceName)
	})
}

func differ(a, b v1.ResourceRequirements, name v1.ResourceName) bool {
	return !equality.Semantic.DeepEqual(a.Requests[name], b.Requests[name]) ||
		!equality.Semantic.DeepEqual(a.Limits[name], b.Limits[name])
}

// Admitted holds what a kubelet, or an earlier run of the agent, allocated pods that run when the agent
// starts.
type Admitted struct {
	kubelet map[types.UID]podspec.Resources
	// actuated has what ran of the pods then.
	actuated map[types.UID]podspec.Resources
}

// Open reads the files that a kubelet or an earlier run of the agent may have left in the root. It moves
// unreadable files aside; the error says which pods this concerns.
func Open(root string) (a Admitted, err error) {
	var errs [2]error
	a.kubelet, errs[0] = load(filepath.Join(root, KubeletFile),
		"pods that a kubelet started, and that were to be resized since, count with what their specs say now")
	a.actuated, errs[1] = load(filepath.Join(root, ActuatedFile),
		"resizes that a kubelet had begun count as carried out")
	return a, errors.Join(errs[:]...)
}

func load(path, without string) (map[types.UID]podspec.Resources, error) {
	out, err := files.Load(path, maxKubeletFile, time.Now(), decode)
	if err != nil {
		err = fmt.Errorf("read %s: %w; %s", path, err, without)
	}
	return out, err
}

// file is the kubelet's format: JSON text, with a checksum of it.
type file struct {
	Data     string `json:"data"`
	Checksum uint64 `json:"checksum"`
}

// data is the text in a file.
type data struct {
	Entries map[types.UID]entry `json:"entries,omitempty"`
}

type entry struct {
	ContainerResources map[string]v1.ResourceRequirements
	PodLevelResources  *v1.ResourceRequirements
	// EmptyDirVolumeLimits are sizes of volumes in memory.
	EmptyDirVolumeLimits map[string]resource.Quantity `json:",omitempty"`
}

func decode(raw []byte) (map[types.UID]podspec.Resources, error) {
	var f file
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	if sum := checksum.Of(f.Data); sum != f.Checksum {
		return nil, fmt.Errorf("its checksum is %d and not %d", sum, f.Checksum)
	}
	var d data
	if err := json.Unmarshal([]byte(f.Data), &d); err != nil {
		return nil, err
	}
	out := make(map[types.UID]podspec.Resources, len(d.Entries))
	for uid, e := range d.Entries {
		out[uid] = podspec.Resources{Pod: e.PodLevelResources, Containers: e.ContainerResources,
			Volumes: e.EmptyDirVolumeLimits}
	}
	return out, nil
}

// Had returns what ran of a pod when the agent started, as a kubelet or an earlier run of the agent recorded it;
// nil: unknown.
func (a Admitted) Had(uid types.UID) *podspec.Resources {
	if r, known := a.actuated[uid]; known {
		return &r
	}
	return nil
}

// Allocated returns what pods are allocated: active pods what they have, and running pods that no source has
// delivered yet what they had.
func (a Admitted) Allocated(active []*v1.Pod, running []cri.Pod) map[types.UID]podspec.Resources {
	out := map[types.UID]podspec.Resources{}
	for _, pod := range active {
		out[pod.UID] = podspec.ResourcesOf(pod)
	}
	for _, pod := range running {
		if _, known := out[pod.UID]; known {
			continue
		}
		if r := a.Of(pod); r != nil {
			out[pod.UID] = *r
		}
	}
	return out
}

// Actuated returns what runs of pods that are allocated this. before is what was returned last; behind returns
// what containers of a pod, and the pod, have that do not have all of it yet, without containers if that is not
// known.
func (a Admitted) Actuated(allocated, before map[types.UID]podspec.Resources,
	behind func(types.UID, podspec.Resources) (has podspec.Resources, is bool)) map[types.UID]podspec.Resources {
	out := make(map[types.UID]podspec.Resources, len(allocated))
	for uid, r := range allocated {
		has, is := behind(uid, r)
		last, known := before[uid]
		if had := a.Had(uid); !known && had != nil {
			last, known = *had, true
		}
		switch {
		case !is:
		case has.Containers == nil && known:
			r = last
		default:
			r = r.Over(has)
		}
		out[uid] = r
	}
	return out
}

// Encode returns a kubelet's file.
func Encode(pods map[types.UID]podspec.Resources) ([]byte, error) {
	d := data{Entries: map[types.UID]entry{}}
	for uid, r := range pods {
		d.Entries[uid] = entry{ContainerResources: r.Containers, PodLevelResources: r.Pod,
			EmptyDirVolumeLimits: r.Volumes}
	}
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file{Data: string(text), Checksum: checksum.Of(string(text))})
}

// Of returns what the pod of the runtime was allocated, by the kubelet's file, or else by its newest
// sandbox, which may be older; nil: unknown.
func (a Admitted) Of(observed cri.Pod) *podspec.Resources {
	if r, known := a.kubelet[observed.UID]; known && len(observed.Sandboxes) > 0 {
		return &r
	}
	return Recorded(observed)
}

// Recorded returns the resources that the pod's newest sandbox was made for; nil: it carries none.
func Recorded(observed cri.Pod) *podspec.Resources {
	if len(observed.Sandboxes) == 0 || observed.Sandboxes[0].Annotations[Annotation] == "" {
		return nil
	}
	var r podspec.Resources
	err := json.Unmarshal([]byte(observed.Sandboxes[0].Annotations[Annotation]), &r)
	if err != nil {
		klog.Background().Error(err, "What a pod was admitted with cannot be read; its spec counts",
			"pod", klog.KRef(observed.Namespace, observed.Name), "podUID", observed.UID,
			"sandbox", observed.Sandboxes[0].ID, "annotation", Annotation)
		return nil
	}
	return &r
}
