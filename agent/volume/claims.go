package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

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
	// read is the claim as it was read last; nil: not in this run of the agent.
	read *v1.PersistentVolumeClaim
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

// elsewhere reports whether another pod uses the persistent volume of that name.
func (c *claims) elsewhere(pod types.UID, volume string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elsewhereLocked(pod, volume)
}

func (c *claims) elsewhereLocked(pod types.UID, volume string) bool {
	for uid, all := range c.pods {
		if uid == pod {
			continue
		}
		for _, claimed := range all {
			if claimed.Volume.Name == volume {
				return true
			}
		}
	}
	return false
}

// hold records the pod's claims in memory, where other pods see them at once, and then in the pod's
// directory. It leaves out volumes that another pod uses exclusively, and returns these, ascending.
func (c *claims) hold(pod types.UID, all map[string]Claimed) (taken []string, err error) {
	taken, mine := c.reserve(pod, all)
	text, err := json.Marshal(mine)
	if err != nil {
		return taken, err
	}
	path := filepath.Join(c.root, podsDir, string(pod), claimsFile)
	if old, err := files.Read(path, maxClaims); err == nil && string(old) == string(text) {
		return taken, nil
	}
	if len(mine) == 0 {
		err = files.Remove(path)
	} else {
		err = files.Replace(path, text)
	}
	if err != nil {
		return taken, fmt.Errorf("note what the pod's claims are bound to: %w", err)
	}
	return taken, nil
}

func (c *claims) reserve(pod types.UID, all map[string]Claimed) (
	taken []string, mine map[string]Claimed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine = map[string]Claimed{}
	for name, claimed := range all {
		if claimed.oncePod() && c.elsewhereLocked(pod, claimed.Volume.Name) {
			taken = append(taken, name)
			continue
		}
		mine[name] = claimed
	}
	slices.Sort(taken)
	if c.pods[pod] = mine; len(mine) == 0 {
		delete(c.pods, pod)
	}
	return taken, mine
}

func (c *claims) forget(pod types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, pod)
}
