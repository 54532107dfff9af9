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
	"fmt"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

// KubeletFile is the name of the kubelet's file, in its root.
const KubeletFile = "allocated_pods_state"

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
}

// Open reads the file that a kubelet may have left in the root. It moves an unreadable file aside; the
// error says which pods this concerns.
func Open(root string) (Admitted, error) {
	path := filepath.Join(root, KubeletFile)
	kubelet, err := files.Load(path, maxKubeletFile, time.Now(), decode)
	if err != nil {
		err = fmt.Errorf("read %s: %w; pods that a kubelet started, and that were to be resized since, "+
			"count with what their specs say now", path, err)
	}
	return Admitted{kubelet}, err
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
		out[uid] = podspec.Resources{Pod: e.PodLevelResources, Containers: e.ContainerResources}
	}
	return out, nil
}

// Export returns the kubelet's file: active pods have what they were admitted with, and so have
// running pods that no source has delivered yet.
func (a Admitted) Export(active []*v1.Pod, running []cri.Pod) ([]byte, error) {
	d := data{Entries: map[types.UID]entry{}}
	put := func(uid types.UID, r podspec.Resources) {
		d.Entries[uid] = entry{ContainerResources: r.Containers, PodLevelResources: r.Pod}
	}
	for _, pod := range active {
		put(pod.UID, podspec.ResourcesOf(pod))
	}
	for _, pod := range running {
		if _, known := d.Entries[pod.UID]; known {
			continue
		}
		if r := a.Of(pod); r != nil {
			put(pod.UID, *r)
		}
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
