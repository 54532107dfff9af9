package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/files"
)

const (
	// pvcsFile, in a pod's directory, has what the pod's PVCs are bound to. The next run of the
	// agent knows it from there without the API server.
	pvcsFile = "numalet_claims"
	// maxPVCs is the file's largest size in bytes.
	maxPVCs = 16 << 20
)

// BoundPVC is a PVC of a pod with the volume that it is bound to.
type BoundPVC struct {
	PVC      string               `json:"claim"` // in the pod's namespace
	ReadOnly bool                 `json:"readOnly,omitempty"`
	Volume   *v1.PersistentVolume `json:"volume"`
	// Label is the SELinux label that the pod wants the volume to have, and Labeled says that the
	// volume is mounted with it.
	Label   string `json:"seLinuxLabel,omitempty"`
	Labeled bool   `json:"labeled,omitempty"`
	// read is the PVC as it was read last; nil: not in this run of the agent.
	read *v1.PersistentVolumeClaim
}

// oncePod reports whether only one pod at a time may use the volume. A volume with other access modes
// too is not limited: which mode the pod means is unknown.
func (c BoundPVC) oncePod() bool {
	modes := c.Volume.Spec.AccessModes
	return len(modes) == 1 && modes[0] == v1.ReadWriteOncePod
}

// boundPVCs has what the PVCs of all pods are bound to, by pod and volume.
type boundPVCs struct {
	layout
	mu   sync.Mutex
	pods map[types.UID]map[string]BoundPVC
}

// newBoundPVCs reads what an earlier run of the agent left. A file that cannot be read counts as
// missing: its PVCs are looked up again.
func newBoundPVCs(l layout) (*boundPVCs, error) {
	c := &boundPVCs{layout: l, pods: map[types.UID]map[string]BoundPVC{}}
	uids, err := l.orphans(nil)
	if err != nil {
		return nil, err
	}
	for _, uid := range uids {
		of, err := readBoundPVCs(filepath.Join(l.root, podsDir, string(uid), pvcsFile))
		switch {
		case err == nil:
			c.pods[uid] = of
		case !errors.Is(err, fs.ErrNotExist):
			klog.Background().Info("What the claims of a pod came to could not be read",
				"podUID", uid, "err", err)
		}
	}
	return c, nil
}

func readBoundPVCs(path string) (map[string]BoundPVC, error) {
	text, err := files.Read(path, maxPVCs)
	if err != nil {
		return nil, err
	}
	var out map[string]BoundPVC
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	for name, c := range out {
		if c.Volume == nil {
			return nil, fmt.Errorf("volume %s stands for nothing", name)
		}
	}
	return out, nil
}

// of returns a pod's PVCs, by volume. The caller must not change them.
func (c *boundPVCs) of(pod types.UID) map[string]BoundPVC {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[pod]
}

// all returns the PVCs of all pods. The caller must not change those of a pod.
func (c *boundPVCs) all() map[types.UID]map[string]BoundPVC {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.pods)
}

// usedNow returns the volumes of a pod that is set up, without those whose PVC is not known.
func (c *boundPVCs) usedNow(pod *v1.Pod) ([]used, error) {
	all, err := usedVolumes(pod)
	if err != nil {
		return nil, err
	}
	out, errs := withPVCs(all, c.of(pod.UID))
	return out, errors.Join(errs...)
}

// another returns a PVC as some pod has it.
func (c *boundPVCs) another(namespace, pvc string) (BoundPVC, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.pods {
		for _, bound := range all {
			ref := bound.Volume.Spec.ClaimRef
			if bound.PVC == pvc && ref != nil && ref.Namespace == namespace {
				return bound, true
			}
		}
	}
	return BoundPVC{}, false
}

// elsewhere reports whether another pod uses the persistent volume of that name.
func (c *boundPVCs) elsewhere(pod types.UID, volume string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.othersLocked(pod, volume)) > 0
}

// othersLocked returns the PVCs of other pods that are bound to the volume.
func (c *boundPVCs) othersLocked(pod types.UID, volume string) (out []BoundPVC) {
	for uid, all := range c.pods {
		if uid == pod {
			continue
		}
		for _, bound := range all {
			if bound.Volume.Name == volume {
				out = append(out, bound)
			}
		}
	}
	return out
}

// rivalry says what other pods have of volumes that a pod wants.
type rivalry struct {
	taken  []string          // volumes that another pod uses exclusively, ascending
	labels map[string]string // labels of volumes that another pod has with another one
}

// hold records the pod's PVCs in memory, where other pods see them at once, and then in the pod's
// directory. It leaves out volumes that another pod uses exclusively, or has with another label if
// the pod's is to be mounted.
func (c *boundPVCs) hold(pod types.UID, all map[string]BoundPVC) (r rivalry, err error) {
	r, mine := c.reserve(pod, all)
	text, err := json.Marshal(mine)
	if err != nil {
		return r, err
	}
	path := filepath.Join(c.root, podsDir, string(pod), pvcsFile)
	if old, err := files.Read(path, maxPVCs); err == nil && string(old) == string(text) {
		return r, nil
	}
	if len(mine) == 0 {
		err = files.Remove(path)
	} else {
		err = errors.Join(files.MakeWay(path), files.Replace(path, text))
	}
	if err != nil {
		return r, fmt.Errorf("note what the pod's claims are bound to: %w", err)
	}
	return r, nil
}

func (c *boundPVCs) reserve(pod types.UID, all map[string]BoundPVC) (r rivalry, mine map[string]BoundPVC) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine, r.labels = map[string]BoundPVC{}, map[string]string{}
	for name, bound := range all {
		others := c.othersLocked(pod, bound.Volume.Name)
		if bound.oncePod() && len(others) > 0 {
			r.taken = append(r.taken, name)
			continue
		}
		at := slices.IndexFunc(others, func(o BoundPVC) bool { return o.Label != bound.Label })
		if at >= 0 {
			if r.labels[name] = others[at].Label; bound.Labeled || others[at].Labeled {
				continue
			}
		}
		mine[name] = bound
	}
	slices.Sort(r.taken)
	if c.pods[pod] = mine; len(mine) == 0 {
		delete(c.pods, pod)
	}
	return r, mine
}

func (c *boundPVCs) forget(pod types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, pod)
}
