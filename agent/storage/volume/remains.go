package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// remains counts, by pod, the volumes that earlier runs of the agent left and whose type or driver is
// unknown.
type remains struct {
	cfg  Config
	mu   sync.Mutex // guards lost
	lost map[types.UID]int
}

// newRemains counts what earlier runs left.
func newRemains(n *node) (*remains, error) {
	r := &remains{cfg: n.cfg, lost: map[types.UID]int{}}
	pods, err := os.ReadDir(filepath.Join(n.root, podsDir))
	if err != nil {
		return nil, fmt.Errorf("look at what is left of pods: %w", err)
	}
	for _, pod := range pods {
		dir := filepath.Join(n.root, podsDir, pod.Name())
		err = errors.Join(err, r.reconstruct(types.UID(pod.Name()), dir))
	}
	return r, err
}

// reconstruct counts the volumes that earlier runs left in a pod's directory.
func (r *remains) reconstruct(pod types.UID, podDir string) error {
	all, err := places(podDir)
	if err != nil {
		return err
	}
	blocks, err := filepath.Glob(filepath.Join(podDir, devicesDir, "*", "*"))
	if err != nil {
		return err
	}
	for _, path := range blocks {
		all = append(all, place{typeName(filepath.Base(filepath.Dir(path))), filepath.Base(path)})
	}
	for _, at := range all {
		err := r.cfg.isKnown(pod, at)
		r.cfg.Done(operation.Done{Plugin: at.plugin, Name: operation.Reconstruct, Err: err})
		if err != nil {
			r.lost[pod]++
		}
	}
	return nil
}

// isKnown returns why the agent does not know what an earlier run has made.
func (c Config) isKnown(pod types.UID, at place) error {
	of := typeNamed(at.plugin)
	if of.name == "" {
		return fmt.Errorf("there are no volumes of type %s", at.plugin)
	}
	if of.held != nil && of.held.known != nil && !of.held.known(c, pod, at.name) {
		return fmt.Errorf("volume %v has no record", at)
	}
	return nil
}

// cleaned counts that what was lost of a pod was removed, or could not be.
func (r *remains) cleaned(pod types.UID, err error) {
	for range r.clean(pod, err == nil) {
		r.cfg.Done(operation.Done{Name: operation.ForceClean, Err: err})
	}
}

// clean returns how many volumes of a pod are lost, and forgets them if they are removed.
func (r *remains) clean(pod types.UID, removed bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.lost[pod]
	if removed {
		delete(r.lost, pod)
	}
	return n
}
