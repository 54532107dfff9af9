// Package resize knows the resources that pods were admitted with, whatever their specs ask for
// since.
//
// numalet does not resize pods yet. An admitted pod keeps its resources: agent/pods/pod holds them while
// the agent runs, and each sandbox carries them for the next run of the agent. For sandboxes of a
// kubelet, the kubelet's file of allocated pods has them; it is kept current for a kubelet that
// takes over the node.
package resize

import (
	"encoding/json"
	"fmt"
	"path/filepath"
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

// Annotation is on every sandbox, with the resources that its pod was admitted with.
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

// Admitted holds the admitted resources of pods that run when the agent starts.
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

// Of returns what the pod of the runtime was admitted with, by its newest sandbox, or else by a
// kubelet's file; nil: unknown.
func (a Admitted) Of(observed cri.Pod) *podspec.Resources {
	if r := Recorded(observed); r != nil {
		return r
	}
	if r, known := a.kubelet[observed.UID]; known && len(observed.Sandboxes) > 0 {
		return &r
	}
	return nil
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

// Policies says whether the node's CPUs and memory are exclusive to containers that ask for them.
type Policies struct{ StaticCPUs, StaticMemory bool }

// Infeasible says, if possible in the kubelet's words, why an admitted pod does not get the
// resources that it asks for since.
func (p Policies) Infeasible(admitted, wanted *v1.Pod) string {
	guaranteed := podspec.QOSClass(admitted) == v1.PodQOSGuaranteed
	switch {
	case guaranteed && p.StaticCPUs && changes(admitted, wanted, v1.ResourceCPU):
		return `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
	case guaranteed && p.StaticMemory && changes(admitted, wanted, v1.ResourceMemory):
		return `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`
	default:
		return "this version of numalet does not resize pods that run: delete the pod and create it " +
			"again with these resources"
	}
}

// Event returns the message of the event that a pod is not resized, in the kubelet's form: JSON of
// what the pod asks for, and why it does not get it.
func Event(wanted *v1.Pod, why string) string {
	type container struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	said := struct {
		InitContainers []container              `json:"initContainers,omitempty"`
		Containers     []container              `json:"containers,omitempty"`
		Pod            *v1.ResourceRequirements `json:"resources,omitempty"`
		Generation     int64                    `json:"generation"`
		Error          string                   `json:"error"`
	}{Pod: wanted.Spec.Resources, Generation: wanted.Generation, Error: why}
	for c, kind := range podspec.Containers(wanted) {
		if kind == podspec.Regular {
			said.Containers = append(said.Containers, container{c.Name, c.Resources})
		} else {
			said.InitContainers = append(said.InitContainers, container{c.Name, c.Resources})
		}
	}
	raw, err := json.Marshal(said)
	if err != nil {
		return why
	}
	return "Pod resize Infeasible: " + string(raw)
}

// changes reports whether a container's request or limit of the resource differs.
func changes(a, b *v1.Pod, name v1.ResourceName) bool {
	was := podspec.ResourcesOf(a).Containers
	for container, now := range podspec.ResourcesOf(b).Containers {
		if !equality.Semantic.DeepEqual(was[container].Requests[name], now.Requests[name]) ||
			!equality.Semantic.DeepEqual(was[container].Limits[name], now.Limits[name]) {
			return true
		}
	}
	return false
}
