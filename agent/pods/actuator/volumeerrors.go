package actuator

import (
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/cri"
)

// tellAgain is after how long it is said again that a volume cannot be made, as long as the kubelet has a
// pod wait for its volumes. An event for each try would soon be more than the API server is sent of a pod,
// and those that matter would not get there.
const tellAgain = 2*time.Minute + 3*time.Second

// volumeErrors holds the errors that were reported of pods' volumes that cannot be made. The zero value
// is ready.
type volumeErrors struct {
	mu   sync.Mutex
	pods map[types.UID]map[string]time.Time // when, by the error's text
}

// news returns the errors, of those that err joins, that were not said of the pod a short time ago, and
// notes that they are said. Errors of calls to drivers have pauses of their own.
func (v *volumeErrors) news(pod types.UID, err error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, before := map[string]time.Time{}, v.pods[pod]
	var out []error
	for _, one := range cri.Parts(err) {
		text := one.Error()
		at, said := before[text]
		switch {
		case volume.IsUsual(one), !cri.PausedUntil(one).IsZero():
			out = append(out, one)
		case said && time.Since(at) < tellAgain:
			now[text] = at
		default:
			now[text] = time.Now()
			out = append(out, one)
		}
	}
	if v.pods == nil {
		v.pods = map[types.UID]map[string]time.Time{}
	}
	v.pods[pod] = now
	return errors.Join(out...)
}

// forget forgets a pod whose volumes were made, or taken back.
func (v *volumeErrors) forget(pod types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.pods, pod)
}
