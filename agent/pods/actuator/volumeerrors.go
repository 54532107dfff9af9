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

// told has what was said of pods' volumes that cannot be made. The zero value is ready.
type told struct {
	mu   sync.Mutex
	pods map[types.UID]map[string]time.Time // when, by the error's text
}

// news returns the errors, of those that err joins, that were not said of the pod a short time ago, and
// notes that they are said. Those of calls to drivers have pauses of their own.
func (t *told) news(pod types.UID, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, before := map[string]time.Time{}, t.pods[pod]
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
	if t.pods == nil {
		t.pods = map[types.UID]map[string]time.Time{}
	}
	t.pods[pod] = now
	return errors.Join(out...)
}

// forget forgets a pod whose volumes were made, or taken back.
func (t *told) forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, pod)
}
