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

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/internal/files"
)

const (
	// claimsFile, in a pod's directory, has what the pod's claims are bound to. The next run of the
	// agent knows it from there without the API server.
	claimsFile = "numalet_claims"
	// maxClaims is the file's largest size in bytes.
	maxClaims = 16 << 20
)

// Claimed is a claim of a pod with the volume that it is bound to.
type Claimed struct {
	Claim    string               `json:"claim"` // in the pod's namespace
	ReadOnly bool                 `json:"readOnly,omitempty"`
	Volume   *v1.PersistentVolume `json:"volume"`
	// Label is the SELinux label that the pod wants the volume to have, and Labeled says that the
	// volume is mounted with it.
	Label   string `json:"seLinuxLabel,omitempty"`
	Labeled bool   `json:"labeled,omitempty"`
	// read is the claim as it was read last; nil: not in this run of the agent.
	read *v1.PersistentVolumeClaim
}

// typed returns the volume with its type; a volume of an in-tree type that a driver serves now is
// that driver's.
func (c Claimed) typed() (is used, err error) {
	if is.pv, is.migrated, err = csi.Translate(c.Volume); err == nil {
		is.plugin, err = persistentPlugin(is.pv)
	}
	return is, err
}

// oncePod reports whether only one pod at a time may use the volume. If the volume has other access
// modes too, nobody knows which one the pod means.
func (c Claimed) oncePod() bool {
	modes := c.Volume.Spec.AccessModes
	return len(modes) == 1 && modes[0] == v1.ReadWriteOncePod
}

// claims has what the claims of all pods are bound to, by pod and volume.
type claims struct {
	layout
	mu   sync.Mutex
	pods map[types.UID]map[string]Claimed
}

// newClaims reads what an earlier run of the agent left. A file that cannot be read counts as
// missing: its claims are looked up again.
func newClaims(l layout) (*claims, error) {
	c := &claims{layout: l, pods: map[types.UID]map[string]Claimed{}}
	uids, err := l.Orphans(nil)
	if err != nil {
		return nil, err
	}
	for _, uid := range uids {
		of, err := readClaims(filepath.Join(l.root, podsDir, string(uid), claimsFile))
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

func readClaims(path string) (map[string]Claimed, error) {
	text, err := files.Read(path, maxClaims)
	if err != nil {
		return nil, err
	}
	var out map[string]Claimed
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

// of returns a pod's claims, by volume. The caller must not change them.
func (c *claims) of(pod types.UID) map[string]Claimed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[pod]
}

// all returns the claims of all pods. The caller must not change those of a pod.
func (c *claims) all() map[types.UID]map[string]Claimed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.pods)
}

// usedNow returns the volumes of a pod that is set up, without those whose claim is not known.
func (c *claims) usedNow(pod *v1.Pod) ([]used, error) {
	all, err := usedVolumes(pod)
	if err != nil {
		return nil, err
	}
	out, errs := withClaims(all, c.of(pod.UID))
	return out, errors.Join(errs...)
}

// another returns a claim as some pod has it.
func (c *claims) another(namespace, claim string) (Claimed, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.pods {
		for _, claimed := range all {
			ref := claimed.Volume.Spec.ClaimRef
			if claimed.Claim == claim && ref != nil && ref.Namespace == namespace {
				return claimed, true
			}
		}
	}
	return Claimed{}, false
}

// elsewhere reports whether another pod uses the persistent volume of that name.
func (c *claims) elsewhere(pod types.UID, volume string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.othersLocked(pod, volume)) > 0
}

// othersLocked returns the claims of other pods that are bound to the volume.
func (c *claims) othersLocked(pod types.UID, volume string) (out []Claimed) {
	for uid, all := range c.pods {
		if uid == pod {
			continue
		}
		for _, claimed := range all {
			if claimed.Volume.Name == volume {
				out = append(out, claimed)
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

// hold records the pod's claims in memory, where other pods see them at once, and then in the pod's
// directory. It leaves out volumes that another pod uses exclusively, or has with another label if
// the pod's is to be mounted.
func (c *claims) hold(pod types.UID, all map[string]Claimed) (r rivalry, err error) {
	r, mine := c.reserve(pod, all)
	text, err := json.Marshal(mine)
	if err != nil {
		return r, err
	}
	path := filepath.Join(c.root, podsDir, string(pod), claimsFile)
	if old, err := files.Read(path, maxClaims); err == nil && string(old) == string(text) {
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

func (c *claims) reserve(pod types.UID, all map[string]Claimed) (r rivalry, mine map[string]Claimed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine, r.labels = map[string]Claimed{}, map[string]string{}
	for name, claimed := range all {
		others := c.othersLocked(pod, claimed.Volume.Name)
		if claimed.oncePod() && len(others) > 0 {
			r.taken = append(r.taken, name)
			continue
		}
		at := slices.IndexFunc(others, func(o Claimed) bool { return o.Label != claimed.Label })
		if at >= 0 {
			if r.labels[name] = others[at].Label; claimed.Labeled || others[at].Labeled {
				continue
			}
		}
		mine[name] = claimed
	}
	slices.Sort(r.taken)
	if c.pods[pod] = mine; len(mine) == 0 {
		delete(c.pods, pod)
	}
	return r, mine
}

func (c *claims) forget(pod types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, pod)
}
